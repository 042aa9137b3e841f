"""Writes docs/accuracy.md from what was compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from runs import Run
from tally import PARTS, Tally, total

from reports import Line
from zoo import Compared

HEAD = """\
# Accuracy

What kvwise computes from a model's header, beside what llama.cpp itself says and does. This page is
written by one command; nobody edits it:

```
{command}
```

## How it was measured

A figure is *exact* when it is the same number of bytes, or, where the engine prints it rounded (to
0.01 MiB, or to whole MiB, cut off), when it would print the same. It is *within* when it is off by
no more than 2 % or 4 MiB, whichever is more, and *below* when it is short by more than 1 % and
2 MiB: that is the direction that costs a failed start. A host's buffers are one figure. Figures
that are zero on both sides are not counted. *Estimated* counts those that kvwise itself gives only
as an upper estimate, because it does not know the model's graph.

* **b10605, no-alloc**: the pass behind `--fit` of build b10605, in bytes, over `tests/zoo/golden`:
  {golden} configurations of {golden_models} models.
* **b11549, no-alloc**: the same of build b11549, as it prints it, over `tests/zoo/b11549.json.gz`:
  {other} configurations of {other_models} models.
* **b10605, reserved**: what b10605 really reserved on GPUs that own no memory
  (`tests/graphs/measured-real.json.gz`): {real} configurations of {real_models} models.
* **b10605, pins**: what models of full size reserve where it need not be what the pass shows
  (several GPUs, the cache on the host), from a simulation that agreed with all of the line above
  (`tests/graphs/real-compute.json.gz`): {pins} configurations of {pins_models} models.
* **b10605, drafts** and **b11549, drafts**: {drafts} pairs of a target and a draft that only works
  beside it (MTP layers, too), really loaded with holes for weights and given a prompt, in
  {drafted} settings on a processor and on GPUs that own no memory (`tests/memory/drafts.json.gz`);
  figures of both, as the log has them. They count as the draft's architecture.
* **real loads**: `kvwise verify`; the model is loaded and answers a prompt.
* **logs**: other people's llama.cpp, of other builds and backends (`tests/reports`).

Weights, caches and output are compared where that truth has them; compute everywhere. The zoo's
models are headers without weights, so that even a 671B model can be asked about on a laptop.

The rules were written with these models at hand. That they are exact here says that they are
llama.cpp's own; it says less about an architecture that nobody has looked at, whose compute buffers
kvwise calls estimated.
"""


_BY_ARCHITECTURE = """\
Exact figures of all figures; one number where all are exact. *Worst* is computed minus true.
"""

_COMPUTE = """\
Compute buffers need the whole header, so they are predicted only where a model of the zoo has every
hyperparameter that the log printed. Most of these builds are older than those whose rules kvwise
has (masks in f32, other graphs) or run on backends that it does not know (CANN, Hexagon): the rules
of b10605 do not claim them. A build reserves a row of logits for each slot, or all rows; both are
shown.
"""


def write(
    command: str,
    sources: dict[str, Compared],
    lines: Sequence[Line],
    unlike: dict[str, str],
    runs: Sequence[Run],
) -> str:
    """The page. `sources` by the names of the table above."""
    golden, other, real, pins, *beside = sources.values()
    parts = [
        HEAD.format(
            command=command,
            golden=f"{golden.configurations:,}",
            golden_models=_models(golden),
            other=f"{other.configurations:,}",
            other_models=_models(other),
            real=f"{real.configurations:,}",
            real_models=_models(real),
            pins=f"{pins.configurations:,}",
            pins_models=_models(pins),
            drafts=len({name for each in beside for mine in each.models.values() for name in mine}),
            drafted=sum(each.configurations for each in beside),
        ),
        "## In short\n",
        _summary(sources),
        *_refused(sources),
        *_runs(runs),
        *_reports(lines, unlike),
        "## By architecture\n",
        _BY_ARCHITECTURE,
    ]
    for name, source in sources.items():
        parts += [f"### {name}\n", _by_architecture(source)]
    return "\n".join(parts)


def _models(source: Compared) -> int:
    return sum(len(names) for names in source.models.values())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: int = 1) -> str:
    rule = ["---"] * right + ["--:"] * (len(heads) - right)
    lines = [heads, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _percent(count: int, of: int) -> str:
    if not of:
        return ""
    if count == of:
        return "100 %"
    return f"{min(100 * count / of, 99.99):.2f} %"


def _summary(sources: dict[str, Compared]) -> str:
    rows = []
    for name, source in sources.items():
        for part in PARTS:
            each = total(source.tallies, part)
            if each.cells:
                rows.append(
                    [
                        name,
                        part,
                        f"{each.cells:,}",
                        _percent(each.exact, each.cells),
                        _percent(each.within, each.cells),
                        f"{each.under:,}",
                        f"{each.estimated:,}",
                        _worst(each),
                    ]
                )
    heads = ["truth", "part", "figures", "exact", "within", "below", "estimated", "worst"]
    return _table(heads, rows, 2)


def _worst(each: Tally) -> str:
    if not each.worst:
        return "none"
    return f"{each.worst_text} ({each.worst_where})"


def _refused(sources: dict[str, Compared]) -> Iterator[str]:
    yield "What llama.cpp refuses:\n"
    for name, source in sources.items():
        if source.refusals:
            yield (
                f"* {name}: {source.refusals_right:,} of {source.refusals:,} configurations that "
                "one side refuses are refused by both, for the same reason where one is said."
            )
        if source.skipped:
            yield f"* {name}: {source.skipped} configurations were left out: {_WHY[name]}."
    yield ""


_WHY = {
    "b10605, no-alloc": "their repacked weights depend on the processor",
    "b11549, no-alloc": "the engine itself stops without a reason",
}


def _runs(runs: Sequence[Run]) -> Iterator[str]:
    if not runs:
        return
    yield "## Real loads\n"
    builds = Counter((run.engine, run.build) for run in runs)
    for engine, build in builds:
        mine = [run for run in runs if (run.engine, run.build) == (engine, build)]
        loads = {(run.model, run.settings) for run in mine}
        models = ", ".join(sorted({run.model for run in mine}))
        yield f"{engine} ({build}), {len(loads)} settings of {models}, on a processor:\n"
        rows = []
        for kind in dict.fromkeys(run.kind for run in mine):
            lines = [run for run in mine if run.kind == kind]
            exact = sum(run.exact for run in lines)
            said = sum(run.simulated is not None for run in lines)
            wrong = sum(run.misjudged for run in lines)
            rows.append([kind, str(len(lines)), _percent(exact, len(lines)), str(said), str(wrong)])
        heads = ["part", "lines", "exact", "also simulated", "of these the engine's pass wrong"]
        yield _table(heads, rows)
        for run in mine:
            if not run.exact:
                yield (
                    f"* {run.model} {run.settings}: {run.kind} {run.name} computed "
                    f"{run.computed}, printed {run.printed}"
                )
    yield ""


def _reports(lines: Sequence[Line], unlike: dict[str, str]) -> Iterator[str]:
    yield "## Other people's logs\n"
    sized = [line for line in lines if len(line.computed) == 1]
    compute = [line for line in lines if len(line.computed) > 1]
    reports = {line.report for line in sized}
    yield (
        f"Caches, states and output buffers that {len(reports)} logs printed, from the "
        f"hyperparameters beside them: {sum(line.same for line in sized)} of {len(sized)} would "
        "print the same.\n"
    )
    for line in sized:
        if not line.same:
            yield (
                f"* {line.report} ({line.build}): {line.what} printed {line.printed}, "
                f"computed {line.computed[0]:.2f}"
            )
    for name, why in unlike.items():
        yield f"* not compared: {name}, {why}"
    yield ""
    yield _COMPUTE
    rows = [
        [
            line.report, line.build, line.what.removeprefix("compute "), f"{line.printed:,.2f}",
            *(f"{size:,.2f}" for size in line.computed), "yes" if line.same else "",
        ]
        for line in compute
    ]  # fmt: skip
    heads = ["log", "build", "buffer", "printed MiB", "a row per slot", "all rows", "same"]
    yield _table(heads, rows, 3)


def _by_architecture(source: Compared) -> str:
    used = [part for part in PARTS if total(source.tallies, part).cells]
    rows = []
    for architecture in sorted(source.models):
        each = {part: source.tallies.get((architecture, part), Tally()) for part in used}
        worst = max(each.values(), key=lambda tally: abs(tally.worst))
        rows.append(
            [
                architecture,
                str(len(source.models[architecture])),
                *(_exact(each[part]) for part in used),
                worst.worst_text,
            ]
        )
    return _table(["architecture", "models", *used, "worst"], rows)


def _exact(each: Tally) -> str:
    if each.exact == each.cells:
        return f"{each.cells:,}" if each.cells else ""
    return f"{each.exact:,} of {each.cells:,}"
