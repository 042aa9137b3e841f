"""What `--dry-run` prints of commands that were not run.

The embedded engine is started by a command of kvwise's own, which nobody could type: people are
shown what a llama-server would be told, and a document has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvwise.cli.output import Printer
from kvwise.engine.pretend import WouldRun
from kvwise.text import phrase

SCHEMA = "kvwise/dry-run/1"


def dry_run_json(would: Sequence[WouldRun], **more: Any) -> dict[str, Any]:
    """`commands` is what kvwise starts; where that is `internal`, `as_llama_server` is the same for
    a llama-server, else it is null."""
    return {
        "schema": SCHEMA,
        "commands": [list(each.argv) for each in would],
        "internal": any(each.shown for each in would),
        "as_llama_server": [list(each.shown) or None for each in would],
    } | more


def show_commands(printer: Printer, would: Sequence[WouldRun]) -> int:
    """All of them, ready to paste, or the document."""
    if printer.json:
        printer.document(dry_run_json(would))
        return 0
    if any(each.shown for each in would):
        text = phrase("the embedded engine is asked as this command of llama-server would be")
        printer.remark(text)
    for each in would:
        printer.text(str(each), "command")
    return 0


__all__ = ["SCHEMA", "dry_run_json", "show_commands"]
