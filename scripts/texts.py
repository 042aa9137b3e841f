"""Collect every sentence that kvwise can say, and compile the translations.

    python scripts/texts.py          write src/kvwise/locale/*/LC_MESSAGES/kvwise.{po,mo}
    python scripts/texts.py --check  exit 1 if they are not what this would write

A sentence is a template given to `phrase`, `template`, an error class or another maker, stands
under a keyword that holds words (`hint=`, `help=`), or in a variable of NAMES. Both files are
committed, so that an editable install and a wheel speak Chinese without a build step; a test
runs `--check`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/kvwise"
LOCALES = ("zh_CN",)
MAKERS = {"phrase": 0, "Phrase": 0, "template": 0, "make_command": 0, "Setting": 1, "_fixed": 1,
          "Start": 6, "remedy": 0}  # fmt: skip
"""Function -> which argument is a sentence."""
OF_ARCH = {"lie": 0, "need": 1}
"""Methods of `arch.draft.Draft`, which puts PREFIX before what it is given."""
PREFIX = "{architecture} model: "
KEYWORDS = {"hint", "help", "why"}
NAMES = {"hint", "why", "rule", "sentence", "_HINT", "_NOTES", "_SENTENCES", "_STAND_IN", "_UNSEEN"}
"""Variables (or tables) whose strings are sentences."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # a fixed date: the files change only with their words

Found = tuple[str, str]  # sentence, file


def sentences() -> list[Found]:
    """Every sentence of the package with the file it was first seen in, in a fixed order."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    makers = MAKERS | _error_classes(trees.values())
    seen: dict[str, str] = {}
    for path, tree in trees.items():
        own = OF_ARCH if path.parent.name == "arch" else {}
        for sentence in _of_tree(tree, makers, own):
            if any(char.isalpha() for char in sentence):
                seen.setdefault(sentence, path.relative_to(ROOT).as_posix())
    return list(seen.items())


def _error_classes(trees: object) -> dict[str, int]:
    """Names of the KvwiseError classes -> position of the template among their arguments."""
    bases = {}
    for tree in trees:  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def position(name: str, depth: int = 0) -> int | None:
        if name in {"KvwiseError", "Refused"}:
            return 1 if name == "Refused" else 0
        found = [position(base, depth + 1) for base in bases.get(name, ()) if depth < 9]
        return next((each for each in found if each is not None), None)

    return {name: at for name in bases if (at := position(name)) is not None}


def _of_tree(tree: ast.AST, makers: dict[str, int], own: dict[str, int]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node, makers)
            yield from _of_keywords(node)
            for text in _of_call(node, own):
                yield PREFIX + text
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if getattr(target, "id", "") in NAMES:
                yield from _constants(node.value)
            elif own and getattr(target, "id", "") == "what":
                yield from (PREFIX + text for text in _constants(node.value))


def _of_call(node: ast.Call, makers: dict[str, int]) -> Iterator[str]:
    function = node.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    position = makers.get(name)
    if position is not None and len(node.args) > position:
        for text in _constants(node.args[position]):
            yield from _paragraphs(text)


def _of_keywords(node: ast.Call) -> Iterator[str]:
    for keyword in node.keywords:
        if keyword.arg in KEYWORDS:
            for text in _constants(keyword.value):
                yield from _paragraphs(text)


def _constants(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _constants(node.body)
        yield from _constants(node.orelse)
    elif isinstance(node, ast.BoolOp | ast.Dict):
        for value in node.values:
            yield from _constants(value)


def _paragraphs(text: str) -> Iterator[str]:
    """Help of several paragraphs is translated paragraph by paragraph, on one line each."""
    if "\n\n" not in text:
        yield text
        return
    for paragraph in text.split("\n\n"):
        yield " ".join(paragraph.split())


def catalogue(locale: str) -> Catalog:
    """The catalogue of a locale: today's sentences with the translations there are."""
    path = po_path(locale)
    old = read_po(BytesIO(path.read_bytes()), locale) if path.exists() else Catalog(locale)
    new = Catalog(
        locale,
        domain="kvwise",
        project="kvwise",
        fuzzy=False,
        creation_date=EPOCH,
        revision_date=EPOCH,
        header_comment="# Texts of kvwise.",
    )
    for sentence, file in sentences():
        known = old.get(sentence)
        new.add(sentence, known.string if known else "", locations=[(file, None)])
    return new


def po_path(locale: str) -> Path:
    return SOURCE / "locale" / locale / "LC_MESSAGES/kvwise.po"


def rendered(locale: str) -> dict[Path, bytes]:
    """File -> what it should hold."""
    made = catalogue(locale)
    po, mo = BytesIO(), BytesIO()
    write_po(po, made, width=100, sort_by_file=False, include_lineno=False)
    write_mo(mo, made)
    path = po_path(locale)
    return {path: po.getvalue(), path.with_suffix(".mo"): mo.getvalue()}


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = 0
    for locale in LOCALES:
        for path, content in rendered(locale).items():
            if path.exists() and path.read_bytes() == content:
                continue
            stale += 1
            if check:
                print(f"{path.relative_to(ROOT)} is not up to date: run scripts/texts.py")
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        missing = [message.id for message in catalogue(locale) if message.id and not message.string]
        for sentence in missing:
            print(f"{locale}: no translation: {sentence}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
