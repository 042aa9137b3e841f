"""With which settings `kvwise run` began a load, as it tells before the engine says its first word.

Every start of an embedded engine is told with all its settings, every step down with what it
changes: they add up until a command line tells all anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvwise.engine import events as ev
from kvwise.errors import KvwiseError

STEP, WHOLE, START = "kvwise_step", "kvwise_begun", "kvwise_start"
_CHANGE = re.compile(
    r"(?<!\S)(-{1,2}[a-z][\w-]{0,40}) \S{1,200} -> ([^\s,:\uff0c\uff1a]{1,200})", re.ASCII
)
_FIELD = re.compile(r'"(\w{1,40})": (?:"([^"]{0,80})"|(-?\d{1,15})\b(?!\.)|(true|false))', re.ASCII)
_FIELDS = frozenset({
    "n_ctx", "n_seq_max", "n_batch", "n_ubatch", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe",
    "flash_attn", "kv_unified", "swa_full", "offload_kqv",
})  # fmt: skip
"""Fields of a launch that are plain values and that an engine is begun with."""


def after(begun: Mapping[str, object], event: ev.Remark) -> dict[str, object]:
    """The settings (fields of a launch) in effect after kvwise said this, given those before."""
    if event.code == STEP:
        return {**begun, **_changed(event.fields.get("changes", ""))}
    if event.code == WHOLE:
        return _told(event.fields.get("launch", ""))
    if event.code == START and event.fields.get("number") != "1":
        return dict(begun)
    return {}  # a first start, or a command line


def _changed(text: str) -> dict[str, object]:
    from kvwise.options import read  # noqa: PLC0415  (few logs have such a line)

    made: dict[str, object] = {}
    for flag, value in _CHANGE.findall(text):
        try:
            reading = read([flag, value])
        except KvwiseError:
            continue
        made |= {name: getattr(reading.launch, name) for name in reading.origins}
    return made


def _told(text: str) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, word, number, truth in _FIELD.findall(text):
        if name in _FIELDS and name not in made:
            made[name] = int(number) if number else truth == "true" if truth else word
    return made
