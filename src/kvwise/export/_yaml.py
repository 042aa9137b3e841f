"""YAML that keeps the comments, the order and the quotes of a file that is already there."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from io import StringIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kvwise.errors import KvwiseError, SourceError

if TYPE_CHECKING:
    from ruamel.yaml import YAML

_PLAIN = re.compile(r"[A-Za-z_][\w./+-]*", re.ASCII)
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # YAML 1.1 reads them so
_MOST = 512 * 1024  # characters; the reader takes about 50,000 a second
_MOST_BRACKETS = 100
_DEEPEST = 60
_MOST_VALUES = 200_000  # aliases may stand for the same part a billion times


def _yaml() -> YAML:
    try:
        from ruamel.yaml import YAML  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise KvwiseError("reading and writing YAML needs the package ruamel.yaml",
                          hint="pip install 'kvwise[export]'") from error  # fmt: skip
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.allow_unicode = True
    return yaml


def load(text: str) -> Any:
    """The document; an empty one is None. Raises SourceError for what is no sound YAML."""
    yaml = _yaml()
    if len(text) > _MOST:
        raise SourceError("a settings file of {size:,} characters is too large", size=len(text))
    if _nesting(text) > _MOST_BRACKETS:  # the reader's time grows with its square
        raise SourceError("this YAML is nested too deeply")
    try:
        return yaml.load(text)
    except Exception as error:  # noqa: BLE001  (odd bytes end in any of a dozen errors there)
        raise SourceError("not sound YAML: {why}", why=_why(error)) from None


def _nesting(text: str) -> int:
    """The most brackets that are open at once, those in strings too."""
    steps = (1 if char in "[{" else -1 for char in text if char in "[]{}")
    return max(accumulate(steps, lambda depth, step: max(0, depth + step)), default=0)


def _why(error: Exception) -> str:
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    mark = getattr(error, "problem_mark", None)
    where = f" (line {mark.line + 1})" if mark else ""
    return " ".join(str(problem).split())[:200] + where


def mapping(text: str | None) -> MutableMapping[Any, Any]:
    """The document as a mapping that can be changed; a new one for nothing. Raises SourceError."""
    found = load(text or "")  # says what to install before anything of it is needed
    from ruamel.yaml.comments import CommentedMap  # noqa: PLC0415

    if found is None:
        return CommentedMap()
    if not isinstance(found, MutableMapping):
        raise SourceError("this YAML is a {kind}, not a table of keys",
                          kind=type(found).__name__)  # fmt: skip
    return found


def dump(document: Mapping[Any, Any], old: str | None) -> str:
    """The text of a document, indented as the old one was. Raises SourceError."""
    yaml = _yaml()
    mapping_indent, sequence_indent, offset = _indents(old or "")
    yaml.indent(mapping=mapping_indent, sequence=sequence_indent, offset=offset)
    if old is not None and old.lstrip("\ufeff").startswith("---"):
        yaml.explicit_start = True
    out = StringIO()
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        yaml.dump(document, out)
    except (YAMLError, RecursionError) as error:
        raise SourceError("not sound YAML: {why}", why=_why(error)) from None
    return out.getvalue()


def _indents(text: str) -> tuple[int, int, int]:
    """(of mappings, of sequences, of the dash in them), read off the first of each."""
    step = re.search(r"^[^\s#-][^\n]*:[ \t]*\n( {1,8})[^\s#-]", text, re.MULTILINE)
    dash = re.search(r"^( *)[^\s#-][^\n]*:[ \t]*\n( *)- ", text, re.MULTILINE)
    offset = len(dash[2]) - len(dash[1]) if dash else 2
    offset = min(max(offset, 0), 8)
    return len(step[1]) if step else 2, offset + 2, offset


def table(parent: MutableMapping[Any, Any], key: str) -> MutableMapping[Any, Any]:
    """The mapping under a key, made if absent or empty. Raises SourceError for anything else."""
    from ruamel.yaml.comments import CommentedMap  # noqa: PLC0415

    if parent.get(key) is None:
        parent[key] = CommentedMap()
    found = parent[key]
    if not isinstance(found, MutableMapping):
        raise SourceError("{key} is a {kind}, not a table of keys",
                          key=key, kind=type(found).__name__)  # fmt: skip
    return found


def text(value: str) -> str:
    """A string that YAML 1.1 and 1.2 both read as this string."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString  # noqa: PLC0415

    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted: str = DoubleQuotedScalarString(value)
    return quoted


def block(value: str) -> str:
    """A string of several lines, one under the other."""
    from ruamel.yaml.scalarstring import LiteralScalarString  # noqa: PLC0415

    lines: str = LiteralScalarString(value)
    return lines


def plain(value: Any) -> Any:
    """The values of a document as Python's own types.

    Raises SourceError for one that is nested without end or grows without end by its aliases.
    """
    return _plain(value, 0, [0])


def _plain(value: Any, depth: int, count: list[int]) -> Any:
    count[0] += 1
    if depth > _DEEPEST or count[0] > _MOST_VALUES:
        raise SourceError("this YAML is nested too deeply")
    if isinstance(value, Mapping):
        return {str(key): _plain(each, depth + 1, count) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1, count) for each in value]
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return str(value)
