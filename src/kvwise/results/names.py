"""The names in a measurement's `test` and `figures`, which reports and the planner read.

| in `test` | |
|---|---|
| metric | one of METRICS: what the samples are of |
| n_prompt, n_gen, depth | tokens that were read, generated, already in the context |

| in `figures` | |
|---|---|
| memory | `memory_of(...)`: bytes of each kind per buffer, predicted and measured |
| work | `work_of(...)`: what a token costs, for the speed model |
| kl_mean, kl_p99, kl_max | KL divergence from f16/f16, nats |
| noise_kl_mean | the same between two runs that should be equal: the model's own noise |
| noise_same_top | share of equal most likely successors between those two, 0 to 1 |
| same_top | share of tokens whose most likely successor stays, 0 to 1 |
| ppl_ratio | perplexity divided by that of f16/f16 |
| verdict | `lossless`, `high`, `medium`, `broken` |
| accepted_length, passes_per_1000 | of speculation: tokens per pass of the target; its passes |
| error | the engine's own words where it failed and no finding says why |
| same_text | whether speculation changed the text at temperature 0 |

A name that is unknown is unknown: it is left out, never 0.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from typing import Any

from kvwise.memory.ledger import Ledger, Line
from kvwise.plan.speed.measured import Measured

METRICS = ("decode", "prompt", "fidelity", "speculation", "embedding")

PARTS = ("weights_bytes", "context_bytes", "compute_bytes", "output_bytes", "overhead_bytes")
"""Kinds of memory, as `kvwise/ledger/1` has them in `buffers`."""


def memory_of(predicted: Ledger | None, measured: Ledger | None = None) -> dict[str, Any]:
    """Bytes per device of one or both ledgers: `{"predicted": [{"device", "host", PARTS...}]}`;
    those of a draft, a projector or an adapter count."""
    both = {"predicted": predicted, "measured": measured}
    return {
        name: [
            {"device": line.device or "", "host": line.host}
            | {part: _size(line, part) for part in PARTS}
            for line in ledger.lines
        ]
        for name, ledger in both.items()
        if ledger is not None
    }


def _size(line: Line, part: str) -> int:
    """One kind of memory on a device, what surely stands beside the model included."""
    beside = (extra for extra in line.extras if not extra.up_to)
    return int(getattr(line, part)) + sum(getattr(extra, part, 0) for extra in beside)


def total_of(rows: Any) -> dict[str, int]:
    """Bytes by kind over all devices of one side of `memory`; what nobody said, or said in another
    shape (a stranger's file), is left out."""
    found: dict[str, int] = {}
    for row in rows if isinstance(rows, list | tuple) else ():
        if not isinstance(row, dict):
            continue
        for part in PARTS:
            if isinstance(row.get(part), int):
                found[part] = found.get(part, 0) + row[part]
    return found


def work_of(ledger: Ledger, depth: int) -> dict[str, Any]:
    """What a token of this launch costs at a depth: the fields of `Measured` but for speeds."""
    work = asdict(Measured.of(ledger, depth))
    return {each.name: work[each.name] for each in fields(Measured) if each.default is MISSING}
