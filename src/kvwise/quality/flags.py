"""What stands out among settings that were measured together: K against V, quick but broken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvwise.results.record import Measurement
from kvwise.text import Phrase, phrase

_STRIKING = 2.0
"""How many times more one side must lose to be told."""
_RESOLVED = 3.0 * math.sqrt(2)
"""Standard errors of a divergence by which a loss must stand above the noise, and two losses apart:
the noise, and the other one, have about as large an error of their own."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One type on K alone and on V alone, everything else f16: divergence beyond the noise, nats.

    `resolved` = at least one of the two stands clear of the noise; `apart` = the two of each other.
    """

    type: str
    k_excess: float
    v_excess: float
    resolved: bool
    apart: bool

    @property
    def ratio(self) -> float | None:
        """How many times more K loses than V; None where V loses nothing that can be seen."""
        return self.k_excess / self.v_excess if self.v_excess > 0 else None

    @property
    def sentence(self) -> Phrase:
        """For people."""
        fields: dict[str, object] = {"type": self.type, "k": self.k_excess, "v": self.v_excess}
        if not self.resolved:
            return phrase("{type}: neither K nor V loses more than the noise hides", **fields)
        if self.apart and (self.ratio is None or self.ratio >= _STRIKING):
            return phrase(
                "{type} costs K more than V: divergence {k:.4f} against {v:.4f}; keep K wider",
                **fields,
            )
        if self.apart and self.ratio is not None and self.ratio <= 1 / _STRIKING:
            return phrase(
                "{type} costs V more than K: divergence {v:.4f} against {k:.4f}; keep V wider",
                **fields,
            )
        return phrase(
            "{type} costs K and V about the same: divergence {k:.4f} and {v:.4f}", **fields
        )


def sensitivity(found: Iterable[Measurement]) -> list[Sensitivity]:
    """For each type that was measured on K alone and on V alone, under otherwise equal settings."""
    seen: dict[tuple[str, str], dict[str, Measurement]] = {}
    for each in found:
        if each.kind != "fidelity" or each.state != "ok":
            continue
        type_k, type_v = each.settings.get("type_k"), each.settings.get("type_v")
        sides = {(type_k, "f16"): ("k", type_k), ("f16", type_v): ("v", type_v)}
        side = sides.get((type_k, type_v)) if type_k != type_v else None
        if side is not None and isinstance(side[1], str):
            seen.setdefault((_rest(each), side[1]), {})[side[0]] = each
    return [_pair(name, one) for (_, name), one in seen.items() if len(one) == 2]


def _rest(found: Measurement) -> str:
    """What must be equal for two measurements to be compared."""
    settings = {key: value for key, value in found.settings.items() if "type_" not in key}
    return str((found.engine, found.model.fingerprint, sorted(settings.items(), key=str),
                sorted(found.test.items(), key=str)))  # fmt: skip


def _pair(name: str, sides: Mapping[str, Measurement]) -> Sensitivity:
    excess = {side: _excess(each.figures) for side, each in sides.items()}
    errors = {side: float(each.figures.get("kl_mean_error") or 0.0) for side, each in sides.items()}
    clear = any(excess[side] > _RESOLVED * errors[side] and excess[side] > 0 for side in sides)
    apart = abs(excess["k"] - excess["v"]) > _RESOLVED * max(errors.values())
    return Sensitivity(name, excess["k"], excess["v"], clear, apart)


def _excess(figures: Mapping[str, Any]) -> float:
    return max(0.0, float(figures["kl_mean"]) - float(figures.get("noise_kl_mean") or 0.0))


def quick_but_broken(
    found: Iterable[Measurement], speeds: Mapping[tuple[str, str], float]
) -> list[Phrase]:
    """Settings whose speed looks fine (at least nine tenths of f16's) and whose quality is broken.

    `speeds` = tokens per second by (type_k, type_v), with ("f16", "f16") among them.
    """
    plain = speeds.get(("f16", "f16"))
    told = []
    for each in found:
        pair = (str(each.settings.get("type_k")), str(each.settings.get("type_v")))
        speed = speeds.get(pair)
        if plain and speed and speed >= 0.9 * plain and each.figures.get("verdict") == "broken":
            told.append(
                phrase(
                    "{k}/{v} is quick ({speed:.1f} tokens/s) and broken: do not use it",
                    k=pair[0],
                    v=pair[1],
                    speed=speed,
                )
            )
    return told
