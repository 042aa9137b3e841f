"""Values of options that set no field of `Launch` and are only passed on."""

from __future__ import annotations

from kvwise.launch import Launch
from kvwise.options.kinds import OVERRIDES
from kvwise.options.row import EVERY
from kvwise.options.table import spellings


def values(launch: Launch, flag: str) -> tuple[str, ...]:
    """The value of every mention of an option; `flag` is any of its spellings."""
    known = spellings(launch.tool) if launch.tool in EVERY else {}
    wanted = known.get(flag)
    found: list[str] = []
    at = 0
    while at < len(launch.extra):
        option = known.get(launch.extra[at])
        takes = option.kind_in(launch.tool).takes if option else 0
        if option is not None and option is wanted:
            found += launch.extra[at + 1 : at + 1 + takes]
        at += 1 + takes
    return tuple(found)


def number(launch: Launch, flag: str, default: int) -> int:
    """The whole number behind an option, or the default."""
    given = values(launch, flag)
    return int(given[-1]) if given else default


def has(launch: Launch, flag: str) -> bool:
    """Whether this very spelling is passed on (`--no-mmproj-offload`)."""
    return flag in launch.extra


def adapters(launch: Launch) -> tuple[str, ...]:
    """Paths of the LoRA adapters, in the order in which the engine loads them.

    Source: common/arg.cpp `--lora` and `--lora-scaled`, b10605.
    """
    plain = [path for text in values(launch, "--lora") for path in text.split(",")]
    scaled = [part for text in values(launch, "--lora-scaled") for part in text.split(",")]
    return tuple(path for path in (*plain, *(each.rpartition(":")[0] for each in scaled)) if path)


def draft_overrides(launch: Launch) -> tuple[tuple[str, str], ...]:
    """(pattern, buffer type) of `-otd`. Raises UsageError."""
    rows: list[tuple[str, str]] = []
    for text in values(launch, "-otd"):
        read: tuple[tuple[str, str], ...] = OVERRIDES.read(text)
        rows += read
    return tuple(rows)
