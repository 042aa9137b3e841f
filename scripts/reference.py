"""Write docs/reference/cli*.md from the commands' own help.

python scripts/reference.py          write the pages
python scripts/reference.py --check  exit 1 if they are not what this would write
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"en": "docs/reference/cli.md", "zh": "docs/reference/cli.zh-CN.md"}
TITLES = {"en": "Commands", "zh": "命令"}


def page(language: str) -> str:
    """The whole page: the group's help, then each command's."""
    from kvwise.cli._commands import CommandFolder

    names = CommandFolder().names()
    parts = [f"# {TITLES[language]}\n", _block("kvwise", _help([], language))]
    parts += [_block(f"kvwise {name}", _help([name], language)) for name in names]
    return "\n".join(parts)


def _block(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text.strip()}\n```\n"


def _help(words: list[str], language: str) -> str:
    from kvwise.cli._main import run

    os.environ["COLUMNS"] = "82"  # click leaves two free
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run([*words, "--help", "--lang", language])
    return out.getvalue()


def main() -> int:
    stale = 0
    for language, name in PAGES.items():
        path, content = ROOT / name, page(language)
        if path.exists() and path.read_text("utf-8") == content:
            continue
        stale += 1
        if "--check" in sys.argv[1:]:
            print(f"{name} is not up to date: run scripts/reference.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
