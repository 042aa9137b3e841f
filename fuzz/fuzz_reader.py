"""Feed damaged headers and probes to their readers: anything but a named error is a find.

    python fuzz/fuzz_reader.py --runs 1000000                 a million executions, then a count
    python fuzz/fuzz_reader.py --target zoo --runs 1000000    the same for zoo JSON
    python fuzz/fuzz_reader.py --target probe --runs 200000   for the file of `--device-file`
    python fuzz/fuzz_reader.py --plain --runs 100000          without atheris (any platform)

What counts as a find: an exception that is not a KvwiseError, a sentence of more than one line,
an accepted header that the writer cannot give back, a probe that cannot be shown or planned with,
a run of more than ten seconds. Starts from tests/attacks and small headers of the zoo.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["kvwise"]) if atheris else contextlib.nullcontext():
    from kvwise.cli._probe_view import show_report
    from kvwise.cli.output import Printer
    from kvwise.device import Host
    from kvwise.errors import KvwiseError
    from kvwise.gguf.header import Header
    from kvwise.gguf.open import open_header
    from kvwise.gguf.reader import read_header
    from kvwise.gguf.source import BytesSource
    from kvwise.gguf.split import read_model
    from kvwise.gguf.writer import Entry, Row, encode, twin_entries
    from kvwise.gguf.zoo import read_zoo
    from kvwise.probe.advice import usable
    from kvwise.probe.document import document
    from kvwise.probe.remember import decoded
    from kvwise.probe.report import DeviceReport, Report
    from kvwise.units import pad

Check = Callable[[bytes], None]

ROOT = Path(__file__).resolve().parent.parent
SLOWEST = 10.0
LONGEST = 8192
REPORT_EVERY = 250_000

counts: Counter[str] = Counter()


def check_header(data: bytes) -> None:
    """One execution on the GGUF reader; raises for a find."""
    source = BytesSource(data, "fuzz-00001-of-00002.gguf", {"fuzz-00002-of-00002.gguf": data})
    try:
        header = read_model(source, arrays="all")
    except KvwiseError as error:
        _check_sentence(error)
        return
    counts["accepted"] += 1
    if not any(key.startswith("split.") for key in header.metadata):
        _check_round_trip(header)


def _check_round_trip(header: Header) -> None:
    rows = [Row(row.name, row.shape, row.type.id, row.offset) for row in header.tensors]
    data = encode(twin_entries(header), rows, version=header.version, byte_order=header.byte_order)
    again = BytesSource(data)
    again.size = pad(len(data), header.alignment) + sum(
        pad(row.nbytes, header.alignment) for row in header.tensors
    )
    read = read_header(again, arrays="all")
    # repr: a NaN is not equal to itself
    if read.tensors != header.tensors or repr(read.metadata) != repr(header.metadata):
        raise AssertionError("what was read and written again is not the same")


def check_zoo(data: bytes) -> None:
    """One execution on the zoo reader; raises for a find."""
    try:
        read_zoo(BytesSource(data, "fuzz.json"))
    except KvwiseError as error:
        _check_sentence(error)
        return
    counts["accepted"] += 1


def check_probe(data: bytes) -> None:
    """One execution on the reader of probes; raises for a find."""
    try:
        report = decoded(data, "fuzz.json")
    except KvwiseError as error:
        _check_sentence(error)
        return
    counts["accepted"] += 1
    for device in usable(report):
        free, block = device.free_bytes, device.max_block_bytes
        if not 0 <= free <= device.total_bytes or (block is not None and block < 0):
            raise AssertionError(f"impossible device: {device}")
    for language in ("en", "zh"):
        shown = io.StringIO()
        show_report(Printer(language=language, color="never", out=shown, err=shown), report)
        again = decoded(json.dumps(document(report, language)).encode(), "fuzz.json")
    if replace(again, host_limits=()) != replace(report, host_limits=()):
        raise AssertionError("what was read and written again is not the same")


def _check_sentence(error: KvwiseError) -> None:
    sentence = str(error)
    if "\n" in sentence or len(sentence) > 600 or not sentence:
        raise AssertionError(f"not one line: {sentence[:200]!r}") from error
    counts[error.kind] += 1


def seeds(target: str) -> list[bytes]:
    """Small sound and unsound inputs to start from."""
    zoo = sorted((ROOT / "tests" / "zoo" / "models").glob("tiny-*.json.gz"))[:12]
    if target == "probe":
        return probes()
    if target == "zoo":
        return [gzip.decompress(path.read_bytes()) for path in zoo[:4]]
    found = [path.read_bytes() for path in sorted((ROOT / "tests/attacks").rglob("*.gguf"))]
    for path in zoo:
        entries = twin_entries(open_header(str(path)))
        for order in ("little", "big"):
            rows = [Row("a.weight", (32, 2), 8, 0), Row("b.weight", (4,), 0, 96)]
            found.append(encode(entries[:20], rows, byte_order=order) + bytes(160))
    tokens = Entry("tokenizer.ggml.tokens", "[string]", ["a", "bc"] * 40)
    found.append(encode([tokens, Entry("x.pattern", "[bool]", [True, False])], []))
    return [data for data in found if len(data) <= LONGEST]


def probes() -> list[bytes]:
    """Sound documents with every field and some remarks."""
    card = DeviceReport(
        "NVIDIA GeForce RTX 4060", "cuda", outcome="measured", total_bytes=8188 << 20,
        free_bytes=7900 << 20, largest_block_bytes=5000 << 20, all_blocks_bytes=7800 << 20,
        blocks=(5000 << 20, 2800 << 20), spilled=False, driver_model="WDDM", sm_count=24,
        compute_capability="8.9", write_bytes_per_s=250 * 10**9, ceiling_bytes=7836 << 20,
        margin_bytes=256 << 20, card_free_bytes=7000 << 20, pci="0000:01:00.0", display=True,
    )  # fmt: skip
    card = card.noted("spilled", spilled_bytes=5, slow_rate=9, fast_rate=10**12)
    card = card.noted("driver", call="cuInit", error="3 X", meaning="no such device", number=3)
    card = card.noted("crashed", how="SIGSEGV", phase="allocate")
    host = Host(32 << 30, 20 << 30, 24 << 30)
    report = Report(datetime(2026, 1, 1, tzinfo=UTC), "linux", (card,), host)
    bare = {"devices": [{"total_bytes": 1 << 30}, {"total_bytes": 5, "backend": "vulkan"}]}
    return [json.dumps(document(report)).encode(), json.dumps(bare).encode()]


def timed(check: Check, data: bytes) -> None:
    counts["executions"] += 1
    began = time.monotonic()
    check(data)
    if time.monotonic() - began > SLOWEST:
        raise AssertionError("took too long")


def run_plain(check: Check, start: list[bytes], runs: int, seed: int) -> None:
    """Random damage to the seeds, for where atheris is not."""
    rng = random.Random(seed)  # noqa: S311
    for _ in range(runs):
        data = bytearray(rng.choice(start))
        if check is check_probe and rng.random() < 0.9:
            timed(check, twisted(bytes(data), rng))
            continue
        for _ in range(rng.randint(1, 8)):
            damage(data, rng)
        timed(check, bytes(data))


def twisted(data: bytes, rng: random.Random) -> bytes:
    """The same JSON with some values put in place of others, or of keys."""
    value = json.loads(data)
    for _ in range(rng.randint(1, 6)):
        place: Any = value
        while place:
            key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], dict | list) and rng.random() < 0.8:
                place = place[key]
                continue
            if isinstance(place, dict) and rng.random() < 0.1:
                place[rng.choice(WORDS)] = place.pop(key)
            else:
                place[key] = deepcopy(rng.choice(ODD))
            break
    return json.dumps(value).encode()


WORDS = ["", "total_bytes", "index", "notes", "values", "code", "free_bytes", "text", "{x}", "self"]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 5, 1 << 30, 1 << 40, 1 << 52, 1 << 53, 10**300, 1.5, 1e300, "",
    "x", "cuda", "vulkan", "metal", "measured", "failed", "spilled", "hung", "{x}", "{0}",
    "\u202e\n\x1b", "9" * 500, "WDDM", "2026-13-40", "0001-01-01T00:00:00+23:59", [], {}, [None],
    [[]], [1 << 40] * 9, {"code": "leak"}, {"values": {"left_bytes": "x"}},
    [{"code": "driver", "values": {"number": []}}],
]  # fmt: skip


def damage(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(5):
        case 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        case 1:
            data[at : at + 8] = rng.choice(EXTREMES)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + rng.randint(1, 16)]
        case _:
            data[at:at] = data[at : at + rng.randint(1, 64)]


CHECKS: dict[str, Check] = {"header": check_header, "zoo": check_zoo, "probe": check_probe}
EXTREMES = [
    value.to_bytes(8, order)
    for value in (0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
    for order in ("little", "big")
]


def report() -> None:
    """How many executions ran clean so far, and what they met."""
    print(f"{counts['executions']:,} executions clean")
    for kind, count in counts.most_common():
        if kind != "executions":
            print(f"  {kind:24} {count:>12,}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--target", choices=CHECKS, default="header")
    parser.add_argument("--plain", action="store_true", help="random damage, no atheris")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="keep what atheris finds interesting here")
    chosen = parser.parse_args()
    check = CHECKS[chosen.target]
    start = seeds(chosen.target)
    if chosen.plain or atheris is None:
        run_plain(check, start, chosen.runs, chosen.seed)
        report()
        return
    folder = chosen.corpus or Path(tempfile.mkdtemp(prefix="kvwise-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    for index, data in enumerate(start):
        (folder / f"seed-{index:03d}").write_bytes(data)
    options = [f"-runs={chosen.runs}", f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=600"]
    atheris.Setup(
        [sys.argv[0], *options, f"-seed={chosen.seed}", str(folder)], _counted(check, chosen.runs)
    )
    atheris.Fuzz()


def _counted(check: Check, runs: int) -> Check:
    """libFuzzer ends the process itself, so the report is due at the last execution."""

    def one(data: bytes) -> None:
        timed(check, data)
        if counts["executions"] % REPORT_EVERY == 0 or counts["executions"] == runs:
            report()

    return one


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
