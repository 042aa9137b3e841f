"""Which ways of speculating a pair of files has, and which models have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwise.errors import Refused, UsageError
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.speculate.kinds import (
    MTP,
    NGRAMS,
    Variant,
    check_generates,
    has_mtp,
    kind_of_draft,
    variants,
    warnings,
)

ZOO = Path(__file__).parents[1] / "zoo/models"


def model(name: str):  # type: ignore[no-untyped-def]
    return open_model(str(ZOO / f"{name}.json.gz"))


@pytest.mark.parametrize(
    "name",
    ["bge-small-en-v1.5", "modernbert-base", "qwen3-embedding-0.6b", "llada-8b", "tiny-t5encoder"],
)
def test_a_model_that_cannot_generate_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(Refused, match="cannot generate") as refused:
        check_generates(model(name))
    assert refused.value.exit_code == 3
    with pytest.raises(Refused):
        check_generates(model(name), draft=True)


@pytest.mark.parametrize("name", ["qwen3-8b", "flan-t5-large"])
def test_a_model_that_generates_passes(name: str) -> None:
    check_generates(model(name))


def test_kinds_of_draft_files() -> None:
    assert kind_of_draft(model("tiny-eagle3")) == "draft-eagle3"
    assert kind_of_draft(model("tiny-dflash")) in ("draft-dflash", "draft-dspark")
    assert kind_of_draft(model("qwen3-8b")) == "draft-simple"
    assert kind_of_draft(model("glm-4.5-air")) == "draft-simple"  # a whole model that has MTP too
    check_generates(model("tiny-eagle3"), draft=True)  # a head drafts beside its target


def test_mtp_only_where_the_file_has_it() -> None:
    assert has_mtp(model("glm-4.5-air")) and not has_mtp(model("qwen3-8b"))
    assert not has_mtp(model("tiny-graniteswitch"))  # such layers, used for something else
    keys = [each.key for each in variants(model("glm-4.5-air"), None, (2, 1))]
    assert keys == ["plain", f"{MTP}/1", f"{MTP}/2", *NGRAMS]


def test_variants_of_a_pair_and_what_is_asked_of_them() -> None:
    pair = model("qwen3-8b"), model("qwen3-0.6b") if (ZOO / "qwen3-0.6b.json.gz").exists() else None
    draft = pair[1] or model("qwen3-8b")
    keys = [each.key for each in variants(pair[0], draft, (8, 4, 8))]
    assert keys == ["plain", "draft-simple/4", "draft-simple/8", *NGRAMS]
    some = variants(pair[0], draft, (4,), ("ngram-mod",))
    assert [each.key for each in some] == ["plain", "ngram-mod"]
    with pytest.raises(UsageError, match="draft-mtp"):
        variants(pair[0], draft, (4,), ("draft-mtp",))
    with pytest.raises(UsageError):
        variants(pair[0], draft, (0,))


def test_a_launch_gets_one_way_of_speculating_and_loses_its_own() -> None:
    base = Launch.parse(["-c", "1024", "-np", "1", "--spec-type", "ngram-cache"])
    deep = Variant("draft-simple", 8).launch(base, "d.gguf")
    assert (deep.spec_types, deep.model_draft, deep.draft_n_max) == (("draft-simple",), "d.gguf", 8)
    assert deep.n_outputs_max == 9  # a row of scores for each drafted token
    plain = Variant("plain").launch(deep, "d.gguf")
    assert (plain.spec_types, plain.model_draft, plain.n_outputs_max) == ((), "", 1)
    assert Variant("ngram-mod").launch(base, "d.gguf").model_draft == ""


def test_a_draft_that_is_no_smaller_is_warned_of() -> None:
    large = model("qwen3-8b")
    assert [*warnings(large, large)]
    assert not [*warnings(large, model("qwen3-embedding-0.6b"))]
    assert not [*warnings(large, None)]
