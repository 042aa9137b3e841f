"""The command line: one file per command, loaded only when asked for.

A file of this folder whose name has no leading underscore is a command, `output.py` apart:
it defines `command`. `_NAME.py` files serve several commands.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of `kvwise`."""
    import sys  # noqa: PLC0415

    try:
        from kvwise.cli._main import run  # noqa: PLC0415

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while loading, or again while stopping
        code = 130
    raise SystemExit(code)
