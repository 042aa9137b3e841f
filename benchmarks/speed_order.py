"""How well the speed model orders and brackets measured speeds.

    python benchmarks/speed_order.py                 public measurements (speed/rows.csv)
    python benchmarks/speed_order.py --here DIR      and runs on this machine with DIR/llama-bench

For every row the model, the card and the setting are described as a user would, without looking
at the measured value. Printed: Spearman's rank correlation, the share of pairs that differ by more
than 20 % and are ordered rightly, and the share of measured values inside the predicted range.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path

from kvwise.catalogue import device_of, find
from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.opening import open_model
from kvwise.plan.quants import QUANTS, requantized
from kvwise.plan.speed import Range, estimate

HERE = Path(__file__).parent
ZOO = HERE.parent / "tests/zoo/models"
CLEARLY = 1.2
ROOM = 1 << 40  # bytes: whether it fits is not the question here


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement and what was predicted for it."""

    use: str
    source: str
    device: str
    setting: str
    test: str
    measured: float
    predicted: Range

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high


@cache
def model(name: str, quant: str) -> Model:
    found = open_model(str(ZOO / f"{name}.json.gz"))
    return requantized(found, quant) if quant in QUANTS else found


@cache
def devices(name: str, backend: str, count: int) -> tuple[Device, ...]:
    gpu = find(name)
    one = device_of(gpu, os=None if gpu.vendor == "Apple" else "linux", backend=backend)
    roomy = replace(one, total_bytes=ROOM, free_bytes=ROOM)
    return tuple(replace(roomy, index=index) for index in range(count))


def public(path: Path) -> list[Row]:
    """The rows of the table, predicted."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row for row in map(predicted, rows) if row]


def predicted(row: dict[str, str]) -> Row | None:
    depth, tokens = int(row["depth"]), int(row["tokens"])
    words = ["-c", str(max(4096, depth + 4096)), "-ngl", "999", "-fa", "on", "-ub", row["ubatch"]]
    words += row["flags"].split()
    gpus = devices(row["gpu"], row["backend"], int(row["gpus"]))
    ledger = account(
        model(row["model"], row["quant"]), Launch.parse(words), gpus, compute_mode="none"
    )
    middle = depth + tokens // 2  # generated tokens see the context grow, prompts on average half
    if row["test"] == "tg":
        found = estimate(ledger, middle).decode
    else:
        found = estimate(ledger, 2 * middle).prompt
    if found is None:
        return None
    what = f"{row['model']} {row['quant']} {row['test']}{tokens}@{depth}"
    setting = f"{what} -ub {row['ubatch']} {row['flags']}".rstrip()
    name = f"{row['gpus']}x {row['gpu']} {row['backend']}" if gpus else "CPU"
    return Row(
        row["use"], row["source"], name, setting, row["test"], float(row["tokens_per_s"]), found
    )


# -- this machine ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of llama-bench: `tokens` of a prompt or generated, behind `depth` others."""

    model: Path
    threads: int
    kind: str
    depth: int
    test: str
    tokens: int

    def words(self, tool: Path, repetitions: int) -> list[str]:
        prompt, generated = (self.tokens, 0) if self.test == "pp" else (0, self.tokens)
        return [str(tool), "-m", str(self.model), "-t", str(self.threads), "-fa", "1",
                "-ctk", self.kind, "-ctv", self.kind, "-p", str(prompt), "-n", str(generated),
                "-d", str(self.depth), "-r", str(repetitions), "-ngl", "0",
                "-o", "jsonl"]  # fmt: skip


def here(tool: Path, models: Sequence[Path], threads: Sequence[int]) -> list[Row]:
    """llama-bench on this machine: threads, cache types and depths, predicted and measured.

    One thread is timed by the processor's clock, which other programs do not slow down; more of
    them by the wall's, the best of their repetitions: that needs a machine with nothing else to do.
    """
    found = []
    for path in models:
        for count, kind, depth, (test, tokens) in product(
            threads, ("f16", "q8_0", "q4_0"), (0, 1024), (("pp", 128), ("tg", 16))
        ):
            setting = Setting(path, count, kind, depth, test, tokens)
            took = _processor_time if count == 1 else _wall_time
            found.append(_predicted_here(setting, tokens / took(tool, setting)))
    return found


def _processor_time(tool: Path, setting: Setting) -> float:
    """Seconds of one repetition: what five take more than one, loading and depth left out."""
    from resource import RUSAGE_CHILDREN, getrusage

    taken = []
    for repetitions in (1, 5):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(setting.words(tool, repetitions), capture_output=True, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (taken[1] - taken[0]) / 4


def _wall_time(tool: Path, setting: Setting) -> float:
    words = setting.words(tool, 5)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    return setting.tokens / float(max(row["samples_ts"]))


def _predicted_here(setting: Setting, measured: float) -> Row:
    words = ["-c", "4096", "-fa", "on", "-ctk", setting.kind, "-ctv", setting.kind]
    ledger = account(open_model(str(setting.model)), Launch.parse(words), [], compute_mode="none")
    host = Host(ROOM, ROOM, cores=setting.threads)
    middle = setting.depth + setting.tokens // 2
    speed = estimate(ledger, middle if setting.test == "tg" else 2 * middle, host=host)
    got = (speed.decode if setting.test == "tg" else speed.prompt) or Range(0, 0)
    said = f"{setting.model.stem} {setting.kind} {setting.test}@{setting.depth}"
    return Row("here", "here", "CPU", f"{said} -t {setting.threads}", setting.test, measured, got)


# -- figures -----------------------------------------------------------------------


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation, ties at their mean rank."""
    one, other = ranks([a for a, _ in pairs]), ranks([b for _, b in pairs])
    mean = (len(pairs) + 1) / 2
    up = sum((a - mean) * (b - mean) for a, b in zip(one, other, strict=True))
    down = (sum((a - mean) ** 2 for a in one) * sum((b - mean) ** 2 for b in other)) ** 0.5
    return up / down if down else float("nan")


def ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    first = {value: order.index(value) + 1 for value in set(values)}
    count = {value: order.count(value) for value in first}
    return [first[value] + (count[value] - 1) / 2 for value in values]


def ordered(rows: Sequence[Row]) -> tuple[int, int]:
    """(pairs ordered rightly, pairs that differ by more than a fifth)."""
    right = clear = 0
    for one, other in combinations(rows, 2):
        if max(one.measured, other.measured) < CLEARLY * min(one.measured, other.measured):
            continue
        clear += 1
        faster = one.measured > other.measured
        right += faster == (one.predicted.middle > other.predicted.middle)
    return right, clear


def report(title: str, rows: Sequence[Row], key: Callable[[Row], str]) -> None:
    """Figures over all rows, and over pairs of one group."""
    if len(rows) < 2:
        for row in rows:
            print(f"{title}: {row.measured:g}, predicted {row.predicted}")
        return
    rho = spearman([(row.measured, row.predicted.middle) for row in rows])
    right, clear = ordered(rows)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    within = [ordered(each) for each in groups.values()]
    mine, all_of_them = (sum(each[at] for each in within) for at in (0, 1))
    inside = sum(row.inside for row in rows)
    width = sorted(row.predicted.high / row.predicted.low for row in rows)[len(rows) // 2]
    print(f"{title}: {len(rows)} rows, Spearman {rho:.3f}")
    print(f"  pairs that differ by > 20 %: {_share(right, clear)} ordered rightly")
    print(f"  of one group (source, or model and setting): {_share(mine, all_of_them)}")
    print(f"  inside the predicted range: {_share(inside, len(rows))}; median width x{width:.2f}")


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "none"


def outside(rows: Iterable[Row]) -> None:
    for row in rows:
        if not row.inside:
            low, high = row.predicted.low, row.predicted.high
            print(f"  {row.device}, {row.setting}: {row.measured:g}, predicted {low:.1f} to "
                  f"{high:.1f} ({row.source})")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", type=Path, help="folder with llama-bench")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a .gguf to run")
    parser.add_argument("--threads", default="1", help="thread counts to run, like 1,2")
    parser.add_argument("--outside", action="store_true", help="list what lies outside its range")
    asked = parser.parse_args()
    rows = public(HERE / "speed/rows.csv")
    for title, test, use in (
        ("generating, rows that the factors were set on", "tg", "set"),
        ("generating, rows that they were not", "tg", "check"),
        ("prompts, rows that the factors were set on", "pp", "set"),
        ("prompts, rows that they were not", "pp", "check"),
    ):
        own = [row for row in rows if row.test == test and row.use == use]
        report(title, own, lambda row: row.source)
        if asked.outside:
            outside(own)
    if asked.here:
        threads = [int(each) for each in asked.threads.split(",")]
        found = here(asked.here / "llama-bench", asked.model, threads)
        for title, test in (("generating", "tg"), ("prompts", "pp")):
            own = [row for row in found if row.test == test]
            report(f"here, {title}", own, lambda row: row.setting.split()[0])
            outside(own if asked.outside else [])
        for row in found:
            print(f"  {row.setting}: {row.measured:.1f}, predicted {row.predicted.low:.1f} to "
                  f"{row.predicted.high:.1f}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
