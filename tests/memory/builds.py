"""Figures that tools of other builds printed (tests/zoo/BUILD.json.gz) beside ours.

    python tests/memory/builds.py BUILD [--worst] [MODEL or ARCHITECTURE ...]

Every printed figure counts once: weights and context per device (whole MiB, cut off), compute per
device and the output buffer (0.01 MiB).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from kvwise.arch import describe
from kvwise.engine.printed import Printed, Total
from kvwise.errors import KvwiseError, Refused
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger, Line
from oracle.measure_build import asked, described, recorded

Row = dict[str, Any]
Figure = tuple[str, str, Total, int, bool]
"""Part, device, what was printed, our bytes, whether we call them exact."""


def measured(build: str, names: list[str]) -> Iterator[tuple[str, Model, Row, Row]]:
    """Model by model: name, model, configuration, what was said."""
    for name, rows in recorded(build)["models"].items():
        model = describe(open_header(str(described(name))))
        if names and name not in names and model.architecture not in names:
            continue
        for row in rows:
            yield name, model, row["config"], row["said"]


def predicted(model: Model, config: Row, build: str) -> Ledger:
    launch, devices = asked(config, build)
    return account(model, launch, devices, compute_mode="no-alloc")


def figures(said: Row, ledger: Ledger) -> Iterator[Figure]:
    """All figures of a configuration."""
    for line in ledger.lines:
        device = "Host" if line.host else line.buffer
        exact = line.basis["compute"] == "computed"
        compute = tuple(Printed.parse(text) for text in said["compute"].get(device, ()))
        if compute or line.compute_bytes:
            yield "compute", device, Total(compute), line.compute_bytes, exact
        yield "weights", device, _whole(said["weights"], device), line.weights_bytes, True
        yield "context", device, _whole(said["context"], device), line.context_bytes, True
    output = tuple(Printed.parse(text) for text in said["output"])
    yield "output", "Host", Total(output), _host(ledger).output_bytes, True


def _whole(units: dict[str, int], device: str) -> Total:
    return Total((Printed.parse(str(units.get(device, 0)), cut=True),))


def _host(ledger: Ledger) -> Line:
    return next(line for line in ledger.lines if line.host)


def outcome(model: Model, config: Row, said: Row, build: str) -> list[tuple[str, str]]:
    """(part, verdict) of every figure: `same`, or what is wrong; refusals are one figure."""
    try:
        ledger = predicted(model, config, build)
    except Refused as why:
        return [("refusal", "same" if _refused_alike(said, why.code) else f"ours {why.code}")]
    except KvwiseError as why:
        return [("refusal", f"ours {why}")]
    if "failed" in said or "refused" in said:
        return [("refusal", f"theirs {said.get('refused') or said.get('failed')}")]
    found = []
    for part, device, printed, size, exact in figures(said, ledger):
        verdict = "same"
        if not printed.agrees(size):
            told = f"{printed.mib:.2f} ours {size / 2**20:.3f}"
            verdict = f"{device} {told}{'' if exact else ' estimated'}"
        found.append((part, verdict))
    return found


def _refused_alike(said: Row, code: str) -> bool:
    """An engine that stopped on an assertion, or died, refused too."""
    return said.get("refused") in {code, "internal_abort"} or "failed" in said


def main(build: str, names: list[str], *, worst: bool) -> None:
    """The counts, and with `worst` every figure that differs."""
    count: Counter[str] = Counter()
    for name, model, config, said in measured(build, names):
        for part, verdict in outcome(model, config, said, build):
            count[part] += 1
            count[part + " same"] += verdict == "same"
            if worst and verdict != "same":
                print(name, part, verdict, config, flush=True)
    for part in ("weights", "context", "compute", "output", "refusal"):
        print(part, count[part + " same"], "of", count[part])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments[0], [a for a in arguments[1:] if a[0] != "-"], worst="--worst" in arguments)
