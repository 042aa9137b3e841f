"""Everything kvwise says can be said in Chinese, and the compiled catalogue is the current one."""

from __future__ import annotations

import importlib.util
import re
import string
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from kvwise.text import phrase, say

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("translations")  # the sources are read once for all of them


@pytest.fixture(scope="module")
def texts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("texts", ROOT / "scripts/texts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.sentences = cache(module.sentences)  # type: ignore[attr-defined]
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


NOT_WORDS = re.compile(
    r"```.*?```|`[^`]*`|\{[^{}]*\}|(?<!\S)-{1,2}[a-z][\w-]*|kvwise [^。\n]*", re.DOTALL
)
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_a_token_has_one_chinese_word(texts: ModuleType) -> None:
    """词元, in what kvwise says and in what is written about it; names and examples stay."""
    said = [str(message.string) for message in texts.catalogue("zh_CN") if message.id]
    pages = sorted([ROOT / "README.zh-CN.md", *(ROOT / "docs").rglob("*.zh-CN.md")])
    said += [NOT_WORDS.sub("", path.read_text("utf-8")) for path in pages]
    assert sum("词元" in each for each in said) > 100
    lines = (line for each in said for line in NOT_WORDS.sub("", each).splitlines())
    bad = [line for line in lines if CHINESE.search(line)
           and re.search(r"令牌|(?<![\w-])[Tt]okens?(?![\w-])(?!  )", line)]  # fmt: skip
    assert bad == []


def test_a_prompt_and_a_hint_have_different_words(texts: ModuleType) -> None:
    """提示词 is a prompt, 提示 a hint; 提示符 is the shell's."""
    prompts = 0
    for message in texts.catalogue("zh_CN"):
        english, chinese = message.id.lower(), message.string
        if not english or "提示" not in chinese:
            continue
        if "prompt" in english:
            prompts += 1
            assert not re.search("提示(?![词符])", chinese), chinese
        else:
            assert "提示词" not in chinese, chinese
    assert prompts > 40


def test_words_come_out_in_chinese() -> None:
    inner = phrase("fits: {size} left on {name}", size="1 MiB", name="GPU")
    assert say(inner, "zh") == "放得下：GPU 还剩 1 MiB"
    assert say(phrase("note: {text}", text=inner), "zh") == "注意：放得下：GPU 还剩 1 MiB"
    assert say(phrase("not in the catalogue {x}", x=1), "zh") == "not in the catalogue 1"


def test_pages_in_chinese_show_the_commands_and_figures_of_their_english_page() -> None:
    pages = sorted((ROOT / "docs").glob("*.zh-CN.md"))
    assert {page.name for page in pages} >= {"bench.zh-CN.md", "verify.zh-CN.md"}
    for page in pages:
        english = page.with_name(page.name.replace(".zh-CN", ""))
        one, two = (path.read_text("utf-8") for path in (page, english))
        assert re.findall(r"```.*?```", one, re.DOTALL) == re.findall(r"```.*?```", two, re.DOTALL)


def test_verify_leads_to_its_other_language() -> None:
    assert "](verify.zh-CN.md)" in (ROOT / "docs/verify.md").read_text("utf-8")
    assert "](verify.md)" in (ROOT / "docs/verify.zh-CN.md").read_text("utf-8")


def test_verify_has_the_same_figures_in_both_languages() -> None:
    chinese, english = (
        re.sub(r"```.*?```", "", (ROOT / "docs" / name).read_text("utf-8"), flags=re.DOTALL)
        for name in ("verify.zh-CN.md", "verify.md")
    )
    number = r"\d+(?:\.\d+)?"
    assert set(re.findall(number, english)) <= set(re.findall(number, chinese)) | {"9"}
    assert set(re.findall(r"`[^`]+`", english)) - set(re.findall(r"`[^`]+`", chinese)) <= {
        "`--logs FOLDER`"
    }
