"""Memory that was not free when the load began."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, VRAM, Hit, Rule
from kvwise.diagnose.rules.asking import failed, remedy, seen
from kvwise.diagnose.rules.remedies import (
    END_OLD,
    RESTART,
)
from kvwise.text import template

_MOSTLY_TAKEN = 0.5


def _taken_before(case: Case) -> Hit | None:
    """Most of a card is taken before the load begins, and the load then does not fit."""
    lines = failed(case) or case.all("fit", "gpu_oom")
    if not lines:
        return None
    for device in case.loaded.fit_devices:
        if device.total is None:
            continue
        free, total = device.used.mib + device.free.mib, device.total.mib
        if 0 <= free < _MOSTLY_TAKEN * total:
            fields = {"device": device.name, "free": f"{free:,.0f}", "total": f"{total:,.0f}"}
            return Hit(0.7, tuple(lines[:3]), fields, cause=_TAKEN)
    for row in case.loaded.breakdown:  # printed before the load: its own part is not taken yet
        if row.total and row.free and row.unaccounted and row.unaccounted.units < 0:
            free, total = row.free.mib, row.total.mib
            if free < _MOSTLY_TAKEN * total:
                fields = {"device": row.name, "free": f"{free:,.0f}", "total": f"{total:,.0f}"}
                return Hit(0.7, tuple(lines[:3]), fields, cause=_TAKEN)
    for name, free, total in _listed(case):
        if free < _MOSTLY_TAKEN * total:
            fields = {"device": name, "free": f"{free:,.0f}", "total": f"{total:,.0f}"}
            return Hit(0.7, tuple(lines[:3]), fields, cause=_TAKEN)
    return None


def _listed(case: Case) -> list[tuple[str, float, float]]:
    listed = [(each.name, each.free.mib, each.total.mib) for each in case.loaded.device_list]
    totals = [float(each.fields["mib"]) for each in case.all("vram_total")]
    if not listed and totals and len(case.loaded.devices) == 1:
        used = case.loaded.devices[0]
        listed = [(used.name, used.free.mib, max(totals))]
    return [each for each in listed if each[2] and not each[0].startswith("CPU")]


def _less_than_before(case: Case) -> Hit | None:
    """The load before this one in the same log had more free memory at its start."""
    before = case.before
    if before is None:
        return None
    had = {device.name: device.free.mib for device in before.loaded.devices}
    for device in case.loaded.devices:
        lost = had.get(device.name, 0) - device.free.mib
        took = sum(
            model.weights[device.name].mib
            for model in before.loaded.models
            if device.name in model.weights
        )
        if took and lost > 0.6 * took and lost > 512:
            fields = {"device": device.name, "free": f"{device.free.mib:,.0f}",
                      "before": f"{had[device.name]:,.0f}"}  # fmt: skip
            lines = failed(case) or case.all("fit")
            sure = 0.97 if lines else FAIR
            return Hit(sure, tuple(lines[:3]), fields, cause=_LESS)
    return None


_TAKEN = template(
    "only {free} of {total} MiB were free on {device} before the load began: another program, or a "
    "model that was loaded before and not released, holds the rest"
)
_LESS = template(
    "{device} had {free} MiB free at the start of this load and {before} MiB at the start of the "
    "one "
    "before: the memory of that one was not released"
)


RULES: tuple[Rule, ...] = (
    Rule(
        "not-recovered",
        "fit-after-leak",
        seen("vram_kept", confidence=0.9),
        template(
            "memory of the model before was not released in time, so this one saw less free "
            "memory than there is"
        ),
        (
            remedy("stop the process that holds the memory before the next load"),
            RESTART,
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "less-than-before",
        "fit-after-leak",
        _less_than_before,
        _LESS,
        (
            END_OLD,
            RESTART,
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "taken-before",
        "fit-after-leak",
        _taken_before,
        _TAKEN,
        (
            remedy("see what holds it: nvidia-smi, or kvwise probe"),
            END_OLD,
        ),
        memory=True,
        pool=VRAM,
    ),
)
