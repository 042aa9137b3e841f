"""llama-bench: its command line, and its rows.

The program here prints rows as b10605 does, because no package has a llama-bench;
benchmarks/bench_overhead.py runs the real one.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from kvwise.engine.bench import as_bench, bench_argv, cannot, find_for_bench, program, run_bench
from kvwise.engine.find import Engine
from kvwise.engine.outcome import EngineEnded
from kvwise.errors import EngineError
from kvwise.launch import Launch

BENCH = Engine("binary", "/opt/llama-bench", "b10605")


def argv(launch: Launch, *tests: tuple[int, int, int], **more: object) -> list[str]:
    return bench_argv(BENCH, "m.gguf", launch, tests or [(512, 0, 0)], times=3, **more)  # type: ignore[arg-type]


def value(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1
    return words[words.index(flag) + 1]


def test_everything_is_said_aloud() -> None:
    words = argv(Launch(n_ctx=4096), (512, 0, 0), (0, 128, 0), threads=4)
    assert words[0] == "/opt/llama-bench"
    expected = {"-m": "m.gguf", "-p": "512", "-n": "128", "-d": "0", "-r": "3", "-t": "4",
                "-ctk": "f16", "-ctv": "f16", "-fa": "auto", "-b": "2048", "-ub": "512",
                "-o": "jsonl"}  # fmt: skip
    assert {flag: value(words, flag) for flag in expected} == expected
    assert "-c" not in words
    assert "--no-warmup" not in words


def test_settings_in_llama_benchs_own_spelling() -> None:
    launch = Launch(
        type_k="q8_0", type_v="q4_0", flash_attn="on", offload_kqv=False, n_gpu_layers=9,
        tensor_split=(3.0, 1.0), n_ubatch=128, extra=("-t", "2"),
    )  # fmt: skip
    words = argv(launch, (0, 16, 64), threads=8, warmup=False)
    assert value(words, "-fa") == "on"
    assert value(words, "-nkvo") == "1"
    assert value(words, "-ts") == "3/1"
    assert value(words, "-ngl") == "9"
    assert (value(words, "-p"), value(words, "-n"), value(words, "-d")) == ("0", "16", "64")
    assert value(words, "-t") == "2"  # the user's
    assert "--no-warmup" in words


@pytest.mark.parametrize(
    ("launch", "what"),
    [
        (Launch(), ()),
        (Launch(type_k="q8_0", flash_attn="on", n_gpu_layers=3), ()),
        (Launch(n_seq_max=4, kv_unified=True), ("n_seq_max",)),
        (Launch(repack=False), ("repack",)),
        (Launch(swa_full=True), ("swa_full",)),
        (Launch(model_draft="d.gguf", spec_types=("draft-simple",)), ("model_draft",)),
    ],
)
def test_what_it_cannot_be_told(launch: Launch, what: tuple[str, ...]) -> None:
    assert set(what) <= set(cannot(launch))
    assert bool(what) == bool(cannot(launch))


def test_the_context_is_that_of_a_test_with_all_logits() -> None:
    launch = as_bench(Launch(n_ctx=4096, n_seq_max=4, kv_unified=True, n_outputs_max=4), 640)
    assert (launch.n_ctx, launch.n_seq_max, launch.n_outputs_max) == (640, 1, 0)
    assert launch.tool == "llama-bench"


def pretend(folder: Path, body: str, name: str = "llama-bench") -> list[str]:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, json, time\n{textwrap.dedent(body)}")
    path.chmod(0o755)
    return [str(path)]


ROW = {
    "build_number": 10605, "n_batch": 2048, "n_ubatch": 512, "n_threads": 2, "type_k": "f16",
    "type_v": "f16", "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 1500000000,
    "avg_ts": 341.3, "samples_ns": [1500000000, 1490000000], "samples_ts": [341.3, 343.6],
}  # fmt: skip


def test_rows_are_kept_when_it_stops_at_the_next(tmp_path: Path) -> None:
    body = f"""
        print('llama-bench: benchmark 1/2: prompt run 1/2', file=sys.stderr, flush=True)
        time.sleep(0.3)
        print({json.dumps(ROW)!r}, flush=True)
        print("llama_bench: error: failed to create context with model 'm'", file=sys.stderr)
        sys.exit(1)
    """
    done = run_bench(pretend(tmp_path, body))
    (row,) = done.rows
    assert row.rates == (341.3, 343.6)
    assert row.seconds == (1.5, 1.49)
    assert 0.2 < row.window[1] - row.window[0] < 30
    assert not done.outcome.clean


def test_a_failure_without_rows_is_an_ending(tmp_path: Path) -> None:
    body = """
        print("llama_bench: error: failed to load model 'm'", file=sys.stderr)
        sys.exit(1)
    """
    with pytest.raises(EngineEnded) as caught:
        run_bench(pretend(tmp_path, body))
    assert caught.value.outcome.code == 1


def test_no_rows_and_a_good_end_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        run_bench(pretend(tmp_path, "print('usage: llama-bench [options]')"))


def test_it_is_looked_for_beside_the_server_and_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = """
        if sys.argv[1] == '--version': print('version: 0.2.0 (build 10605, commit 1a2b3c4)')
        if sys.argv[1] == '--help': print('-m, --model')
    """
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    server = Engine("binary", pretend(tmp_path, answer, "llama-server")[0], "b10605")
    assert program(server) is None
    assert program(Engine("embedded")) is None
    bench = pretend(tmp_path, answer)[0]
    found = program(server)
    assert found is not None
    assert (found.path, found.build) == (bench, "b10605")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_for_bench().path == server.path  # before the embedded one
