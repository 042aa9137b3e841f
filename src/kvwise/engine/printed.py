"""A size as an engine printed it: a decimal number of MiB, and the bytes it can stand for.

llama.cpp prints `bytes / 1024 / 1024` with 2 decimals (4 in its debug lines), rounded, and whole
MiB, cut off, in its breakdown and `--fit` lines. A printed size is therefore a range of bytes, and
a computed size agrees with it when it lies inside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvwise.units import MIB

_NUMBER = re.compile(r"(-?)(\d{1,15})(?:\.(\d{1,9}))?\Z", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Printed:
    """`units` / 10^`decimals` MiB; `cut` when the engine cut off instead of rounding."""

    units: int
    decimals: int = 2
    cut: bool = False

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Printed:
        """`45.00` -> Printed(4500, 2); raises ValueError for anything but a plain decimal."""
        match = _NUMBER.match(text)
        if not match:
            raise ValueError(text)
        fraction = match[3] or ""
        units = int(match[2] + fraction)
        return cls(-units if match[1] else units, len(fraction), cut)

    @property
    def _step(self) -> int:
        step: int = 10**self.decimals
        return step

    @property
    def low(self) -> int:
        """Fewest bytes that print like this."""
        step = self._step
        if self.cut:
            return -(-self.units * MIB // step)
        return -(-(2 * self.units - 1) * MIB // (2 * step))

    @property
    def high(self) -> int:
        """Most bytes that print like this. A tie counts for both neighbours: C libraries differ."""
        step = self._step
        if self.cut:
            return -(-(self.units + 1) * MIB // step) - 1
        return (2 * self.units + 1) * MIB // (2 * step)

    @property
    def bytes(self) -> int:
        """The middle of the range: what the printed number itself says, in bytes."""
        return (2 * self.units * MIB + self._step) // (2 * self._step)

    @property
    def mib(self) -> float:
        return self.units / self._step

    def agrees(self, size: int) -> bool:
        """Would `size` bytes print like this?"""
        return self.low <= size <= self.high

    def difference(self, size: int) -> int:
        """`size` minus what was printed, in bytes; 0 when it would print the same."""
        return 0 if self.agrees(size) else size - self.bytes

    def __str__(self) -> str:
        sign, digits = ("-" if self.units < 0 else ""), str(abs(self.units))
        if not self.decimals:
            return sign + digits
        digits = digits.rjust(self.decimals + 1, "0")
        return f"{sign}{digits[: -self.decimals]}.{digits[-self.decimals :]}"


@dataclass(frozen=True, slots=True)
class Total:
    """Several printed sizes that together are one amount: each was rounded on its own."""

    parts: tuple[Printed, ...] = ()

    @property
    def low(self) -> int:
        return sum(part.low for part in self.parts)

    @property
    def high(self) -> int:
        return sum(part.high for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def mib(self) -> float:
        return sum(part.mib for part in self.parts)

    def agrees(self, size: int) -> bool:
        """Can the parts, each rounded, make up `size` bytes?"""
        return self.low <= size <= self.high

    def difference(self, size: int) -> int:
        """`size` minus what was printed, in bytes; 0 when the two agree."""
        return 0 if self.agrees(size) else size - self.bytes

    def plus(self, part: Printed) -> Total:
        return Total((*self.parts, part))
