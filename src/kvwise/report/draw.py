"""Charts drawn by vl-convert: SVG that takes its colours from the page, PNG in those of light.

It needs no browser and no network; `pip install 'kvwise[report]'` brings it.
"""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from kvwise.errors import UsageError
from kvwise.report.document import Picture, word, worded
from kvwise.report.theme import CONFIG, LIGHT, SCHEMA, coloured, variables, with_colours

_MARK = re.compile(r'<(\w+) ([^>]*\brole="graphics-symbol"[^>]*)/>')
_IDS = re.compile(r'(\bid="|url\(#|href="#)')
_SAYS = re.compile(r'aria-label="([^"]*)"')
_CHINESE = re.compile(
    "cjk|wqy|hans|sourcehan|noto ?sans ?sc|droidsansfallback|uming|ukai|simsun|msyh|simhei|deng"
    "|pingfang|heiti|songti|lxgw", re.IGNORECASE,
)  # fmt: skip
_FONTS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")


def check() -> None:
    """Raises UsageError when charts cannot be drawn here."""
    if importlib.util.find_spec("vl_convert") is None:
        raise UsageError(
            "charts need vl-convert, which is not installed",
            hint="pip install 'kvwise[report]', or write .md, .csv or .json",
        )


def svg(picture: Picture, language: str, number: int = 0) -> str:
    """The drawing as an element of a page, coloured by the page's variables; `number` tells its
    names from those of other drawings on the page."""
    import vl_convert  # noqa: PLC0415  (83 MB, an extra)

    drawing = vl_convert.vegalite_to_svg(worded(picture.spec, language), vl_version="6.4")
    drawing = with_colours(_with_titles(drawing), variables())
    drawing = _IDS.sub(rf"\g<1>p{number}-", drawing)
    label = escape(word(picture.says, language), {'"': "&quot;"})
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _with_titles(drawing: str) -> str:
    """Marks say their figures when the pointer rests on them: a title inside each."""

    def titled(match: re.Match[str]) -> str:
        says = _SAYS.search(match[2])
        return f"<{match[1]} {match[2]}><title>{says[1]}</title></{match[1]}>" if says else match[0]

    return _MARK.sub(titled, drawing)


def png(pictures: Sequence[Picture], title: str, facts: Sequence[str], language: str) -> bytes:
    """All pictures below each other on white, at twice the size."""
    import vl_convert  # noqa: PLC0415

    if language == "zh" and not has_chinese():
        raise UsageError(
            "no font with Chinese characters is installed: a picture would show boxes",
            hint="apt install fonts-noto-cjk, or --lang en",
        )
    spec = coloured(_together(pictures, title, facts, language), LIGHT)
    return signed(bytes(vl_convert.vegalite_to_png(spec, scale=2, vl_version="6.4")))


def _together(
    pictures: Sequence[Picture], title: str, facts: Sequence[str], language: str
) -> dict[str, Any]:
    parts = []
    for picture in pictures:
        spec = {
            name: value
            for name, value in worded(picture.spec, language).items()
            if name not in ("$schema", "config")
        }
        heading = {"text": word(picture.title, language), "fontSize": 16, "offset": 14}
        parts.append({**spec, "title": heading})
    return {
        "$schema": SCHEMA,
        "config": {**CONFIG, "background": LIGHT["paper"], "concat": {"spacing": 34}},
        "padding": 24,
        "title": {"text": title, "subtitle": list(facts), "fontSize": 20, "offset": 24},
        "vconcat": parts,
        "resolve": {"scale": {"color": "independent", "x": "independent", "y": "independent"}},
    }


# -- who wrote it ----------------------------------------------------------------------------------

_SIGNATURE = b"Software\0kvwise"
_PNG_START = 33
"""Bytes of the signature and of the first chunk (IHDR)."""


def signed(image: bytes) -> bytes:
    """A PNG that says what wrote it (a tEXt chunk behind the first one)."""
    body = b"tEXt" + _SIGNATURE
    chunk = struct.pack(">I", len(_SIGNATURE)) + body + struct.pack(">I", zlib.crc32(body))
    return image[:_PNG_START] + chunk + image[_PNG_START:]


def is_signed(start: bytes) -> bool:
    """Whether a file that begins so is a picture of ours."""
    return start.startswith(b"\x89PNG") and _SIGNATURE in start


def has_chinese(folders: Sequence[str] = _FONTS) -> bool:
    """Whether a font with Chinese characters is here; other systems than Linux bring one."""
    if not sys.platform.startswith("linux"):
        return True
    return any(
        _CHINESE.search(str(path))
        for folder in folders
        for path in Path(folder).expanduser().rglob("*.[to]t[fc]*")
    )
