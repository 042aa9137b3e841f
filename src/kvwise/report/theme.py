"""Colours and sizes of charts.

A specification names tokens; a page puts its variables there, so one drawing serves light and dark,
and a picture file puts the colours of light.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

INK, SOFT, LINE, PAPER = "#010101", "#020202", "#030303", "#040404"
BLUE, TEAL, AMBER, ROSE, VIOLET, GREEN, GREY = (f"#0a0a0{number}" for number in range(1, 8))
CYCLE = (BLUE, AMBER, TEAL, ROSE, VIOLET, GREEN, GREY)
"""For series without a meaning of their own; told apart by colour-blind readers."""

NAMES = {
    INK: "ink", SOFT: "soft", LINE: "line", PAPER: "paper", BLUE: "blue", TEAL: "teal",
    AMBER: "amber", ROSE: "rose", VIOLET: "violet", GREEN: "green", GREY: "grey",
}  # fmt: skip
LIGHT = {
    "ink": "#1d2430", "soft": "#5a6474", "line": "#e2e6ec", "paper": "#ffffff",
    "blue": "#3b6fd4", "teal": "#1c9a95", "amber": "#d98b18", "rose": "#c8476b",
    "violet": "#7d5bd0", "green": "#3a9a4a", "grey": "#98a2b3",
}  # fmt: skip
DARK = {
    "ink": "#e7eaf0", "soft": "#a3adbd", "line": "#303846", "paper": "#171b22",
    "blue": "#7aa5f7", "teal": "#4fc5bf", "amber": "#f0b150", "rose": "#ef85a1",
    "violet": "#b09bf3", "green": "#79cc86", "grey": "#727d8e",
}  # fmt: skip

FONT = "system-ui, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', 'Microsoft YaHei', sans-serif"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

CONFIG: Mapping[str, Any] = {
    "font": FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "concat": {"spacing": 28},
    "axis": {
        "labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domain": False,
        "ticks": False, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500,
        "labelPadding": 6, "titlePadding": 8, "labelLimit": 320,
    },
    "axisY": {"grid": False, "labelColor": INK},
    "legend": {
        "labelColor": INK, "titleColor": SOFT, "labelFontSize": 12, "titleFontSize": 12,
        "orient": "top", "symbolType": "square", "symbolSize": 110, "labelLimit": 320,
        "titleFontWeight": 500, "columnPadding": 18,
    },
    "title": {
        "color": INK, "subtitleColor": SOFT, "fontSize": 15, "subtitleFontSize": 12,
        "anchor": "start", "fontWeight": 600, "offset": 12,
    },
    "text": {"color": INK, "fontSize": 12},
    "header": {"labelColor": INK, "titleColor": SOFT},
}  # fmt: skip


def with_colours(text: str, colours: Mapping[str, str]) -> str:
    """Tokens in a text (a drawing, a specification) replaced by colours or variables."""
    for token, name in NAMES.items():
        text = text.replace(token, colours[name])
    return text


def coloured(spec: Mapping[str, Any], colours: Mapping[str, str]) -> Any:
    """A specification with real colours."""
    return json.loads(with_colours(json.dumps(spec), colours))


def variables() -> dict[str, str]:
    """`var(--blue)` for each token."""
    return {name: f"var(--{name})" for name in NAMES.values()}
