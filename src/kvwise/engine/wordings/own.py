"""What kvwise itself wrote while it ran an engine: asked first, for it quotes the engine's words.

"A buffer does not fit" is left to the other tables: it names no part, and the quoted line may.
"""

# ruff: noqa: E501 (one row is one line)

from __future__ import annotations

from kvwise.engine.wordings import Wording

ROWS: tuple[Wording, ...] = (
    ("kvwise_start", ": start ", r"(?:kvwise|start): start (?P<number>\d{1,6}): \S"),
    ("kvwise_start", "\u6b21\u542f\u52a8\uff1a", r"(?:kvwise\uff1a|start: )\u7b2c (?P<number>\d{1,6}) \u6b21\u542f\u52a8\uff1a\S"),
    ("kvwise_step", "step down (", r"step down \([^)]{1,80}\): (?P<changes>.{1,1000})"),
    ("kvwise_step", "\u964d\u6863\uff08", r"\u964d\u6863\uff08[^\uff09]{1,80}\uff09\uff1a(?P<changes>.{1,1000})"),
    ("kvwise_begun", "kvwise.engine.embedded {", r'kvwise\.engine\.embedded \{.{0,3000}?"launch": \{(?P<launch>[^{}]{1,3000})'),
    ("kvwise_note", "# kvwise ", r"# kvwise \d\d:\d\d:\d\d (?:gave-up|ended): "),
    ("kvwise_ran", "# kvwise ", r"# kvwise \d\d:\d\d:\d\d (?:failed|unhealthy): (?!a buffer does not fit|\u6709\u7f13\u51b2\u533a\u653e\u4e0d\u4e0b)(?P<said>.{1,800}?)(?:(?:; the engine said: |\uff1b\u5f15\u64ce\u8bf4\uff1a).*)?$"),
    ("kvwise_ran", "; the engine said: ", r"kvwise: (?!a buffer does not fit)(?P<said>.{1,400}?); the engine said: "),
    ("kvwise_ran", "\uff1b\u5f15\u64ce\u8bf4\uff1a", r"kvwise\W{1,2}(?!\u6709\u7f13\u51b2\u533a\u653e\u4e0d\u4e0b)(?P<said>.{1,400}?)\uff1b\u5f15\u64ce\u8bf4\uff1a"),
)  # fmt: skip
