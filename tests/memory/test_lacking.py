"""Which part of a ledger finds no room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.arch import describe
from kvwise.device import Host
from kvwise.gguf.shape import header_of_shape
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.lacking import LACKING, Lacking, lacking, lacking_together
from kvwise.memory.ledger import Ledger, Line, Part

MODEL = describe(header_of_shape("24x16x48"))


def ledger_of(*lines: Line) -> Ledger:
    made = account(MODEL, Launch(n_ctx=256), (), compute_mode="none")
    return Ledger(
        made.model, made.launch, made.context, made.placement, made.devices, lines, made.caches
    )


def line(
    free: int | None, weights: int, context: int, compute: int, *, block: int | None = None
) -> Line:
    part = Part("VGPU0", weights_bytes=weights, context_bytes=context, compute_bytes=compute)
    return Line("VGPU0", "card", False, (part,), free_bytes=free,
                largest_block_bytes=max(weights, context), max_block_bytes=block)  # fmt: skip


@pytest.mark.parametrize(
    ("free", "what"),
    [(99, "weights"), (100, "context"), (149, "context"), (150, "compute"), (159, "compute")],
)
def test_what_comes_first_takes_what_there_is(free: int, what: Lacking) -> None:
    assert lacking(ledger_of(line(free, 100, 50, 10))) == what


def test_nothing_lacks_where_all_fits_or_nothing_is_known() -> None:
    assert lacking(ledger_of(line(160, 100, 50, 10))) is None
    assert lacking(ledger_of(line(None, 100, 50, 10))) is None
    assert lacking_together(ledger_of(line(None, 100, 50, 10))) is None


def test_memory_that_is_there_in_pieces() -> None:
    assert lacking(ledger_of(line(500, 100, 50, 10, block=80))) == "block"


def test_the_line_that_misses_most_decides() -> None:
    card, host = line(100, 100, 50, 10), line(10, 200, 0, 0)
    assert lacking(ledger_of(card, host)) == "weights"


def test_devices_together_are_one_memory() -> None:
    card, host = line(90, 100, 50, 10), line(100, 0, 0, 0)
    assert lacking_together(ledger_of(card, host)) == "block"
    assert lacking_together(ledger_of(card, line(50, 0, 0, 0))) == "context"


def test_the_host_may_be_out_of_the_question() -> None:
    card, host = line(100, 60, 0, 0), replace(line(500, 60, 0, 0), host=True)
    assert lacking_together(ledger_of(card, host)) == "block"
    assert lacking_together(ledger_of(card, host), cards=True) == "weights"


def test_a_real_ledger_of_a_host() -> None:
    asked = account(MODEL, Launch(n_ctx=8192), (), host=Host(available_bytes=1 << 20),
                    compute_mode="none")  # fmt: skip
    assert lacking(asked) == "context"  # a shape has no weights


def test_every_part_has_its_words() -> None:
    assert all(len(words.split()) >= 4 for words in LACKING.values())
