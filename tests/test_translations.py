"""Everything kvwise says can be said in Chinese, and the compiled catalogue is the current one."""

from __future__ import annotations

import importlib.util
import string
from pathlib import Path
from types import ModuleType

import pytest

from kvwise.text import phrase, say

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def texts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("texts", ROOT / "scripts/texts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_the_catalogue_is_what_the_script_writes(texts: ModuleType) -> None:
    for path, content in texts.rendered("zh_CN").items():
        assert path.read_bytes() == content, f"{path.name}: run scripts/texts.py"


def test_no_sentence_is_without_a_translation(texts: ModuleType) -> None:
    missing = [m.id for m in texts.catalogue("zh_CN") if m.id and not m.string]
    assert missing == []


def test_translations_have_the_fields_of_their_sentence(texts: ModuleType) -> None:
    for message in texts.catalogue("zh_CN"):
        if message.id:
            assert _fields(message.id) == _fields(message.string), message.id


def test_sentences_are_collected_from_every_kind_of_place(texts: ModuleType) -> None:
    found = {sentence for sentence, _ in texts.sentences()}
    assert "weights" in found  # phrase()
    assert "did you mean {near}?" in found  # hint=
    assert "No GPU at all." in found  # help=
    assert "lossless" in found  # template()
    assert "a quantized" not in found


def test_words_come_out_in_chinese() -> None:
    inner = phrase("fits: {size} left on {name}", size="1 MiB", name="GPU")
    assert say(inner, "zh") == "放得下：GPU 还剩 1 MiB"
    assert say(phrase("note: {text}", text=inner), "zh") == "注意：放得下：GPU 还剩 1 MiB"
    assert say(phrase("not in the catalogue {x}", x=1), "zh") == "not in the catalogue 1"
