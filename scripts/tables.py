"""Write the output of every command in docs/tables.md anew.

python scripts/tables.py          write the page
python scripts/tables.py --check  exit 1 if the page is not what this would write

A block that begins with `$ kvwise ...` holds the command and what it prints; models are the
headers of tests/zoo/models, named without their folder.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/tables.md"
MODELS = ROOT / "tests/zoo/models"
_BLOCK = re.compile(r"```console\n\$ kvwise (.*?[^\\])\n(.*?)```", re.DOTALL)


def page(text: str) -> str:
    """The page with the output of today."""
    return _BLOCK.sub(lambda block: f"```console\n$ kvwise {block[1]}\n{_run(block[1])}```", text)


def _run(line: str) -> str:
    from kvwise.cli._main import run

    words = [
        str(MODELS / word) if word.endswith(".json.gz") else word
        for word in shlex.split(line.replace("\\\n", " "))
    ]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
        run([*words, "--lang", "en", "--color", "never"])
    return out.getvalue().replace(f"{MODELS}/", "")


def main() -> int:
    old = PAGE.read_text("utf-8")
    new = page(old)
    if old == new:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.relative_to(ROOT)} is not up to date: run scripts/tables.py")
        return 1
    PAGE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
