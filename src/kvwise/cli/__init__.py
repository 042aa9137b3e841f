"""The command line: one file per command, loaded only when asked for.

A file of this folder whose name has no leading underscore is a command, `output.py` apart:
it defines `command`. `_NAME.py` files serve several commands.
"""

from __future__ import annotations

from kvwise import _interrupt


def main() -> None:
    """Entry point of `kvwise`."""
    import sys  # noqa: PLC0415

    code = 130
    try:
        try:
            from kvwise.cli._main import run  # noqa: PLC0415

            _interrupt.as_error()
            code = run(sys.argv[1:])
        finally:
            _interrupt.at_once()
    except KeyboardInterrupt:  # again, while the first one was told
        code = 130
    raise SystemExit(code)
