"""Sizes that grow with the context: numbers a * n + b whose n may still change.

A graph is built once with such numbers in place of the cells of a cache, and then holds for every
n for which all comparisons made on the way come out the same: `Variable` keeps that range. What
is not of this form (a product of two, an uneven division) raises `NotAffine`, and so does every
use as a plain number, because there is no conversion to int: nothing is ever rounded or forgotten.
"""

from __future__ import annotations

from typing import cast


class NotAffine(Exception):
    """The result is no number of the form a * n + b."""


class Variable:
    """n: its value for now, and the values for which all comparisons would come out the same.

    These are `low` to `high` (None: no limit) without `holes`.
    """

    __slots__ = ("high", "holes", "low", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.low = 1
        self.high: int | None = None
        self.holes: set[int] = set()

    def admits(self, value: int) -> bool:
        """Whether all comparisons come out the same for another value."""
        above = self.high is not None and value > self.high
        return value >= self.low and not above and value not in self.holes

    def times(self, step: int) -> int:
        """step * n, as the number that it pretends to be."""
        return cast(int, Affine(step, 0, self))

    def is_below_zero(self, step: int, start: int) -> bool:
        """step * n + start < 0, for `step` other than 0; narrows the range."""
        found = step * self.value + start < 0
        if (step > 0) == found:  # holds up to some n
            last = (-start - 1) // step if step > 0 else start // -step
            self.high = last if self.high is None else min(self.high, last)
        else:  # holds from some n on
            first = -(start // step) if step > 0 else start // -step + 1
            self.low = max(self.low, first)
        return found

    def is_zero(self, step: int, start: int) -> bool:
        """step * n + start == 0, for `step` other than 0; narrows the range."""
        root, rest = divmod(-start, step)
        if rest or root < 1:
            return False
        if root == self.value:
            self.low = self.high = root
            return True
        self.holes.add(root)
        return False


class Affine:
    """step * n + start, with `step` other than 0. Behaves like an int as far as it can."""

    __slots__ = ("of", "start", "step")

    def __init__(self, step: int, start: int, of: Variable) -> None:
        self.step = step
        self.start = start
        self.of = of

    def at(self, value: int) -> int:
        """The number for one n."""
        return self.step * value + self.start

    def __repr__(self) -> str:
        return f"{self.step}n{self.start:+}"

    def __bool__(self) -> bool:
        return not self.of.is_zero(self.step, self.start)

    # -- arithmetic -------------------------------------------------------------------------

    def _made(self, step: int, start: int) -> Affine | int:
        return Affine(step, start, self.of) if step else start

    def __add__(self, other: Affine | int) -> Affine | int:
        step, start = parts(other)
        return self._made(self.step + step, self.start + start)

    def __radd__(self, other: int) -> Affine | int:
        return self + other

    def __neg__(self) -> Affine | int:
        return self._made(-self.step, -self.start)

    def __sub__(self, other: Affine | int) -> Affine | int:
        step, start = parts(other)
        return self._made(self.step - step, self.start - start)

    def __rsub__(self, other: int) -> Affine | int:
        return self._made(-self.step, other - self.start)

    def __mul__(self, other: int) -> Affine | int:
        if not isinstance(other, int):
            raise NotAffine(f"{self} * {other}")
        return self._made(self.step * other, self.start * other)

    def __rmul__(self, other: int) -> Affine | int:
        return self * other

    def __floordiv__(self, other: int) -> Affine | int:
        if not isinstance(other, int) or self.step % other:
            raise NotAffine(f"{self} // {other}")
        return self._made(self.step // other, self.start // other)

    def __mod__(self, other: int) -> int:
        if not isinstance(other, int) or self.step % other:
            raise NotAffine(f"{self} % {other}")
        return self.start % other

    # -- comparisons ------------------------------------------------------------------------

    def __lt__(self, other: Affine | int) -> bool:
        step, start = parts(other)
        step, start = self.step - step, self.start - start
        return self.of.is_below_zero(step, start) if step else start < 0

    def __ge__(self, other: Affine | int) -> bool:
        return not self < other

    def __gt__(self, other: Affine | int) -> bool:
        step, start = parts(other)
        step, start = step - self.step, start - self.start
        return self.of.is_below_zero(step, start) if step else start < 0

    def __le__(self, other: Affine | int) -> bool:
        return not self > other

    def __eq__(self, other: object) -> bool:
        step, start = parts(other)
        step, start = self.step - step, self.start - start
        return self.of.is_zero(step, start) if step else start == 0

    __hash__ = None  # type: ignore[assignment]  # equal for some n, different for others


def parts(number: object) -> tuple[int, int]:
    """(step, start) of a number."""
    if isinstance(number, Affine):
        return number.step, number.start
    if isinstance(number, int):
        return 0, number
    raise NotAffine(f"{number!r} is no whole number")


class Unknown:
    """A figure that a graph has no business with: to look at it raises NotAffine."""

    __slots__ = ()

    def _refuse(self, *_: object) -> int:
        raise NotAffine("a figure that follows from the context")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = _refuse
    __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __index__ = __int__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise NotAffine("a figure that follows from the context")

    def __eq__(self, other: object) -> bool:
        raise NotAffine("a figure that follows from the context")


UNKNOWN = cast(int, Unknown())
