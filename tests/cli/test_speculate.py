"""`kvwise speculate` as it is typed, up to where an engine would start."""

from __future__ import annotations

from pathlib import Path

from models import gemma3, smollm2

from .conftest import QWEN, ZOO, Kvwise

EMBEDDING = str(ZOO / "qwen3-embedding-0.6b.json.gz")


def test_vocabularies_that_differ_are_the_answer_no(quick: Kvwise) -> None:
    done = quick("speculate", str(smollm2()), "--draft", str(gemma3()), "--json")
    assert done.code == 3
    found = done.json
    assert found["schema"] == "kvwise/speculate/1"
    assert found["compatibility"]["compatible"] is False
    assert found["compatibility"]["failed"] == "type"
    first = found["compatibility"]["checks"][-1]["first_difference"]
    assert first == {"token": 5, "target": "<file_sep>", "draft": "[multimodal]"}
    assert found["warnings"]  # the draft is the larger one


def test_the_answer_no_in_words_and_in_chinese(quick: Kvwise) -> None:
    words = ("speculate", str(smollm2()), "--draft", str(gemma3()))
    assert "do not agree" in quick(*words).out
    assert "词表不一致" in quick(*words, "--lang", "zh").out


def test_an_embedding_model_is_refused_with_a_reason(quick: Kvwise) -> None:
    for words in ((EMBEDDING,), (QWEN, "--draft", EMBEDDING)):
        done = quick("speculate", *words, "--json")
        assert done.code == 3
        assert done.json["schema"] == "kvwise/refusal/1"
        assert done.json["code"] == "cannot_generate"
        assert "(last)" in done.json["message"]


def test_check_says_what_both_take_and_loads_nothing(quick: Kvwise) -> None:
    model = str(smollm2())
    done = quick("speculate", model, "--draft", model, "--check", "-c", "4096", "--json")
    assert done.code == 0
    memory = done.json["memory"]["computed"]
    assert abs(memory["draft_bytes"] - memory["model_bytes"]) < 4096  # the same file twice
    assert memory["speculation_bytes"] == 16 * 49152 * 4  # a row of scores per drafted token
    assert done.json["compatibility"]["compatible"] is True


def test_a_header_alone_is_checked_and_not_measured(quick: Kvwise) -> None:
    done = quick("speculate", QWEN, "--draft", QWEN, "--json", "--ram", "256GiB")
    assert done.code == 0
    assert done.json["compatibility"]["compatible"] is None  # the zoo keeps no texts
    assert "only a header" in done.err


def test_dry_run_prints_every_command(quick: Kvwise) -> None:
    model = str(smollm2())
    done = quick(
        "speculate", model, "--draft", model, "--depths", "2,8", "--dry-run", "--json", "--engine",
        "embedded",
    )  # fmt: skip
    assert done.code == 0
    commands = done.json["commands"]
    assert len(commands) == 1 + 2 + 4  # plain, two depths, four n-gram kinds
    assert '"draft_n_max": 8' in commands[2][-1]
    typed = done.json["as_llama_server"]
    assert len(typed) == len(commands)
    assert typed[2][-2:] == ["--spec-draft-n-max", "8"]


def test_what_cannot_be_meant(quick: Kvwise, tmp_path: Path) -> None:
    model = str(smollm2())
    wrong = (
        ("--depths", "many"), ("--depths", "0"), ("--kinds", "draft-mtp"), ("--rounds", "0"),
        ("--resume", "--fresh"), ("--draft", model, "-md", QWEN),
        ("--prompts", str(tmp_path)),
    )  # fmt: skip
    for words in wrong:
        done = quick("speculate", model, *words)
        assert done.code == 2, words
        assert done.err.startswith("error:")
