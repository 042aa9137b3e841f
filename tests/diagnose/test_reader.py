"""Logs in every wrapping, encoding and size; several loads in one file."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.diagnose import diagnose
from kvwise.diagnose.scan import Scanner, scan
from kvwise.diagnose.unwrap import unwrap
from kvwise.engine import events as ev
from kvwise.engine import failures, log
from kvwise.engine.printed import Printed

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))
ENGINE_LOGS = sorted((Path(__file__).parents[1] / "engine/logs").glob("*.log"))
KV = "llama_kv_cache:        CPU KV buffer size =    45.00 MiB"
EVENT = ev.Buffer("kv", "CPU", Printed(4500))


def events(data: bytes) -> list[ev.Event]:
    return [record.event for record in scan([data])]


@pytest.mark.parametrize("path", [*LOGS[::4], *ENGINE_LOGS], ids=lambda path: path.stem)
def test_the_quick_way_finds_what_the_plain_way_finds(path: Path) -> None:
    data = path.read_bytes()
    quick = [(record.line, record.event) for record in scan([data])]
    assert quick == [(record.line, record.event) for record in log.read([data])]


def test_a_log_in_any_pieces_gives_the_same() -> None:
    data = b"".join(path.read_bytes() for path in LOGS[::9])
    whole = list(scan([data]))
    rng = random.Random(11)
    for _ in range(10):
        cuts = sorted(rng.sample(range(len(data)), 40))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert list(scan(pieces)) == whole


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings(encoding: str, end: str) -> None:
    text = end.join(["Windows PowerShell", KV, "ende: \u00e4\u4e2d", ""])
    data = text.encode(encoding)
    assert events(data) == [EVENT]
    assert [r.event for r in scan([data[:31], data[31:50], data[50:]])] == [EVENT]


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"log": f"0.00.1 I {KV}\n", "stream": "stderr", "time": "2026"}),
        json.dumps({"MESSAGE": KV, "_PID": "12", "PRIORITY": "6"}),
        json.dumps({"level": "info", "msg": KV, "time": "2026"}),
        json.dumps({"tid": "1", "level": "INFO", "function": "init", "line": 5, "msg": KV}),
        f"prefix {json.dumps({'log': KV})}",
        KV.replace("45.00", "45,00"),
        f"\x1b[1;33m{KV}\x1b[0m",
        f"[33m{KV}[0m",
        f"> > {KV}",
        f"&gt; {KV}",
        f"| {KV}",
        f"[34353] {KV}",
        f"time=2026 level=INFO source=x.go:1 msg=x {KV}",
    ],
)
def test_wrappings(line: str) -> None:
    assert events(line.encode()) == [EVENT]


def test_two_lines_that_ran_together() -> None:
    compute = "sched_reserve:        CPU compute buffer size =    18.67 MiB"
    assert events(f"{KV}{compute}".encode()) == [EVENT, ev.Buffer("compute", "CPU", Printed(1867))]


def test_a_progress_bar_without_line_ends() -> None:
    assert events(b"....\r.....\r" + KV.encode() + b"\r\n") == [EVENT]


def test_json_that_is_none_and_json_that_says_nothing() -> None:
    assert list(unwrap('{"broken": ')) == ['{"broken":']
    assert list(unwrap("[1, 2]")) == ["[1, 2]"]
    assert list(unwrap('{"a": {"b": 1}}')) == ['{"a":{"b":1}}']
    assert list(unwrap("[" * 5000))


def test_lines_are_numbered_as_they_are_kept() -> None:
    text = "\n".join(["a", "", KV, "b", KV, ""])
    scanner = Scanner()
    records = [*scanner.feed(text.encode()), *scanner.close()]
    assert [record.line for record in records] == [3, 5]
    assert scanner.said.lines == 5
    assert scanner.said.tail[-1] == (5, KV)
    assert scanner.said.tail[0] == (1, "a")


def test_lines_that_look_like_errors_are_kept() -> None:
    found = diagnose("all fine\nsomething failed: the frobnicator\n", numbers=False)
    assert [(each.line, each.text) for each in found.unexplained] == [
        (2, "something failed: the frobnicator")
    ]
    assert found.findings == ()
    assert found.outcome == "unknown"


def test_several_loads_in_one_log() -> None:
    """A wrapper tries again: each load is its own, the last that failed is the answer."""
    names = ["healthy-b10605", "device-cache-b10605", "v-needs-flash-b10605", "healthy-b10605"]
    folder = Path(__file__).parent / "logs"
    data = b"".join((folder / f"{name}.log").read_bytes() for name in names)
    found = diagnose(data, numbers=False)
    assert [load.outcome for load in found.loads] == ["ok", "refused", "refused", "ok"]
    kinds = [load.findings[0].kind for load in found.loads]
    assert kinds[1:3] == ["kv-alloc-oom", "fa-required"]
    assert {"kv-alloc-oom", "fa-required"} <= {finding.kind for finding in found.findings}
    assert found.outcome == "refused"
    assert not found.loads[0].blamed
    assert not found.loads[3].blamed


def test_a_server_that_runs_for_ever_needs_no_more_memory() -> None:
    """Millions of requests: what is kept does not grow with the log."""
    start = (Path(__file__).parent / "logs/healthy-b10605.log").read_bytes()
    request = (
        b"slot launch_slot_: id  0 | task 0 | processing task\n"
        b"prompt eval time =      36.12 ms /     5 tokens (    7.22 ms per token)\n"
        b"       eval time =     100.00 ms /    10 tokens (   10.00 ms per token)\n"
        b"srv  send_error: request (1500 tokens) exceeds the available context size (1024 tokens)\n"
        b"srv  update:  - cache state: 3 prompts, 20.500 MiB (limits: 8192.000 MiB, 4096 tokens)\n"
        b"srv  log_server_r: done request: POST /completion 127.0.0.1 200\n"
    )
    peaks = []
    for count in (500, 5000):
        tracemalloc.start()
        found = diagnose([start, *[request * 100] * (count // 100)], numbers=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found.findings[0].kind == "context-overflow"
    assert peaks[1] < 1.5 * peaks[0]


def test_a_line_without_an_end_is_cut() -> None:
    scanner = Scanner()
    for _ in range(40):
        scanner.feed(b"x" * 200_000)
    assert events(b"x" * 3_000_000 + b"\n" + KV.encode()) == [EVENT]


def test_a_word_as_long_as_a_file_is_not_searched_for_everything() -> None:
    """What is around it is read all the same, and the scanner keeps no more than it must."""
    scanner = Scanner()
    found = scanner.feed(b"x" * 300_000 + b"\n" + KV.encode() + b"\n" + b"y" * 300_000)
    assert [record.event for record in found] == [EVENT]
    assert not list(scanner._candidates(b"z" * 5000 + b" " + b"w" * 5000))


@given(st.binary(max_size=3000))
@settings(max_examples=150, deadline=None)
def test_no_bytes_break_the_scanner(data: bytes) -> None:
    cut = len(data) // 2
    assert len(list(scan([data[:cut], data[cut:]]))) <= len(data)


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_no_text_breaks_unwrapping(text: str) -> None:
    assert all(isinstance(each, str) for each in unwrap(text))


def test_lines_that_differ_in_numbers_alone_are_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    hint = failures.hint

    def counted(text: str) -> str | None:
        asked.append(text)
        return hint(text)

    monkeypatch.setattr(failures, "hint", counted)
    same = [f"slot release: id 0 | task {task} | n_past = 70, truncated = 0" for task in range(500)]
    found = diagnose([*same, "error: could not find ggml-hip.dll"], numbers=False)
    assert len(asked) < 30
    assert found.findings[0].kind == "engine-incomplete"
