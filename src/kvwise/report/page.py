"""A report as one HTML file: no script, nothing from the network, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from html import escape as html_escape

import kvwise
from kvwise.report import draw
from kvwise.report.document import Block, Bullets, Grid, Picture, Report, Words, word
from kvwise.report.style import CSS
from kvwise.text import phrase

MARK = '<meta name="generator" content="kvwise report">'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_LANGUAGES = {"en": "en", "zh": "zh-CN"}


def page(report: Report, language: str) -> str:
    """The whole file."""
    return "\n".join(_page(report, language)) + "\n"


def _page(report: Report, language: str) -> Iterator[str]:
    def text(words: Words) -> str:
        return html_escape(word(words, language))

    yield "<!doctype html>"
    yield f'<html lang="{_LANGUAGES[language]}">'
    yield '<head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield MARK
    yield f"<title>{text(report.title)}</title><style>{CSS}</style></head>"
    yield "<body><header>"
    yield _scheme(language)
    yield f"<h1>{text(report.title)}</h1><dl>"
    for name, what in report.facts:
        yield f"<div><dt>{text(name)}</dt><dd>{text(what)}</dd></div>"
    yield "</dl>"
    if len(report.sections) > 1:
        yield "<nav><ul>"
        for number, section in enumerate(report.sections):
            yield f'<li><a href="#s{number}">{text(section.title)}</a></li>'
        yield "</ul></nav>"
    yield "</header><main>"
    for number, section in enumerate(report.sections):
        yield f'<section id="s{number}"><h2>{text(section.title)}</h2>'
        for place, block in enumerate(section.blocks):
            yield _block(block, language, 100 * number + place)
        yield "</section>"
    made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    foot = phrase("Made by kvwise {version} on {date}", version=kvwise.__version__, date=made)
    yield f"</main><footer>{text(foot)}</footer></body></html>"


def _scheme(language: str) -> str:
    """Three radio buttons that the style sheet looks at; the system's choice is the first."""
    names = {"auto": phrase("auto"), "light": phrase("light"), "dark": phrase("dark")}
    buttons = "".join(
        f'<label><input type="radio" name="scheme" id="scheme-{key}"'
        f"{' checked' if key == 'auto' else ''}>"
        f"<span>{html_escape(word(words, language))}</span></label>"
        for key, words in names.items()
    )
    title = html_escape(word(phrase("colours"), language), quote=True)
    return f'<div class="scheme" role="group" aria-label="{title}">{buttons}</div>'


def _block(block: Block, language: str, number: int) -> str:
    if isinstance(block, Grid):
        return _grid(block, language)
    if isinstance(block, Picture):
        return _picture(block, language, number)
    return _bullets(block, language)


def _picture(picture: Picture, language: str, number: int) -> str:
    title = html_escape(word(picture.title, language))
    caption = html_escape(word(picture.caption, language))
    drawing = draw.svg(picture, language, number)
    tail = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure><h3>{title}</h3><div class="wide" tabindex="0">{drawing}</div>{tail}</figure>'


def _grid(grid: Grid, language: str) -> str:
    def text(words: Words) -> str:
        return html_escape(word(words, language))

    side = [' class="n"' if column.right else "" for column in grid.columns]
    head = "".join(
        f'<th scope="col"{where}>{text(column.words)}</th>'
        for where, column in zip(side, grid.columns, strict=True)
    )
    rows = []
    for number, row in enumerate(grid.rows):
        cells = [f'<th scope="row">{text(row[0])}</th>']
        cells += [
            f"<td{where}>{text(cell)}</td>" for where, cell in zip(side[1:], row[1:], strict=True)
        ]
        strong = ' class="best"' if number in grid.strong else ""
        rows.append(f"<tr{strong}>{''.join(cells)}</tr>")
    caption = f'<p class="note">{text(grid.caption)}</p>' if grid.caption else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>{caption}'


def _bullets(block: Bullets, language: str) -> str:
    items = "".join(f"<li>{html_escape(word(item, language))}</li>" for item in block.items)
    return f'<ul class="remarks">{items}</ul>'
