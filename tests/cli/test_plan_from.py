"""`kvwise plan --from`: what to change in settings that people have, with bytes, in their words."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path

import pytest

from kvwise.device import Device
from kvwise.memory.account import account
from kvwise.opening import open_model
from kvwise.options import change, read
from models import smollm2

from .conftest import QWEN, Kvwise

GPU = ("--gpu", "name=Card,total=6144MiB,free=5900MiB,kind=generic", "--ram", "32GiB")
LINE = "llama-server -m qwen.gguf -c 8192 -ngl 30 -np 1 -fa --temp 0.5"


def by_flag(document: dict[str, object]) -> dict[str, dict[str, object]]:
    rows = document["changes"]
    assert isinstance(rows, list)
    return {row["flag"]: row for row in rows}


def test_each_change_has_its_own_bytes(quick: Kvwise) -> None:
    document = quick("plan", QWEN, *GPU, "--from", LINE, "--json").json
    assert document["schema"] == "kvwise/plan/1"
    assert document["theirs"]["fits"] is True
    rows = by_flag(document)
    model, device = open_model(QWEN), Device.of(GPU[1])
    theirs = read(["-c", "8192", "-ngl", "30", "-np", "1", "-fa", "on"]).launch
    before = account(model, theirs, [device])
    for flag, field in (("-c", "n_ctx"), ("-ctk", "type_k"), ("-ngl", "n_gpu_layers")):
        row = rows[flag]
        assert row["changes"] is True
        advised = getattr(read([flag, str(row["advised"])]).launch, field)
        after = account(model, change(theirs, **{field: advised}), [device])
        assert row["bytes"] == {
            new.buffer: new.total_bytes - old.total_bytes
            for old, new in zip(before.lines, after.lines, strict=True)
        }
    assert rows["-fa"]["changes"] is False


def test_every_reason_has_its_number(quick: Kvwise) -> None:
    """Bytes, tokens or tokens per second of what a change alone does; or that nothing does."""
    line = "llama-server -m qwen.gguf -c 8192 -ngl 20 -b 512 -np 4"
    card = ("--gpu", "name=RTX 4060,os=linux", "--ram", "32GiB")
    rows = by_flag(quick("plan", QWEN, *card, "--from", line, "--json").json)
    changed = {flag: row for flag, row in rows.items() if row["changes"]}
    assert len(changed) >= 5
    for flag, row in changed.items():
        why = str(row["why"])
        if row["bytes"] and any(row["bytes"].values()):  # type: ignore[union-attr]
            assert re.search(r"[\d,.]+ [MG]iB (?:more )?on NVIDIA", why), (flag, why)
            assert re.search(r"\d tokens", why), (flag, why)
        else:
            assert why.startswith("no byte changes") or "1 GiB free = " in why, (flag, why)
    layers = changed["-ngl"]
    assert layers["decode_ratio"] > 2  # type: ignore[operator]
    assert f"answers come {layers['decode_ratio']:.1f} times as fast" in str(layers["why"])
    context = changed["-c"]
    more = int(str(context["advised"])) - 8192
    assert f"{more:,} tokens more take " in str(context["why"])


def test_what_today_is_refused_is_judged_in_the_advised_settings(quick: Kvwise) -> None:
    refused = "llama-server -m a.gguf -fa off -ctv q8_0 -ub 2048"
    rows = by_flag(quick("plan", QWEN, *GPU, "--from", refused, "--json").json)
    row = rows["-ub"]
    launch = read(["-ub", "2048"]).launch
    document = quick("plan", QWEN, *GPU, "--from", refused, "--json").json
    argv = document["commands"]["argv"][1:]
    advised = read(argv).launch
    model, device = open_model(QWEN), Device.of(GPU[1])
    one = account(model, change(advised, n_ubatch=launch.n_ubatch), [device])
    two = account(model, advised, [device])
    freed = two.lines[0].total_bytes - one.lines[0].total_bytes
    assert row["bytes"]["VGPU0"] == freed < 0  # type: ignore[index]
    assert "frees " in str(row["why"])


def test_the_corrected_command_is_the_plan(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "--from", f"sudo ./bin/{LINE}")
    words = shlex.split(done.out.rstrip().splitlines()[-1])
    assert words[:2] == ["sudo", "./bin/llama-server"]
    document = quick("plan", QWEN, *GPU, "--from", LINE, "--json").json
    launch = read(words[2:]).launch
    assert launch == read(document["commands"]["argv"][1:]).launch
    assert launch.n_ctx >= 8192  # no less than there was
    assert launch.model == "qwen.gguf"
    assert "--temp" in words
    assert account(open_model(QWEN), launch, [Device.of(GPU[1])]).fits


def test_what_is_marked_stays(quick: Kvwise) -> None:
    document = quick("plan", QWEN, *GPU, "--from", LINE, "--keep", "-c", "--json").json
    assert document["choice"]["launch"]["n_ctx"] == 8192
    assert by_flag(document)["-c"]["kept"] is True
    document = quick("plan", QWEN, *GPU, "--from", LINE, "--keep", "all", "--json").json
    assert not any(row["changes"] for row in document["changes"] if row["flag"] != "-fit")
    assert quick("plan", QWEN, *GPU, "--from", LINE, "--keep", "--frob").code == 2
    assert "--from says nothing" in quick("plan", QWEN, *GPU, "--from", "").err


def test_what_belongs_to_from_is_refused_without_it(quick: Kvwise) -> None:
    for words in (("--keep", "-c"), ("--keep", "all"), ("--name", "small")):
        done = quick("plan", QWEN, *GPU, *words)
        assert done.code == 2
        assert "belongs to --from" in done.err


def test_llama_cpps_own_keep_still_passes(quick: Kvwise) -> None:
    document = quick("plan", QWEN, *GPU, "--keep", "32", "--no-simulate", "--json").json
    argv = document["commands"]["argv"]
    assert argv[argv.index("--keep") + 1] == "32"


def test_what_does_not_fit_and_what_is_refused_is_said(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "--from", "llama-server -m a.gguf -c 32768 -np 1")
    assert done.out.startswith("now: 32,768 tokens of context, and ")
    assert "are missing" in done.out.splitlines()[0]
    refused = "llama-server -m a.gguf -fa off -ctv q8_0"
    assert quick("plan", QWEN, *GPU, "--from", refused).out.startswith("now: refused: ")
    document = quick("plan", QWEN, *GPU, "--from", refused, "--json").json
    assert document["theirs"]["problem"]["code"] == "v_quant_needs_flash_attn"
    assert document["theirs"]["ledger"] is None


@pytest.mark.parametrize(
    ("target", "file"),
    [("llama-swap", "config.yaml"), ("llama-server", "models.ini"), ("koboldcpp", "a.kcpps"),
     ("ollama", "Modelfile"), ("lm-studio", "a.gguf.json"), ("docker-compose", "compose.yaml"),
     ("systemd", "llama.service"), ("text-generation-webui", "config-user.yaml")],
)  # fmt: skip
def test_files_are_read_and_their_difference_is_shown(
    target: str, file: str, quick: Kvwise, tmp_path: Path
) -> None:
    path = tmp_path / file
    flags = ("--as-given", "-c", "4096", "-ngl", "20", "-np", "1")
    assert quick("export", target, QWEN, *GPU, *flags, "--out", str(path)).code == 0
    quickly = [word for flag in ("-ctk", "-ctv", "-ub", "-ngl") for word in ("--keep", flag)]
    done = quick("plan", QWEN, *GPU, "--from", str(path), *quickly)
    assert done.code == 0, done.err
    assert done.out.startswith("now: ")
    assert f"+++ {path}" in done.out
    document = quick("plan", QWEN, *GPU, "--from", str(path), *quickly, "--json").json
    assert document["theirs"]["kind"] == target
    assert by_flag(document)["-c"]["advised"] != "4096"


def test_a_benchmark_becomes_a_server(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "--from", "llama-bench -m a.gguf -p 4096 -n 0 -ctk q8_0")
    assert done.out.rstrip().splitlines()[-1].startswith("llama-server -m a.gguf -c ")
    done = quick("plan", QWEN, *GPU, "--from", "llama-cli -m a.gguf -c 4096 -p hi")
    assert done.out.rstrip().splitlines()[-1].startswith("llama-cli -m a.gguf -c ")
    assert "-p hi" in done.out


def test_ollamas_names_stay_names(quick: Kvwise, tmp_path: Path) -> None:
    path = tmp_path / "Modelfile"
    path.write_text("FROM qwen3:8b\nPARAMETER num_ctx 4096\n")
    done = quick("plan", QWEN, *GPU, "--from", str(path))
    assert "-PARAMETER num_ctx 4096" in done.out
    assert " FROM qwen3:8b\n" in done.out


def test_a_model_of_ollamas_store_is_judged_with_its_own_parameters(
    quick: Kvwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    (tmp_path / "blobs").mkdir()
    layers = []
    for kind, data in (("model", smollm2().read_bytes()), ("params", b'{"num_ctx": 2048}')):
        digest = hashlib.sha256(data).hexdigest()
        (tmp_path / "blobs" / f"sha256-{digest}").write_bytes(data)
        layers.append({"mediaType": f"application/vnd.ollama.image.{kind}",
                       "digest": f"sha256:{digest}"})  # fmt: skip
    manifest = tmp_path / "manifests/registry.ollama.ai/library/small/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    done = quick("plan", "--from", "ollama:small", *GPU)
    assert done.code == 0, done.err
    assert done.out.startswith("now: 2,048 tokens of context")
    assert "FROM small" in done.out
    assert quick("plan", "--from", "ollama:none", *GPU).code == 1


def test_a_pipe_is_read_too(kvwise: Kvwise) -> None:
    done = kvwise("plan", QWEN, *GPU, "--from", "-", "--json", stdin=LINE)
    assert done.json["theirs"]["argv"][:2] == ["-m", "qwen.gguf"]
    preset = "[one]\nmodel = /a.gguf\nc = 4096\n"
    done = kvwise("plan", QWEN, *GPU, "--from", "-", "--json", stdin=preset)
    assert done.json["theirs"]["kind"] == "llama-server"


def test_errors_are_one_line(quick: Kvwise, tmp_path: Path) -> None:
    broken = tmp_path / "a.kcpps"
    broken.write_text("{")
    for source, code in (
        ("git status", 2), ("llama-server -c 1", 1), (str(broken), 1), (str(tmp_path), 1),
        ("no-such-file.yaml", 1), ("llama-server -m 'x", 1), ("llama-server -m a -ctk fp17", 2),
    ):  # fmt: skip
        words = () if source == "llama-server -c 1" else (QWEN,)
        done = quick("plan", *words, *GPU, "--from", source)
        assert done.code in (code, 2), (source, done.err)
        assert done.err.startswith("error: "), source
        assert len(done.err.splitlines()) <= 2
        assert json.loads(quick("plan", *words, *GPU, "--from", source, "--json").out)["error"]


def test_chinese(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "--from", LINE, "--lang", "zh")
    assert done.out.startswith("现在：")
