"""`kvwise probe` and `--device-file`: what a person and a program get."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise.errors import EngineError
from kvwise.probe.alone import alone

from .conftest import QWEN, ROOT, Done, Kvwise

MIB = 1024**2
FAKES = ROOT / "tests/probe/fakes"
CONTRACT = {"name", "backend", "index", "total_bytes", "free_bytes", "largest_block_bytes",
            "all_blocks_bytes", "spilled", "driver_model", "compute_capability",
            "write_bytes_per_s"}  # fmt: skip


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a CUDA driver and NVML that are none, found as any library is."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("drivers")
    for source, name in (("cuda.c", "libcuda.so.1"), ("nvml.c", "libnvidia-ml.so.1")):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, FAKES / source], check=True)
    return str(folder)


@pytest.fixture
def probe(kvwise: Kvwise, drivers: str) -> Callable[..., Done]:
    """`kvwise probe` on a machine with that driver."""

    def run(*words: str, fake: str = "", nvml: str = "") -> Done:
        env = {"LD_LIBRARY_PATH": drivers, "FAKE": fake, "NVML": nvml}
        anyway = () if "--quick" in words else ("--full",)  # an engine of another test may run
        return kvwise("probe", "--backend", "cuda", *anyway, *words, env=env)

    return run


def test_the_document(probe: Callable[..., Done]) -> None:
    done = probe("--json", fake="extents=9000,5000,3000", nvml="model=0")
    assert done.code == 0
    assert done.json["schema"] == "kvwise/probe/1"
    (device,) = done.json["devices"]
    assert set(device) >= CONTRACT
    assert set(done.json["host"]) >= {"total_bytes", "available_bytes", "limit_bytes"}
    assert device["largest_block_bytes"] == 9000 * MIB
    assert device["driver_model"] == "WDDM"
    assert device["plan"]["max_block_bytes"] == 9000 * MIB
    assert all(isinstance(note["message"], str) for note in device["notes"])


def test_what_a_person_reads(probe: Callable[..., Done]) -> None:
    text = probe(fake="spill=20000").out
    for words in ("CUDA0", "called free", "largest block", "plan with", "yes", "800 GB/s",
                  "lie in system memory", "never run on real hardware", "kept free",
                  "host: "):  # fmt: skip
        assert words in text
    assert "12 GB/s" in text


def test_in_chinese(probe: Callable[..., Done]) -> None:
    text = probe("--lang", "zh", fake="crash=cuMemAlloc_v2").out
    assert "SIGSEGV" in text
    for words in ("crashed", "driver", "host", "never"):
        assert words not in text


def test_quick_takes_nothing(probe: Callable[..., Done], tmp_path: Path) -> None:
    done = probe("--quick", "--json", fake=f"log={tmp_path / 'log'}")
    assert done.json["devices"][0]["outcome"] == "asked"
    assert not (tmp_path / "log").exists()
    assert probe("--quick", "--full").code == 2


def test_a_measurement_is_kept_and_a_quick_look_is_not(
    probe: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path))
    kept = tmp_path / "data/probe.json"
    probe("--quick")
    probe("--no-save")
    assert not kept.exists()
    assert probe("-v").err.strip().endswith(str(kept))
    before = kept.read_bytes()
    probe("--quick")
    assert kept.read_bytes() == before


def test_a_reserve_of_ones_own(probe: Callable[..., Done]) -> None:
    device = probe("--json", "--reserve", "4GiB").json["devices"][0]
    assert device["margin_bytes"] == 4096 * MIB


def test_trouble_is_a_result_and_exit_1_if_there_is_nothing_else(
    probe: Callable[..., Done],
) -> None:
    done = probe(fake="fail=cuInit:803")
    assert done.code == 1
    assert "restart after an update of the driver" in done.out
    done = probe(fake="exit=cuMemAlloc_v2")
    assert done.code == 1
    assert "ended the probing process (exit code 0)" in done.out
    assert probe(fake="devices=0").code == 0


def test_without_any_driver(kvwise: Kvwise) -> None:
    done = kvwise("probe", "--backend", "hip")
    if "ROCm" in done.out:
        pytest.skip("an AMD card is here")
    assert done.code == 0
    assert "no GPU" in done.out
    assert "host: " in done.out


# -- two at once, killed, nowhere to keep the answer ---------------------------------------------


@pytest.fixture
def started(
    drivers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """`kvwise probe` begun and not waited for."""
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", drivers)

    def start(fake: str = "", **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "kvwise", "probe", "--backend", "cuda", "--full"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**os.environ, "FAKE": fake}, **pipes, **more)

    return start


Started = Callable[..., subprocess.Popen[str]]


def test_two_probes_do_not_take_each_others_memory(started: Started) -> None:
    with alone():
        second = started()
        assert second.stderr is not None
        assert "another kvwise probe is running" in second.stderr.readline()
        assert second.poll() is None
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "CUDA0" in out


def test_a_probe_that_was_killed_blocks_nobody_and_leaves_no_child(started: Started) -> None:
    first = started("hang=cuMemAlloc_v2")
    deadline = time.monotonic() + 30
    while not (children := psutil.Process(first.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.communicate()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert (len(gone), alive) == (len(children), [])
    with alone(patience_s=5):
        pass


def test_the_other_one_does_not_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path))
    with alone(), pytest.raises(EngineError), alone(patience_s=0.2):
        pass


def _full_disk() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


def test_a_full_disk_loses_neither_the_answer_nor_the_last_one(
    started: Started, tmp_path: Path
) -> None:
    started().communicate()
    kept = tmp_path / "data/probe.json"
    before = kept.read_bytes()
    done = started(preexec_fn=_full_disk)
    out, err = done.communicate()
    assert (done.returncode, "CUDA0" in out) == (0, True)
    assert "not kept" in err
    assert kept.read_bytes() == before
    assert [path.name for path in kept.parent.iterdir()] == ["probe.json"]


def test_no_folder_to_keep_anything(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "file"))
    done = started()
    out, err = done.communicate()
    assert (done.returncode, "CUDA0" in out) == (0, True)
    assert "not kept" in err


# -- a probe that a friend sent ----------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """A probe's file of one RTX 4060 with changes."""

    def write(**fields: Any) -> str:
        row = {"name": "NVIDIA GeForce RTX 4060", "backend": "cuda", "index": 0,
               "total_bytes": 8188 * MIB, "free_bytes": 7900 * MIB,
               "largest_block_bytes": 7836 * MIB, "all_blocks_bytes": 7836 * MIB,
               "ceiling_bytes": 7836 * MIB, "margin_bytes": 64 * MIB, "spilled": False,
               "sm_count": 24, "driver_model": None, "compute_capability": "8.9",
               "write_bytes_per_s": 250 * 10**9} | fields  # fmt: skip
        host = {"total_bytes": 32 << 30, "available_bytes": 20 << 30, "limit_bytes": None}
        path = tmp_path / "probe.json"
        path.write_text(json.dumps({"schema": "kvwise/probe/1", "devices": [row], "host": host}))
        return str(path)

    return write


def test_size_takes_the_devices_and_the_host_of_the_file(
    quick: Kvwise, file: Callable[..., str]
) -> None:
    words = ("size", QWEN, "-c", "4096", "--json", "--device-file")
    buffers = quick(*words, file()).json["buffers"]
    assert buffers[0]["device"] == "NVIDIA GeForce RTX 4060"
    assert buffers[0]["free_bytes"] == 7900 * MIB
    assert buffers[1]["free_bytes"] == 20 << 30
    buffers = quick(*words, file(all_blocks_bytes=6000 * MIB)).json["buffers"]
    assert buffers[0]["free_bytes"] == 6000 * MIB
    assert quick(*words, file(), "--ram", "9GiB").json["buffers"][1]["free_bytes"] == 9 << 30


def test_the_same_numbers_by_name_and_by_file_are_the_same_answer(
    quick: Kvwise, file: Callable[..., str]
) -> None:
    words = ("size", QWEN, "-c", "4096", "--json", "--ram", "20GiB")
    given = "name=NVIDIA GeForce RTX 4060,total=8188MiB,free=7900MiB,kind=cuda,sm=24"
    by_file = quick(*words, "--device-file", file()).json
    assert quick(*words, "--gpu", given).json["buffers"] == by_file["buffers"]


def test_a_buffer_that_is_larger_than_any_block_does_not_fit(
    quick: Kvwise, file: Callable[..., str]
) -> None:
    words = ("size", QWEN, "-c", "4096", "--json", "--device-file")
    assert quick(*words, file()).code == 0
    done = quick(*words, file(largest_block_bytes=3000 * MIB))
    assert done.code == 3
    assert done.json["fits"] is False


def test_plan_keeps_to_what_was_measured(quick: Kvwise, file: Callable[..., str]) -> None:
    words = ("plan", QWEN, "--goal", "max-context", "--json", "--device-file")
    for had in (7836 * MIB, 6000 * MIB, 3000 * MIB):
        sent = file(all_blocks_bytes=had, largest_block_bytes=had)
        gpu = quick(*words, sent).json["choice"]["ledger"]["buffers"][0]
        assert gpu["free_bytes"] == (7900 * MIB if had == 7836 * MIB else had)
        assert gpu["total_bytes"] <= gpu["free_bytes"] - 192 * MIB
    pieces = file(largest_block_bytes=3000 * MIB)
    buffer = quick(*words, pieces).json["choice"]["ledger"]["buffers"][0]
    assert buffer["weights_bytes"] <= 3000 * MIB
    assert buffer["context_bytes"] <= 3000 * MIB


def test_files_that_are_none(quick: Kvwise, file: Callable[..., str], tmp_path: Path) -> None:
    assert quick("size", QWEN, "--device-file", str(tmp_path / "none")).code == 1
    assert quick("size", QWEN, "--device-file", QWEN).code == 2
    assert quick("size", QWEN, "--device-file", file(), "--gpu", "6GiB").code == 2
    assert quick("size", QWEN, "--device-file", file(), "--cpu-only").code == 2
    assert quick("size", QWEN, "--device-file", file(total_bytes=-1)).code == 2
