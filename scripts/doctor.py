"""Write the table of docs/doctor.md from the rules.

python scripts/doctor.py          write it
python scripts/doctor.py --check  exit 1 if it is not what this would write
"""

from __future__ import annotations

import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs/doctor.md"
START, END = "<!-- rules: written by scripts/doctor.py -->\n", "<!-- end -->"
BEYOND = "Kinds beyond the vocabulary of public reports:\n"


def table() -> str:
    """One row per rule, in the order of the vocabulary."""
    from kvwise.diagnose.rules import RULES
    from kvwise.diagnose.titles import TITLES, VOCABULARY

    lines = [_head()]
    for kind, title in TITLES.items():
        if kind == list(TITLES)[len(VOCABULARY)]:
            lines += ["", BEYOND, _head()]
        for rule in (each for each in RULES if each.kind == kind):
            memory = (rule.pool or "yes") if rule.memory else "no"
            flags = [flag for remedy in rule.remedies for flag in remedy.flags]
            told = ", ".join(f"`{flag}`" for flag in dict.fromkeys(flags)) or ""
            lines.append(f"| `{kind}` | {rule.name} | {title} | {memory} | {told} |")
    return "\n".join(lines) + "\n"


def _head() -> str:
    return "| kind | rule | what it is | memory | flags that help |\n|---|---|---|---|---|"


def main() -> int:
    text = PAGE.read_text("utf-8")
    start, end = text.index(START) + len(START), text.index(END)
    new = f"{text[:start]}\n{table()}\n{text[end:]}"
    if new == text:
        return 0
    if "--check" in sys.argv[1:]:
        print("docs/doctor.md is not up to date: run scripts/doctor.py")
        return 1
    PAGE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
