"""Memory by context of a model that was measured, from its header where it still lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.plan.quality import PAIRS
from kvwise.report.charts.contexts import Curve
from kvwise.results import Measurement, fingerprint

_LEAST, _MOST_POINTS = 2048, 8
_USUAL = 32768


def curves_here(found: Measurement) -> list[Curve]:
    """A curve per pair of cache types; none where the file is gone or has changed."""
    if not Path(found.model.path).is_file():
        return []
    try:
        model = describe(open_header(found.model.path))
        if fingerprint(model.header) != found.model.fingerprint:
            return []
        return list(_curves(model, found))
    except KvwiseError:
        return []


def _curves(model: Model, found: Measurement) -> Iterator[Curve]:
    devices = [
        Device(each.name, each.backend, each.total_bytes, each.total_bytes, index)
        for index, each in enumerate(found.machine.devices)
    ]
    for type_k, type_v in PAIRS:
        points = []
        for n_ctx in _lengths(model):
            launch = Launch(n_ctx=n_ctx, type_k=type_k, type_v=type_v, flash_attn="on", fit=False)
            try:
                ledger = account(model, launch, devices)
            except KvwiseError:
                break
            lines = [line for line in ledger.lines if not line.host] or [ledger.host]
            points.append((ledger.context.n_ctx, sum(line.total_bytes for line in lines)))
        yield Curve(f"{type_k}/{type_v}", tuple(dict.fromkeys(points)))


def _lengths(model: Model) -> Sequence[int]:
    """Doubles up to what the model was trained for."""
    most = model.n_ctx_train or _USUAL
    lengths = [_LEAST << step for step in range(_MOST_POINTS) if _LEAST << step <= most]
    return lengths or [most]
