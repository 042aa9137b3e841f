"""What is made of llama-perplexity's tables, its base file and its progress."""

from __future__ import annotations

import struct
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.engine.perplexity import (
    Base,
    Statistics,
    base_bytes,
    positions_of,
    read_base,
    read_statistics,
)
from kvwise.errors import EngineError

REAL = Path(__file__).parent / "logs" / "perplexity-b10605.txt"
"""stdout of `llama-perplexity --kl-divergence`: SmolLM2 135M Q4_1, f16, -ub 128 against 512."""

MILLIONTHS = st.integers(0, 10**9).map(lambda number: number / 10**6)
THOUSANDTHS = st.integers(0, 100_000).map(lambda number: number / 1000)


def tables(found: Statistics) -> str:
    """As the tool prints them: perplexity to 6 digits, shares in percent to 3."""
    same, error = 100 * found.same_top, 100 * found.same_top_error
    return f"""
chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence
   1      21.6054 ±    3.2177       0.00270 ±    0.00452       0.00483 ±    0.00040

====== Perplexity statistics ======
Mean PPL(Q)                   : {found.ppl:10.6f} ±   1.000000
Mean PPL(base)                : {found.ppl_base:10.6f} ±   1.000000
Cor(ln(PPL(Q)), ln(PPL(base))):  99.95%
Mean ln(PPL(Q)/PPL(base))     :   0.003100 ±   0.002000
Mean PPL(Q)/PPL(base)         : {found.ppl_ratio:10.6f} ± {found.ppl_ratio_error:10.6f}
Mean PPL(Q)-PPL(base)         :  -0.072000 ±   0.046000

====== KL divergence statistics ======
Mean    KLD: {found.kl_mean:10.6f} ± {found.kl_mean_error:10.6f}
Maximum KLD: {found.kl_max:10.6f}
99.9%   KLD:   0.060000
99.0%   KLD: {found.kl_p99:10.6f}
95.0%   KLD:   0.010000
Median  KLD: {found.kl_median:10.6f}
 1.0%   KLD:   0.000010
Minimum KLD:  -0.000003

====== Token probability statistics ======
Mean    Δp: -0.013 ± 0.040 %
99.0%   Δp:  4.200%
RMS Δp    :  1.600 ± 0.100 %
Same top p: {same:6.3f} ± {error:5.3f} %
"""


@st.composite
def statistics_(draw: st.DrawFn) -> Statistics:
    shares = {"same_top", "same_top_error"}
    names = Statistics.__dataclass_fields__
    values = {name: draw(THOUSANDTHS) / 100 if name in shares else draw(MILLIONTHS)
              for name in names}  # fmt: skip
    return Statistics(**values)


@given(statistics_())
def test_what_is_printed_is_read(found: Statistics) -> None:
    assert asdict(read_statistics(tables(found))) == pytest.approx(asdict(found), abs=1e-9)


def test_real_tables() -> None:
    found = read_statistics(REAL.read_text(encoding="utf-8"))
    assert found.kl_mean == 1e-06
    assert found.same_top == pytest.approx(1.0)
    assert found.ppl_ratio_error is None


@given(statistics_(), st.data())
def test_a_table_that_was_cut_off_is_an_error_or_whole(
    found: Statistics, data: st.DataObject
) -> None:
    text = tables(found)
    cut = data.draw(st.integers(0, len(text)))
    try:
        got = read_statistics(text[:cut])
    except EngineError as error:
        assert "llama-perplexity printed no" in str(error)
    else:
        assert got.kl_mean == pytest.approx(found.kl_mean)


@given(st.text(max_size=400))
def test_any_text_is_an_error(text: str) -> None:
    with pytest.raises(EngineError):
        read_statistics(text)


@pytest.mark.parametrize("bad", ["nan", "-nan", "inf", "-inf", ""])
def test_what_is_no_number_is_an_error(bad: str) -> None:
    text = tables(Statistics(*[0.5] * 11)).replace("Maximum KLD:   0.500000", f"Maximum KLD: {bad}")
    with pytest.raises(EngineError, match="kl_max"):
        read_statistics(text)


def test_an_error_that_the_tool_cannot_tell_is_unknown() -> None:
    """As seen of f16 against f16 with another batch: the root of a rounding below zero."""
    text = tables(Statistics(*[0.5] * 11)).replace(
        "PPL(Q)/PPL(base)         :   0.500000 ±   0.500000",
        "PPL(Q)/PPL(base)         :   0.500000 ±       -nan",
    )
    found = read_statistics(text)
    assert found.ppl_ratio_error is None
    assert found.ppl_ratio == 0.5


def test_a_rounding_below_zero_is_zero() -> None:
    text = tables(Statistics(*[0.5] * 11)).replace("Mean    KLD:   0.5", "Mean    KLD:  -0.0")
    assert read_statistics(text).kl_mean == 0.0


@pytest.mark.parametrize(
    ("n_vocab", "per_chunk"),
    [(49152, 25_070_000), (262144, 133_690_000)],  # measured: 25.1 and 133.7 MB
)
def test_size_of_a_base(n_vocab: int, per_chunk: int) -> None:
    assert base_bytes(n_vocab, 512, 3) == pytest.approx(3 * per_chunk, rel=2e-3)
    assert positions_of(512) == 255


def test_a_base_that_is_not_whole_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "base"
    assert read_base(path) is None
    path.write_bytes(struct.pack("<8s3i", b"_logits_", 64, 10, 2))
    assert read_base(path) == Base(path, 64, 10, 2, complete=False)
    size = base_bytes(10, 64, 2)
    with path.open("r+b") as file:
        file.truncate(size)
    found = read_base(path)
    assert found is not None
    assert found.complete
    assert found.positions == 62
    with path.open("r+b") as file:
        file.truncate(size + 1)
    assert not read_base(path).complete  # type: ignore[union-attr]


@given(st.binary(max_size=40))
def test_any_file_is_a_base_or_none(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("base") / "x"
    path.write_bytes(data)
    found = read_base(path)
    assert found is None or not found.complete
