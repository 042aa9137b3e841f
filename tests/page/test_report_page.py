"""The report's page in a real browser: offline, light and dark, both languages, any width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvwise.report import draw, results_report, write
from kvwise.report.charts.contexts import Curve
from kvwise.report.theme import DARK, LIGHT
from report_made import bench, failed, speculation, tuning

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.page, pytest.mark.xdist_group("browser")]

CURVES = [
    Curve(types, tuple((n_ctx, base + n_ctx * each) for n_ctx in (2048, 4096, 8192, 16384)))
    for types, base, each in (("f16/f16", 5 << 30, 147_456), ("q4_0/q4_0", 5 << 30, 41_472))
]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same report in both languages."""
    folder = tmp_path_factory.mktemp("pages")
    found = [*bench(depths=(0, 4096)), failed(), *speculation(), *tuning()]
    report = results_report(found, curves=lambda _: CURVES)
    places = {}
    for language in ("en", "zh"):
        places[language] = folder / f"{language}.html"
        write(report, str(places[language]), language)
    return places


class Seen:
    """A page as it was opened: what it asked for, what it complained about."""

    def __init__(self, page: Page, place: Path) -> None:
        self.page, self.asked, self.complaints = page, [], []  # type: ignore[var-annotated]
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(place.as_uri())

    def style(self, selector: str, name: str) -> str:
        return str(self.page.locator(selector).first.evaluate(
            "(each, name) => getComputedStyle(each)[name]", name))  # fmt: skip


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def open_page(language: str = "en", scheme: Any = "light", width: int = 1280) -> Seen:
        view: Any = {"width": width, "height": 900}
        context = browser.new_context(viewport=view, color_scheme=scheme, offline=True)
        contexts.append(context)
        return Seen(context.new_page(), pages[language])

    yield open_page
    for context in contexts:
        context.close()


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def test_it_asks_for_nothing_and_complains_of_nothing(opened: Any) -> None:
    seen = opened()
    assert seen.asked == [seen.page.url]
    assert seen.complaints == []
    assert seen.page.locator("figure svg").count() == 6


@pytest.mark.parametrize(("scheme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_text_and_drawings_follow_the_system(opened: Any, scheme: str, colours: Any) -> None:
    seen = opened(scheme=scheme)
    assert seen.style("body", "color") == rgb(colours["ink"])
    assert seen.style("figure", "backgroundColor") == rgb(colours["paper"])
    assert seen.style("figure svg text", "fill") == rgb(colours["soft"])
    assert seen.style('figure svg path[aria-roledescription="bar"]', "fill") == rgb(colours["blue"])


def test_the_reader_can_overrule_the_system(opened: Any) -> None:
    seen = opened(scheme="light")
    seen.page.get_by_text("dark", exact=True).click()
    assert seen.style("body", "color") == rgb(DARK["ink"])
    seen.page.get_by_text("auto", exact=True).click()
    assert seen.style("body", "color") == rgb(LIGHT["ink"])


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_itself_never_scrolls_sideways(opened: Any, width: int) -> None:
    page = opened(width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for box in page.locator("figure .wide").all():
        inner = box.evaluate("each => [each.scrollWidth, each.clientWidth]")
        assert width < 1280 or inner[0] <= inner[1]  # on a desk every drawing is seen whole


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_of_a_drawing_is_cut_or_lies_on_another(opened: Any, language: str) -> None:
    page = opened(language).page
    for drawing in page.locator("figure svg").all():
        cut, crossed = drawing.evaluate(_OVERLAPS)
        assert (cut, crossed) == ([], [])


_OVERLAPS = """svg => {
  const whole = svg.parentElement.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")]
    .filter(text => text.textContent.trim() && getComputedStyle(text).opacity !== "0")
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  const cut = boxes.filter(([, box]) => box.left < whole.left - 1 || box.right > whole.right + 1)
    .map(([words]) => words);
  const crossed = [];
  boxes.forEach(([words, a], at) => boxes.slice(at + 1).forEach(([others, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 3 && high > 5) crossed.push(`${words} / ${others}`);
  }));
  return [cut, crossed];
}"""


def test_chinese_is_chinese_and_has_glyphs(opened: Any) -> None:
    seen = opened("zh")
    assert seen.page.locator("html").get_attribute("lang") == "zh-CN"
    words = seen.page.locator("figure svg text").all_text_contents()
    assert any("提示词" in text for text in words)
    if draw.has_chinese():  # a missing glyph is as wide as any other missing glyph
        width = "text => { const c = document.createElement('canvas').getContext('2d');"
        width += " c.font = '40px sans-serif'; return c.measureText(text).width }"
        assert seen.page.evaluate(width, "一") != seen.page.evaluate(width, "\U000e0fff")


def test_figures_are_read_out_and_shown_at_the_pointer(opened: Any) -> None:
    page = opened().page
    bar = page.locator('figure svg path[aria-roledescription="bar"]').first
    assert "812" in (bar.get_attribute("aria-label") or "")
    assert bar.locator("title").text_content() == bar.get_attribute("aria-label")
    names = [each.get_attribute("aria-label") for each in page.locator("figure > div > svg").all()]
    assert all(names)


def test_links_lead_to_their_sections_and_tables_can_be_reached_by_keyboard(opened: Any) -> None:
    page = opened().page
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    assert page.locator(".wide[tabindex]").count() == page.locator(".wide").count()
