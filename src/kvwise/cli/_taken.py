"""What a verification saw the driver take beside the buffers: kept for later, and said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import show

if TYPE_CHECKING:
    from kvwise.unaccounted import Load
    from kvwise.verify import Verification


def remember_taken(printer: Printer, verification: Verification) -> tuple[Load, ...]:
    """Keep it, load by load; a folder that cannot be written is only remarked."""
    from kvwise.unaccounted import remember  # noqa: PLC0415
    from kvwise.verify.taken import taken_beside  # noqa: PLC0415

    ledger = verification.measured
    if ledger is None or not ledger.devices:
        return ()
    found = [
        each
        for attempt in verification.attempts
        if attempt.memory is not None and not attempt.failed
        for each in taken_beside(ledger, attempt.memory.cards)
    ]
    try:
        return remember(found, verification.engine)
    except OSError as error:
        printer.remark(phrase("what the driver took is not kept: {why}", why=str(error)))
        return ()


def show_taken(printer: Printer, kept: tuple[Load, ...]) -> None:
    """The most of each device, in a line."""
    most: dict[str, int] = {}
    for load in kept:
        most[load.key.name] = max(load.taken_bytes, most.get(load.key.name, 0))
    for name, size in most.items():
        printer.text(
            phrase(
                "{size} beside the buffers on {name}: kept, and counted from now on with this "
                "driver and engine",
                size=show(size),
                name=name,
            ),
            "dim",
        )


def taken_json(kept: tuple[Load, ...]) -> list[dict[str, Any]]:
    """`remembered` of kvwise/verify/1."""
    return [
        {
            "device": load.key.name,
            "kind": load.key.kind,
            "index": load.key.index,
            "taken_bytes": load.taken_bytes,
            "driver": load.key.driver,
        }
        for load in kept
    ]
