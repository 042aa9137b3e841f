"""The whole measurement on the real engine: forced text, prompts, units that resume.

llama-perplexity is used where KVWISE_TEST_ENGINE names a llama-server that has it beside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.engine import perplexity
from kvwise.engine.find import Engine, find
from kvwise.errors import Interrupted, UsageError
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.quality import Request, measure, scorers, sensitivity
from kvwise.quality import run as run_module
from kvwise.quality.plan import settings
from kvwise.quality.prompts import prompts
from kvwise.quality.scorers import ByServer, Setup
from kvwise.quality.texts import Text, shipped
from kvwise.results import load
from kvwise.store import Store
from models import large_keys, short_smollm2, smollm2

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

NAMES = ("arithmetic", "needle-50")


@pytest.fixture
def engine() -> Engine:
    pytest.importorskip("xllamacpp")
    return find("embedded")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _few_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    some = tuple(replace(each, n_predict=12) for each in prompts() if each.name in NAMES)
    monkeypatch.setattr(run_module, "prompts", lambda: some)
    monkeypatch.setattr(run_module, "_LEAST_CTX", 384)


def request(engine: Engine, *pairs: str, model: Path | None = None, **changes: Any) -> Request:
    """Of a model with a third of the layers, unless one is named."""
    launches = tuple(
        Launch(flash_attn="on", type_k=pair.split("/")[0], type_v=pair.split("/")[1])
        for pair in pairs
    )
    fixed = {"chunks": 2, "chunk_tokens": 128, "threads": 1, "needle_tokens": 1024}
    opened = open_model(str(model or short_smollm2()))
    return Request(opened, launches, engine, **fixed | changes)


def test_types_are_told_apart_and_kept(engine: Engine, store: Store) -> None:
    heard, paces = [], []
    found = measure(
        request(engine, "f16/f16", "q4_0/q4_0", model=smollm2(), needle_tokens=384), store,
        found=heard.append, progress=paces.append,
    )  # fmt: skip
    base, coarse = found
    assert [each.state for each in found] == ["ok", "ok"]
    assert base.figures["reference"]
    assert base.figures["kl_mean"] == 0.0
    assert base.figures["verdict"] == "lossless"
    assert coarse.figures["positions"] == 2 * perplexity.positions_of(128)
    assert coarse.figures["kl_mean"] > 3 * coarse.figures["noise_kl_mean"] >= 0.0
    assert 0.5 < coarse.figures["same_top"] < 1.0
    assert "ppl_ratio" not in coarse.figures  # a server cannot tell
    assert [each["name"] for each in coarse.figures["prompts"]] == list(NAMES)
    assert all(each["diverged_at"] is None for each in base.figures["prompts"])
    for one, other in zip(base.figures["prompts"], coarse.figures["prompts"], strict=True):
        assert one["noise_known"]
        assert one["noise_at"] == other["noise_at"]  # f16 beside itself, whatever it is put beside
        assert not one["beyond_noise"]
    assert coarse.test["text"] == shipped().hash
    assert coarse.median == coarse.figures["kl_mean"]
    assert heard == found
    assert load(store, kind="fidelity") == sorted(found, key=lambda each: (each.at, each.identity))
    assert paces[-1].done == paces[-1].total == 9
    assert not list((Path(os.environ["KVWISE_HOME"]) / "cache" / "quality").iterdir())


@pytest.mark.slow
def test_keys_that_are_far_larger_than_the_rest_break_a_cache_of_4_bits(
    engine: Engine, store: Store
) -> None:
    """What models with large key biases do: V in 4 bits is well, K is lost, and is no slower."""
    asked = request(engine, "q4_0/f16", "f16/q4_0", model=large_keys(), ask=False)
    k, v = measure(asked, store)
    assert (k.figures["verdict"], k.figures["kl_mean"] > 1.0) == ("broken", True)
    assert v.figures["verdict"] != "broken"
    (told,) = sensitivity([k, v])
    assert told.resolved
    assert "costs K more than V" in str(told.sentence)


def test_a_fresh_server_repeats_itself_bit_for_bit(engine: Engine, tmp_path: Path) -> None:
    text = Text("short", shipped().content[:2500])
    setup = Setup(str(short_smollm2()), engine, text, 1, 64, 1, tmp_path)
    scorer, base = ByServer(setup), settings([Launch(flash_attn="on")], 64)[0].launch
    scorer.base("x", base)
    again = scorer.score("x", base, base, "again")
    assert (again["kl_max"], again["same_top"]) == (0.0, 1.0)


def test_a_chunk_does_not_depend_on_those_before_it_and_is_kept(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the second chunk, a base has lost that one alone, and comes out the same."""
    text = Text("short", shipped().content[:2500])
    base = settings([Launch(flash_attn="on")], 64)[0].launch
    whole = ByServer(Setup(str(short_smollm2()), engine, text, 3, 64, 1, tmp_path / "whole"))
    stopped = ByServer(Setup(str(short_smollm2()), engine, text, 3, 64, 1, tmp_path / "stopped"))
    for scorer in (whole, stopped):
        scorer.setup.folder.mkdir()
    whole.base("x", base)
    asked: list[Any] = []
    real = scorers.positions

    def counted(server: Any, chunk: Any, *more: Any) -> Any:
        asked.append(chunk)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(server, chunk, *more)

    monkeypatch.setattr(scorers, "positions", counted)
    with pytest.raises(KeyboardInterrupt):
        stopped.base("x", base)
    stopped.base("x", base)
    assert len(asked) == 1 + 1 + 2
    for name in ("base-x-0.positions", "base-x-1.positions", "base-x-2.positions"):
        one, other = ((each.setup.folder / name).read_bytes() for each in (whole, stopped))
        assert one == other


@pytest.mark.slow
def test_q4_0_costs_the_keys_of_a_real_model_more_than_its_values(
    engine: Engine, store: Store
) -> None:
    asked = request(engine, "q4_0/f16", "f16/q4_0", model=smollm2(), ask=False)
    (told,) = sensitivity(measure(asked, store))
    assert told.resolved
    assert told.ratio is not None
    assert told.ratio > 2
    assert "keep K wider" in str(told.sentence)


def test_a_text_too_short_is_said(engine: Engine, store: Store) -> None:
    short = request(engine, "q8_0/q8_0", ask=False, text=Text("short", "one two three"))
    with pytest.raises(UsageError, match="tokens"):
        measure(short, store)


def test_too_few_positions_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="too few"):
        request(engine, "q8_0/q8_0", chunks=1, chunk_tokens=64)


def test_a_tool_that_is_not_there_is_said(engine: Engine, store: Store) -> None:
    asked = request(engine, "q8_0/q8_0", method=perplexity.TOOL)
    with pytest.raises(UsageError, match="llama-perplexity"):
        measure(asked, store)


def test_ctrl_c_keeps_what_was_done_and_what_is_refused_is_skipped(
    engine: Engine, store: Store
) -> None:
    one = request(engine, "q8_0/q8_0", ask=False, chunk_tokens=64, chunks=4)
    off = replace(one.launches[0], flash_attn="off")
    asked = replace(one, launches=(off, replace(off, type_v="f16")))

    def stop(pace: Any) -> None:
        if pace.done == 1:
            raise KeyboardInterrupt

    with pytest.raises((Interrupted, KeyboardInterrupt)):
        measure(asked, store, progress=stop)
    paces: list[Any] = []
    found = measure(asked, store, progress=paces.append)
    assert paces[0].kept == 1
    assert [each.state for each in found] == ["skipped", "ok"]
    assert "V cache" in found[0].figures["why"][0] or "flash" in found[0].figures["why"][0]


SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    from kvwise.store import Store
    from quality.test_measure import request
    from kvwise.engine.find import find
    from kvwise.quality import measure
    asked = request(find("embedded"), "q4_0/f16", ask=False, chunk_tokens=64, chunks=4)
    with Store() as store:
        measure(asked, store, step=lambda done, _: print(done, flush=True))
"""


def killed_after(steps: int) -> bool:
    """Run the script and kill it when it has done so many positions; False if it was through."""
    tests = str(Path(__file__).parent.parent)
    code = textwrap.dedent(SCRIPT.format(tests=tests))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        for _ in range(steps):
            if not lines.readline():
                return bool(process.wait())
        process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def figures(store: Store) -> list[dict[str, Any]]:
    return [dict(each.figures) for each in load(store, kind="fidelity")]


@pytest.mark.parametrize(
    ("steps", "done"),  # a base has 124 positions, its noise here two times as many
    [(40, 0), pytest.param(130, 1, marks=pytest.mark.slow),
     pytest.param(400, 2, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_killed_run_goes_on_and_finds_the_same(  # noqa: PLR0917 (fixtures)
    engine: Engine, store: Store, steps: int, done: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert killed_after(steps)
    asked = request(engine, "q4_0/f16", ask=False, chunk_tokens=64, chunks=4)
    kept: list[Any] = []
    found = measure(asked, store, progress=kept.append)
    assert kept[0].kept == done
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path))
    with Store() as other:
        whole = measure(asked, other)
        assert figures(other) == figures(store)
    assert [each.identity for each in whole] == [each.identity for each in found]


@pytest.mark.skipif("KVWISE_TEST_ENGINE" not in os.environ, reason="no binary engine was named")
def test_both_ways_agree(store: Store) -> None:
    """Noise of the two differs, so only what stands far above it can be compared."""
    binary = find(os.environ["KVWISE_TEST_ENGINE"])
    if binary.tool(perplexity.TOOL) is None:
        pytest.skip("there is no llama-perplexity beside it")
    asked = request(binary, "q4_0/q4_0", model=smollm2(), ask=False, chunks=2, chunk_tokens=512)
    began = time.time()
    by_tool = measure(asked, store)[0]
    over_http = measure(replace(asked, method="http"), store)[0]
    assert by_tool.figures["ppl_ratio"] > 0
    ratio = over_http.figures["kl_mean"] / by_tool.figures["kl_mean"]
    assert 0.85 < ratio < 1.15, time.time() - began
