"""`kvwise doctor` as a person and as a program sees it."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from kvwise.diagnose.machine import checks
from kvwise.diagnose.variables import changing

from .conftest import QWEN, ROOT, Kvwise

LOGS = ROOT / "tests/diagnose/logs"
KV = str(LOGS / "device-cache-b10605.log")
HEALTHY = str(LOGS / "healthy-b10605.log")


def test_a_failure_in_words(quick: Kvwise) -> None:
    done = quick("doctor", KV)
    assert done.code == 0
    assert done.err == ""
    assert "the KV cache does not fit: kv-alloc-oom (sure)" in done.out
    assert "failed to allocate buffer for kv cache" in done.out
    assert "-ctk q8_0 -ctv q8_0" in done.out
    assert "what is short: GPU memory" in done.out
    assert max(map(len, done.out.splitlines())) < 250


def test_a_failure_in_chinese(quick: Kvwise) -> None:
    done = quick("doctor", KV, "--lang", "zh")
    assert "KV 缓存放不下" in done.out
    assert "缺少的是：显存" in done.out


def test_json(quick: Kvwise) -> None:
    done = quick("doctor", KV, "--json")
    assert done.json["schema"] == "kvwise/diagnosis/1"
    assert done.json["findings"][0]["kind"] == "kv-alloc-oom"
    assert done.json["refusal"]["part"] == "kv"
    assert done.json["loads"] == []


def test_exit_codes(quick: Kvwise) -> None:
    assert quick("doctor", KV).code == 0
    assert quick("doctor", KV, "--fail-on-findings").code == 3
    assert quick("doctor", HEALTHY, "--fail-on-findings").code == 0
    assert quick("doctor", "/nowhere/x.log").code == 1
    assert quick("doctor", KV, "--nonsense").code == 2


def test_nothing_wrong(quick: Kvwise) -> None:
    done = quick("doctor", HEALTHY)
    assert "the load went well" in done.out
    assert "a warning that is not the failure" in done.out


def test_something_unknown(quick: Kvwise, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("starting\nfatal: the frobnicator failed\n")
    done = quick("doctor", str(path))
    assert "no rule knows these lines" in done.out
    assert "line 2: fatal: the frobnicator failed" in done.out
    assert "--verbosity 4" in done.out
    assert quick("doctor", str(path), "--fail-on-findings").code == 0


def test_standard_input(kvwise: Kvwise) -> None:
    text = "V cache quantization requires flash_attn\n"
    done = kvwise("doctor", "-", "--json", stdin=text)
    assert done.json["findings"][0]["kind"] == "fa-required"


def test_a_folder(quick: Kvwise, tmp_path: Path) -> None:
    shutil.copy(KV, tmp_path / "a.log")
    shutil.copy(HEALTHY, tmp_path / "b.txt")
    (tmp_path / "c.gguf").write_bytes(b"GGUF")
    (tmp_path / "sub").mkdir()
    with gzip.open(tmp_path / "sub/d.log.gz", "wb") as file:
        file.write(b"Remote RPC server crashed or returned malformed response\n")
    done = quick("doctor", str(tmp_path))
    assert done.out.index("a.log") < done.out.index("b.txt") < done.out.index("d.log.gz")
    document = quick("doctor", str(tmp_path), "--json").json
    kinds = [each["findings"][0]["kind"] for each in document["files"]]
    assert kinds == ["kv-alloc-oom", "benign-warning", "rpc-unreachable"]
    assert document["findings"][0]["kind"] in ("kv-alloc-oom", "rpc-unreachable")


def test_a_folder_goes_on_after_a_file_that_cannot_be_read(quick: Kvwise, tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"x" * 9000)[:-20] + b"?" * 12)
    (tmp_path / "b.log").symlink_to(tmp_path / "b.log")  # is no file: never named
    shutil.copy(KV, tmp_path / "c.log")
    done = quick("doctor", str(tmp_path))
    assert done.code == 0
    assert "kv-alloc-oom" in done.out
    assert "left out: " in done.out
    assert "a.log.gz is damaged" in done.out
    document = quick("doctor", str(tmp_path), "--json").json
    assert document["path"].endswith("c.log")
    assert [each["path"] for each in document["unread"]] == [str(tmp_path / "a.log.gz")]
    (tmp_path / "c.log").unlink()
    alone = quick("doctor", str(tmp_path))
    assert alone.code == 1
    assert "damaged" in alone.err


def test_an_empty_folder(quick: Kvwise, tmp_path: Path) -> None:
    assert quick("doctor", str(tmp_path)).code == 1


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 20, b"\x93\xff" * 50])
def test_what_is_no_text_is_said_in_one_line(quick: Kvwise, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(content)
    done = quick("doctor", str(path))
    assert done.code == 1
    assert "is no text" in done.err if content else "is empty" in done.err
    assert done.out == ""


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1", "gbk"])
def test_logs_in_other_encodings_are_text(quick: Kvwise, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.log"
    said = "r\u00e9seau" if encoding == "latin-1" else "\u6a21\u578b"
    line = f"{said} llama_model_load: error loading model: missing tensor 'output_norm'\n"
    path.write_bytes(line.encode(encoding))
    assert quick("doctor", str(path), "--json").json["findings"][0]["kind"] == "missing-tensor"


def test_an_empty_log_of_a_process_that_was_killed(quick: Kvwise, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"")
    assert quick("doctor", str(path), "--exit-code", "137").code == 0


def test_packed_logs(quick: Kvwise, tmp_path: Path) -> None:
    packed = gzip.compress(Path(KV).read_bytes())
    whole, cut, plain, bad = (tmp_path / f"{name}.gz" for name in ("whole", "cut", "plain", "bad"))
    whole.write_bytes(packed)
    cut.write_bytes(packed[:-9])
    plain.write_bytes(Path(KV).read_bytes())
    bad.write_bytes(packed[:400] + bytes(400) + packed[800:])
    for path in (whole, cut, plain):
        assert quick("doctor", str(path), "--json").json["findings"][0]["kind"] == "kv-alloc-oom"
    done = quick("doctor", str(bad), "--json")
    assert done.code == 1
    assert done.json["schema"] == "kvwise/error/1"
    assert "bad.gz is damaged" in done.json["error"]["message"]


@pytest.mark.parametrize(
    "head",
    [b"GGUF\x03\0\0\0", b"\x7fELF\x02", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"SQLite"],
)
def test_what_is_no_log_is_named_in_one_line(quick: Kvwise, tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(head + bytes(range(256)) * 50)
    done = quick("doctor", str(path))
    assert done.code == 1
    assert done.out == ""
    first, *hint = done.err.splitlines()
    assert str(path) in first
    assert len(hint) <= 1
    document = json.loads(quick("doctor", str(path), "--json").out)
    assert document["schema"] == "kvwise/error/1"


def test_no_name_is_not_the_folder_we_are_in(quick: Kvwise) -> None:
    done = quick("doctor", "")
    assert done.code == 1
    assert "there is no file" in done.err


def test_how_the_process_ended(quick: Kvwise, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("llama_kv_cache:        CPU KV buffer size =  1321.88 MiB\n")
    done = quick("doctor", str(path), "--exit-code", "137", "--json")
    assert done.json["outcome"] == "killed"
    assert done.json["findings"][0]["kind"] == "kv-alloc-oom"
    assert done.json["findings"][0]["memory_pool"] == "host-ram"


def test_with_the_model(quick: Kvwise) -> None:
    """What the log lacks is taken from the line: the model, its flags, the card."""
    log = str(ROOT / "tests/diagnose/logs/written/cache.log")
    done = quick("doctor", log, "-m", QWEN, "-c", "40960", "-np", "1", "--gpu", "RTX 4060")
    assert "a plan that fits" in done.out
    assert "llama-server -m" in done.out
    document = quick("doctor", log, "-m", QWEN, "--gpu", "RTX 4060", "--json").json
    assert document["numbers"]["basis"] == "file"
    assert document["numbers"]["plan"]["schema"] == "kvwise/plan/1"


def test_flags_beside_the_log_change_only_what_they_name(quick: Kvwise, tmp_path: Path) -> None:
    """A load that was begun with q8_0 is not recomputed with f16 because a context is named."""
    log = tmp_path / "run.log"
    log.write_text(
        "$ llama-server -m qwen.gguf -c 40960 -ctk q8_0 -ctv q8_0 -np 1\n"
        + Path(KV).read_text("utf-8")
    )
    plain = json.loads(quick("doctor", str(log), "-m", QWEN, "--json").out)
    named = json.loads(quick("doctor", str(log), "-m", QWEN, "-ub", "128", "--json").out)
    asked, changed = (each["numbers"]["ledger"]["launch"] for each in (plain, named))
    assert "-ctk q8_0" in " ".join(changed.pop("argv"))
    del asked["argv"]
    assert (asked["n_ubatch"], changed["n_ubatch"]) == (512, 128)
    assert asked["type_k"] == "q8_0"
    assert {**asked, "n_ubatch": 128} == changed


def test_a_terminal_of_80_columns(terminal: Kvwise) -> None:
    done = terminal("doctor", KV, columns=80)
    assert done.code == 0
    assert "kv-alloc-oom" in done.out


def test_this_machine(quick: Kvwise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "0")
    done = quick("doctor")
    assert done.code == 0
    assert "memory" in done.out
    assert "GGML_CUDA_ENABLE_UNIFIED_MEMORY=0" in done.out
    assert quick("doctor", "--fail-on-findings").code == 3
    document = quick("doctor", "--json").json
    assert document["schema"] == "kvwise/machine/1"
    assert {"name", "level", "message", "hint"} == document["checks"][0].keys()


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    found = list(checks(str(tmp_path / "nothing"), {}))
    assert (found[0].name, found[0].level) == ("engine", "bad")


def test_variables() -> None:
    told = {
        "CUDA_VISIBLE_DEVICES": "",
        "LLAMA_ARG_CTX_SIZE": "4096",
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
        "PATH": "/bin",
    }
    found = {name: harms for name, _, _, harms in changing(told)}
    assert found == {
        "CUDA_VISIBLE_DEVICES": True,
        "HSA_OVERRIDE_GFX_VERSION": True,
        "LLAMA_ARG_CTX_SIZE": False,
    }
    assert [harms for *_, harms in changing({"CUDA_VISIBLE_DEVICES": "0"})] == [False]


def test_json_is_one_document(quick: Kvwise) -> None:
    assert json.loads(quick("doctor", KV, "--json").out)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fa-required", ("size", QWEN, "-ctv", "q4_0", "-fa", "off")),
        ("cache-type-refused", ("size", QWEN, "-ctk", "q4_K")),
        ("device-missing", ("plan", QWEN, "--gpu", "RTX 9999")),
        ("weights-oom", ("plan", QWEN, "-c", "900000", "--gpu", "1GiB", "--ram", "1GiB")),
        ("kv-alloc-oom", ("plan", QWEN, "-c", "900000", "--gpu", "1GiB", "--ram", "8GiB")),
        ("engine-incomplete", ("simulate", QWEN, "--engine", "/nonexistent/llama-server")),
        ("option-refused", ("size", QWEN, "--no-such-option")),
        ("file-missing", ("size", "/nowhere/model.gguf")),
    ],
)
def test_what_kvwise_itself_said_is_known(
    quick: Kvwise, tmp_path: Path, kind: str, words: tuple[str, ...], language: str
) -> None:
    said = quick(*words, "--lang", language)
    assert said.code in (1, 2, 3)
    pasted = tmp_path / "pasted.log"
    pasted.write_text(said.out + said.err, "utf-8")
    found = quick("doctor", str(pasted), "--json").json["findings"]
    assert found[0]["kind"] == kind
    assert found[0]["memory_is_the_cause"] == kind.endswith("oom")
    assert found[0]["remedies"]


@pytest.mark.parametrize("words", [("-ctv", "q4_0", "-fa", "off"), ("-ctk", "q4_K")])
def test_a_refusal_in_json_is_known_too(
    quick: Kvwise, tmp_path: Path, words: tuple[str, ...]
) -> None:
    said = quick("size", QWEN, *words, "--json")
    pasted = tmp_path / "pasted.log"
    pasted.write_text(said.out + said.err, "utf-8")
    found = quick("doctor", str(pasted), "--json").json["findings"]
    assert found[0]["kind"] in ("fa-required", "cache-type-refused")
