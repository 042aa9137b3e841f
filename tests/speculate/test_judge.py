"""The advice: by tokens per second beyond the spread, never by the share of accepted tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.engine.watch import Share
from kvwise.speculate.attempt import Answer, Measured, Proof
from kvwise.speculate.codec import decode, encode
from kvwise.speculate.judge import Verdict, first_difference, judge, summarise
from kvwise.speculate.kinds import Variant
from kvwise.text import phrase

PLAIN, DEEP, DEEPER, NGRAM = (
    Variant("plain"), Variant("draft-simple", 4), Variant("draft-simple", 8), Variant("ngram-mod"),
)  # fmt: skip


def answer(speed: float, drafted: int = 0, accepted: int = 0, ids: tuple[int, ...] = ()) -> Answer:
    """101 tokens at `speed` tokens per second after a prompt of 100 ms."""
    return Answer(
        "code", 101, 20, 100.0, 100 / speed * 1000, drafted, accepted, ids or tuple(range(101)),
        "x" * 101, cut=False,
    )  # fmt: skip


def unit(variant: Variant, number: int, speed: float, **more: object) -> Measured:
    drafted = 100 if variant.speculates else 0
    proof = Proof(variant.kind if drafted else "", slots=bool(drafted))
    values = {"answers": (answer(speed, drafted, 80 if drafted else 0),), "proof": proof,
              "drafts": 25 if drafted else 0} | more  # fmt: skip
    return Measured(variant.key, number, 1000.0 + number, **values)  # type: ignore[arg-type]


def rounds(**speeds: list[float]) -> Verdict:
    """Verdict over rounds of variants named by the letters of their constants."""
    names = {"plain": PLAIN, "deep": DEEP, "deeper": DEEPER, "ngram": NGRAM}
    variants = [names[name] for name in speeds]
    units = [unit(names[n], i, s) for n, list_ in speeds.items() for i, s in enumerate(list_)]
    return judge(summarise(variants, units))


def best(verdict: Verdict) -> str | None:
    return verdict.best.variant.key if verdict.best else None


def test_a_gain_beyond_the_spread_is_recommended() -> None:
    assert best(rounds(plain=[100, 101, 99], deep=[140, 142, 139])) == "draft-simple/4"


def test_all_accepted_and_half_the_speed_is_off() -> None:
    """A model as its own draft: rate 1.0, 123 -> 57.6 tokens/s (engine-facts 6)."""
    slow = [unit(DEEP, n, 57.6, answers=(answer(57.6, 76, 76),)) for n in range(3)]
    plain = [unit(PLAIN, n, 123.0) for n in range(3)]
    summaries = summarise([PLAIN, DEEP], [*plain, *slow])
    assert summaries[1].rate == 1.0
    assert judge(summaries).best is None


def test_a_gain_within_the_spread_is_off() -> None:
    assert best(rounds(plain=[100, 110, 92], deep=[108, 112, 101])) is None
    assert best(rounds(plain=[100, 100.1, 100], deep=[101, 101.2, 101])) is None  # below 2 %


def test_one_round_has_no_spread() -> None:
    assert best(rounds(plain=[100], deep=[200])) is None


def test_a_round_in_which_it_was_slower_is_off() -> None:
    """Both drift together: what counts is the ratio within a round."""
    assert best(rounds(plain=[100, 100, 100], deep=[130, 131, 99])) is None


def test_drift_that_both_share_does_not_hide_a_steady_gain_of_interleaved_rounds() -> None:
    verdict = rounds(plain=[100, 98, 97], deep=[150, 148, 145])
    assert best(verdict) == "draft-simple/4"
    assert verdict.best and verdict.best.gain and verdict.best.gain.low > 1.45


def test_among_equals_the_simplest_wins() -> None:
    same = rounds(plain=[100, 101, 99], deep=[150, 154, 149], deeper=[151, 153, 150])
    assert best(same) == "draft-simple/4"
    ngram = rounds(plain=[100, 101, 99], deep=[150, 154, 149], ngram=[150, 153, 149])
    assert best(ngram) == "ngram-mod"  # no second model
    clear = rounds(plain=[100, 101, 99], deep=[150, 151, 149], deeper=[190, 192, 189])
    assert best(clear) == "draft-simple/8"


def test_a_draft_that_costs_more_on_the_prompt_than_it_gains_is_off() -> None:
    slow_prompt = [replace(answer(120, 100, 80), prompt_ms=2000.0) for _ in range(3)]
    deep = [unit(DEEP, n, 120, answers=(one,)) for n, one in enumerate(slow_prompt)]
    plain = [unit(PLAIN, n, 100) for n in range(3)]
    verdict = judge(summarise([PLAIN, DEEP], [*plain, *deep]))
    assert verdict.best is None and "prompt" in str(verdict.why[0])


def test_rounds_beside_other_work_do_not_count_while_there_are_quiet_ones() -> None:
    units = [unit(PLAIN, n, 100) for n in range(3)]
    units += [unit(DEEP, 0, 20, flags=("contended",)), unit(DEEP, 1, 150), unit(DEEP, 2, 151)]
    _, deep = summarise([PLAIN, DEEP], units)
    assert (deep.rounds, deep.flagged) == (2, 1)
    assert deep.speed and deep.speed.low == pytest.approx(150)
    assert best(judge(summarise([PLAIN, DEEP], units))) == "draft-simple/4"


def test_asked_for_and_not_on_is_said_and_never_recommended() -> None:
    """The traps: only `-md`, and a vocabulary that differs. The engine serves without a word."""
    off = [unit(DEEP, n, 300, proof=Proof("", slots=False, reason="the vocabs are not compatible"),
                answers=(answer(300),)) for n in range(3)]  # fmt: skip
    plain = [unit(PLAIN, n, 100) for n in range(3)]
    summaries = summarise([PLAIN, DEEP], [*plain, *off])
    assert summaries[1].state == "off"
    assert "not compatible" in str(summaries[1].why)
    assert summaries[1].speed is None
    assert judge(summaries).best is None


def test_on_and_idle_is_told_apart_from_off() -> None:
    idle = [unit(NGRAM, n, 101, answers=(answer(101),)) for n in range(3)]
    plain = [unit(PLAIN, n, 100) for n in range(3)]
    found = summarise([PLAIN, NGRAM], [*plain, *idle])[1]
    assert found.state == "idle" and found.gain is not None and found.rate is None


def test_a_variant_that_failed_is_a_row() -> None:
    failed = Measured(DEEP.key, 0, 1.0, error=phrase("it died of {what}", what="memory"))
    found = summarise([PLAIN, DEEP], [unit(PLAIN, 0, 100), failed])[1]
    assert found.state == "failed" and str(found.why) == "it died of memory"


def test_figures_of_the_report() -> None:
    """1,000 tokens in 172 passes are 5.8 tokens per pass (field report A10)."""
    answers = (Answer("p", 1000, 9, 10.0, 20000.0, 1000, 828, (), "", cut=False),)
    units = [unit(PLAIN, 0, 100), unit(DEEP, 0, 1, answers=answers, drafts=172)]
    found = summarise([PLAIN, DEEP], units)[1]
    assert found.passes == pytest.approx(172)
    assert found.per_pass == pytest.approx(5.81, abs=0.01)


def test_the_first_token_that_differs_is_found() -> None:
    one = answer(100)
    other = replace(one, ids=(*one.ids[:50], 7, 8), text="x" * 50 + "yz")
    assert first_difference(one, one) is None
    assert first_difference(one, other) == 50
    assert first_difference(one, replace(one, ids=one.ids[:90])) == 90
    units = [unit(PLAIN, 0, 100), unit(DEEP, 0, 150, answers=(replace(other, drafted=9),))]
    found = summarise([PLAIN, DEEP], units)[1]
    assert found.same_text is False
    assert (found.divergences[0].prompt, found.divergences[0].token) == ("code", 50)
    assert found.divergences[0].here == "yz"


def test_plain_that_differs_from_itself_is_seen() -> None:
    units = [unit(PLAIN, 0, 100), unit(PLAIN, 1, 100, answers=(answer(100, ids=(1, 2)),))]
    assert summarise([PLAIN], units)[0].same_text is False


@given(
    st.lists(st.floats(20, 400), min_size=2, max_size=5),
    st.lists(st.floats(20, 400), min_size=2, max_size=5),
)
def test_what_is_recommended_was_faster_in_every_round(a: list[float], b: list[float]) -> None:
    verdict = rounds(plain=a, deep=b)
    if verdict.best is not None:
        assert all(fast > slow for fast, slow in zip(b, a, strict=False))


def test_a_unit_comes_back_from_the_database_as_it_was() -> None:
    full = unit(
        DEEP, 1, 99, load=Share(others=0.5), flags=("contended",), by_position=(1.0, 0.5),
        memory=(("draft", "weights", "CPU_Mapped", 123),), features=("avx2",),
        error=phrase("{a} and {b}", a=phrase("inner {n}", n=1), b=2.5),
        findings=({"kind": "x"},),
    )  # fmt: skip
    assert decode(encode(full)) == full
    assert decode(encode(unit(PLAIN, 0, 5))) == unit(PLAIN, 0, 5)
