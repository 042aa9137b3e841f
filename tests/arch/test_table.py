"""The table itself: complete, and only names that exist."""

from __future__ import annotations

from kvwise.arch.table import ROWS
from kvwise.gguf.model import KEYS

LLAMA_CPP_B10605 = 145
"""Architectures of src/llama-arch.cpp that are models: all but clip and gptj."""

LLAMA_CPP_B11549 = 154


def test_every_architecture_of_the_build_has_a_row() -> None:
    assert sum(row.since is None for row in ROWS.values()) == LLAMA_CPP_B10605
    assert len(ROWS) == LLAMA_CPP_B11549


def test_rows_read_attributes_that_exist() -> None:
    for architecture, row in ROWS.items():
        for step in row.reads:
            if isinstance(step, str):
                for name in step.split():
                    assert name.rstrip("!") in KEYS, (architecture, name)


def test_ropes_are_known() -> None:
    known = {"none", "norm", "neox", "mrope", "imrope"}
    for row in ROWS.values():
        assert row.rope in known
        assert row.rope_if is None or row.rope_if[1] in known


def test_only_models_with_mtp_layers_say_where_their_cache_is() -> None:
    for architecture, row in ROWS.items():
        if row.mtp_kv == "apart":
            names = {getattr(step, "__name__", "") for step in row.reads}
            assert names & {"mtp", "nextn", "mtp_if_complete"}, architecture
