"""Targets and drafts beside them, to what llama.cpp printed (oracle/measure_drafts.py).

`drafts.json.gz` holds pairs that were really loaded and given a prompt, by b10605 (on virtual GPUs,
too) and b11549: drafts that no pass of an engine measures, and MTP layers, for what they make of
the target's own buffers.
"""

from __future__ import annotations

import pytest

from kvwise.memory.account import account
from kvwise.memory.parts.companions import Companions
from oracle.kept_drafts import ledger_of, recorded, rows_of
from oracle.measure_drafts import NOT_LOADED, PAIRS, SETTINGS, launch_of, model_of
from oracle.measure_mtp import devices_of

HEADS = {"eagle3", "dflash", "gemma4-assistant"}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_target_and_draft_take_what_llama_cpp_printed(name: str) -> None:
    pair = recorded()[name]
    loads = {build for build in SETTINGS if (name, build) not in NOT_LOADED}
    assert {row["build"] for row in pair["results"]} == loads
    wrong = [
        (row, each)
        for row in pair["results"]
        for each in rows_of(ledger_of(pair, row), row["said"])
        if not each.agrees
    ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_nothing_is_an_estimate(name: str) -> None:
    pair = recorded()[name]
    ledger = ledger_of(pair, pair["results"][0])
    bases = {line.basis["compute"] for line in ledger.lines}
    bases |= {extra.basis["compute"] for extra in ledger.extras if extra.compute_bytes}
    assert bases == {"computed"}


def test_every_head_is_there() -> None:
    drafts = [pair["draft"] for pair in recorded().values() if pair["draft"] is not None]
    assert {each["metadata"]["general.architecture"] for each in drafts} == HEADS


def test_a_targets_buffer_grows_by_what_it_hands_on() -> None:
    """What a no-alloc pass shows of the target is less than what it has after its first batch."""
    pair = recorded()["eagle3"]
    row = next(row for row in pair["results"] if row["fields"]["n_ubatch"] == 512)
    draft = model_of(pair["draft"])
    launch = launch_of(row["build"], pair["kind"], row["fields"], "draft.gguf")
    first, later = (
        account(
            model_of(pair["target"]),
            launch,
            devices_of(row["gpus"]),
            companions=Companions(draft=draft),
            compute_mode=mode,
        )
        for mode in ("no-alloc", "reserved")
    )
    taken = [sum(line.compute_bytes for line in each.lines) for each in (first, later)]
    assert 0 < taken[1] - taken[0] <= 3 * 4 * 256 * 513
