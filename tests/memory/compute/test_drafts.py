"""Draft contexts and draft heads: the layers behind a model, and models made to guess."""

from __future__ import annotations

from collections import Counter

import pytest
from built import job_for
from test_unproven import model_like

from kvwise.gguf.model import Model
from kvwise.memory.compute.builder import Batch, Unbuildable
from kvwise.memory.compute.families import BUILDERS, DRAFTS, MTP
from kvwise.memory.compute.reserve import build
from report import golden, measured, predict

MEASURED = ("deepseek-v3.2", "glm-4.5-air", "qwen3.6-35b-a3b-mtp")
CONFIG = {"n_ctx": 3328, "n_ubatch": 112, "n_outputs_max": 7, "n_batch": 512}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_draft_contexts_to_the_byte(name: str) -> None:
    cells = [row for row in golden([name]) if row[2]["mtp"]]
    assert cells
    for _, model, config, result in cells:
        made = predict(model, config)
        assert made.basis == "computed"
        assert dict(made.by_buffer) == measured(result)


def test_other_architectures_run_the_whole_model_again() -> None:
    assert "glm4" not in MTP
    assert DRAFTS["glm4"] is BUILDERS["glm4"]


def head(**weights: list[int] | None) -> Model:
    """A DFlash head with DSpark's matrices, and others."""
    known: dict[str, list[int] | None] = {
        "markov_w1.weight": [16, 1792], "markov_w2.weight": [16, 1792],
        "conf_proj.weight": [272, 1],
    }  # fmt: skip
    return model_like("dflash", "dflash", {"block_size": 4}, known | weights)


def test_a_long_batch_passes_the_chain_of_guesses_by() -> None:
    plain = build(job_for(model_like("dflash", "dflash"), CONFIG))
    chained = build(job_for(head(), CONFIG))
    assert [n.op for n in chained.nodes] == [n.op for n in plain.nodes]


def test_each_position_looks_at_the_guess_before_it() -> None:
    work = job_for(head(), {**CONFIG, "n_seq_max": 2})
    plain = Counter(n.op for n in build(job_for(model_like("dflash", "dflash"), CONFIG)).nodes)
    chained = Counter(n.op for n in build(work, Batch(6, 2, 6)).nodes)
    assert chained["ARGMAX"] == 2  # three positions, the last guess is read by nobody
    assert chained["UNARY:SIGMOID"] == 3
    assert chained["GET_ROWS"] - plain["GET_ROWS"] == 3
    assert chained["CONCAT"] == 3 + 2 + 2  # trust's inputs, scores, trusts


def test_a_small_vocabulary_is_spread_over_the_large_one() -> None:
    table = head(d2t=[512], **{"output.weight": [256, 512], "markov_w2.weight": [16, 512]})
    nodes = build(job_for(table, CONFIG)).nodes
    assert nodes[-1].ne[0] == 1792
    assert Counter(n.op for n in nodes)["FILL"] == 1


def test_eagle_has_one_layer_and_two_inputs() -> None:
    words = {"token_embd.weight": [256, 1024]}
    with pytest.raises(Unbuildable, match="6 layers"):
        build(job_for(model_like("eagle3", "eagle3", weights=words), CONFIG))
    model = model_like("eagle3", "eagle3", {"block_count": 1}, words)
    nodes = build(job_for(model, CONFIG)).nodes
    counts = Counter(n.op for n in nodes)
    assert counts["CONCAT"] == 1
    assert counts["RMS_NORM"] == 4
    assert counts["FLASH_ATTN_EXT"] == 1
    assert nodes[-1].ne[:2] == (1024, 112)  # every row: it knows no output rows
