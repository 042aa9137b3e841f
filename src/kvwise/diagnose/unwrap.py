"""A line as somebody kept it -> the lines as the engine wrote them.

Wrappers put JSON, colours, quote marks, time stamps and levels around a line, or run two lines
together. What is left is text in which the patterns of `kvwise.engine` are searched anywhere, so
prefixes that do not get in the way stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_LINE = 16 * 1024
"""Characters of a line that are looked at: nothing that engines say is longer."""

_TEXT_KEYS = ("log", "MESSAGE", "message", "msg", "line", "content", "text")
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07]{0,200}\x07|\[[0-9;]{1,6}m")
_QUOTED = re.compile(r"(?:\s{0,8}(?:>|&gt;|\|)\s?){1,6}(?=\S)")
_COMMA = re.compile(r"(?<=\d),(?=\d{1,4}\s{0,3}(?:[KMG]i?B|ms|tokens per second)\b)")
_ROUTER = re.compile(r"^\[(?:\d{2,7}|\d{4}-\d\d-\d\d [\d:]{8}\.\d{3,9})\]\s")
_OWN_PREFIX = re.compile(r"^\S.{0,160}?\s(?=\d{1,6}\.\d\d\.\d{3}\.\d{3} [IWEDT] )")
"""What a program put before the time and the level of the engine."""
_RUN_TOGETHER = re.compile(
    r"(?<=[^\s('\"\[/\\:=>._a-z-])"
    r"(?=(?:llama_[a-z_]{3,40}|ggml_[a-z_]{3,60}|llm_load_[a-z_]{3,40}|"
    r"load_tensors|sched_reserve|graph_reserve|print_info|alloc_tensor_range|"
    r"common_[a-z_]{3,40}|srv  |slot  ): )"
)  # fmt: skip


def unwrap(raw: str) -> Iterator[str]:
    """The engine's own lines in one kept line; usually one."""
    text = raw[:MAX_LINE]
    if text[:1] in "{[" or '{"' in text[:40]:
        inner = _from_json(text)
        if inner is not None:
            for line in inner.splitlines():
                yield from _pieces(line)
            return
    yield from _pieces(text)


def _pieces(text: str) -> Iterator[str]:
    if "\x1b" in text or "[0m" in text:
        text = _COLOUR.sub("", text)
    text = text.rstrip("\r\n ")
    quoted = _QUOTED.match(text) if text[:1] in " >|&" else None
    if quoted:
        text = text[quoted.end() :]
    if text[:1] == "[":
        text = _ROUTER.sub("", text)
    if not text[:1].isspace():
        text = _OWN_PREFIX.sub("", text)
    if "," in text and _COMMA.search(text):
        text = _COMMA.sub(".", text)
    if len(text) > 60 and _RUN_TOGETHER.search(text):
        yield from _RUN_TOGETHER.split(text)
    else:
        yield text


def _from_json(text: str) -> str | None:
    """The message inside a JSON line (docker json-file, journald, servers of 2024), or None."""
    start = text.find("{")
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return text[:start] + _said(value)


def _said(value: dict[str, Any]) -> str:
    for key in _TEXT_KEYS:
        said = value.get(key)
        if isinstance(said, str):
            rest = [
                f"{name}={other}"
                for name, other in value.items()
                if name != key and isinstance(other, str | int | float)
            ]
            if key == "log" or "function" not in value:
                return said if key in ("log", "MESSAGE") else " ".join([said, *rest])
            return " ".join([f"{value['function']}: {said}", *rest])
    inner = value.get("error")
    if isinstance(inner, dict):
        return "error: " + _said(inner) + " " + json.dumps(inner, separators=(",", ":"))
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
