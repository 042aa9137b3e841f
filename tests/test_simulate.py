"""simulate: the engine's own ledger, from the embedded engine and from what a tool printed."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.engine.find import Engine, embedded
from kvwise.engine.loaded import Collector
from kvwise.engine.log import read
from kvwise.engine.noalloc import Pass, Row, whole
from kvwise.engine.simulated import ledger_of
from kvwise.engine.simulated_beside import with_beside
from kvwise.errors import HeaderError, Refused, SourceError, UsageError
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.simulate import command, simulate, simulation
from kvwise.text import phrase
from kvwise.units import GIB, MIB
from models import smollm2
from zoo_files import ZOO

QWEN = str(ZOO / "models" / "qwen3-8b.json.gz")
GEMMA = str(ZOO / "models" / "gemma-3-27b.json.gz")
CARD = Device("card", "generic", 8 * GIB, 7 * GIB)
PLAIN = Launch(n_ctx=4096, n_outputs_max=1, mmap=False, repack=False)

needs_engine = [
    pytest.mark.engine,
    pytest.mark.xdist_group("engine"),
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="no xllamacpp"),
]


class TestEmbedded:
    pytestmark = needs_engine

    @pytest.mark.parametrize("ref", [QWEN, GEMMA])
    @pytest.mark.parametrize(
        "change",
        [
            {},
            {"type_k": "q8_0", "type_v": "q4_0"},
            {"n_seq_max": 4, "n_outputs_max": 4, "kv_unified": True},
            {"n_seq_max": 3, "n_outputs_max": 3},
            {"swa_full": True, "n_ubatch": 256},
        ],
    )
    def test_a_model_that_is_not_here_is_asked_about_through_a_twin(
        self, ref: str, change: dict[str, object]
    ) -> None:
        launch = replace(PLAIN, **change)
        told = simulate(ref, launch, engine=embedded())
        ours = account(told.model, launch, [], compute_mode="none")
        line = told.host
        assert line.basis == {
            "weights": "simulated", "context": "simulated", "compute": "simulated",
            "output": "simulated",
        }  # fmt: skip
        assert 0 <= ours.host.weights_bytes - line.weights_bytes < MIB
        assert near(line.context_bytes, ours.host.context_bytes, len(told.caches))
        assert near(line.output_bytes, ours.host.output_bytes, 1)
        assert line.compute_bytes > 0
        assert _shape(told) == _shape(ours)

    def test_a_file_is_asked_about_as_it_is(self) -> None:
        ref = str(smollm2())
        got = simulation(ref, PLAIN, engine=embedded())
        assert ref in json.loads(got.argv[-1])["model"]
        assert got.ledger.context.n_ctx == 4096
        assert got.ledger.caches[0].k_bytes == 30 * 192 * 4096 * 2

    def test_repacked_weights_are_a_part_of_their_own(self) -> None:
        plain = simulate(QWEN, PLAIN, engine=embedded()).host
        told = simulate(QWEN, replace(PLAIN, repack=True), engine=embedded()).host
        first, *others = told.parts
        assert first.buffer == "CPU"
        # Which weights are repacked, if any, depends on the processor; none is lost.
        assert [part.buffer for part in others] in ([], ["CPU_REPACK"])
        assert abs(told.weights_bytes - plain.weights_bytes) < 2 * MIB

    def test_a_context_far_beyond_this_machine_costs_nothing(self) -> None:
        told = simulate(QWEN, replace(PLAIN, n_ctx=10_000_000), engine=embedded())
        assert told.host.context_bytes > 1000 * GIB

    def test_what_it_refuses_is_refused(self) -> None:
        launch = replace(PLAIN, type_v="q8_0", flash_attn="off")
        with pytest.raises(Refused) as error:
            simulate(QWEN, launch, engine=embedded())
        assert error.value.code == "v_quant_needs_flash_attn"

    def test_the_limit_of_time_holds(self) -> None:
        from kvwise.errors import EngineError

        with pytest.raises(EngineError):
            simulate(QWEN, PLAIN, engine=embedded(), limit_s=0.01)


def near(told: int, ours: int, printed: int) -> bool:
    """Equal but for the rounding of so many printed figures."""
    return abs(told - ours) <= printed * (MIB // 200 + 1)


def _shape(ledger: Ledger) -> object:
    caches = [(c.role, c.cells, c.streams, len(c.layers)) for c in ledger.caches]
    context = ledger.context
    return caches, context.n_ctx, context.n_ctx_seq, context.n_ubatch, context.flash_attn


def test_the_embedded_engine_has_no_gpus_to_offer() -> None:
    with pytest.raises(UsageError, match="embedded engine cannot simulate card"):
        simulate(QWEN, PLAIN, [CARD], engine=Engine("embedded"))


def test_no_tool_can_be_asked_for_odd_numbers_of_logits() -> None:
    launch = replace(PLAIN, n_outputs_max=7)
    with pytest.raises(UsageError, match="another number of logits"):
        simulate(QWEN, launch, [CARD], engine=Engine("binary", "/nonexistent/llama-server"))


def test_the_command_is_shown_without_running_it(tmp_path: Path) -> None:
    for name in ("llama-server", "llama-fit-params"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    engine = Engine("binary", str(tmp_path / "llama-server"))
    argv = command(QWEN, replace(PLAIN, n_outputs_max=0), [CARD], engine=engine)
    assert argv[:7] == (
        str(tmp_path / "llama-fit-params"), "-m", "TWIN", "--rpc", "127.0.0.1:PORT", "-dev", "RPC0",
    )  # fmt: skip
    served = command(QWEN, PLAIN, [CARD], engine=engine)
    assert served[0] == str(tmp_path / "llama-server")
    assert "127.0.0.1:PORT" in served
    alone = command(QWEN, replace(PLAIN, n_outputs_max=0), [], engine=engine)
    assert alone[alone.index("-dev") + 1] == "none"


def test_one_gpu_of_several_is_the_only_one_asked_about(tmp_path: Path) -> None:
    tool = tmp_path / "llama-fit-params"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    launch = replace(PLAIN, n_outputs_max=0, split_mode="none", main_gpu=1)
    engine = Engine("binary", str(tmp_path / "llama-server"))
    argv = command(QWEN, launch, [CARD, replace(CARD, index=1)], engine=engine)
    assert argv[argv.index("-dev") + 1] == "RPC0"
    assert argv[argv.index("-mg") + 1] == "0"


@pytest.mark.parametrize("ref", ["/nonexistent/model.gguf", "hf:", str(Path(__file__))])
def test_what_is_no_model_is_told_before_any_engine_starts(ref: str) -> None:
    with pytest.raises((SourceError, HeaderError, UsageError)):
        simulate(ref, PLAIN, engine=Engine("binary", "/nonexistent/llama-server"))


# -- what a tool printed -> Ledger -----------------------------------------------------------------

LOG = """\
0.00.416.497 D llama_context: constructing llama_context
0.00.416.498 D llama_context: n_seq_max             = 1
0.00.416.498 D llama_context: n_ctx                 = 8192
0.00.416.498 D llama_context: n_ctx_seq             = 8192
0.00.416.498 D llama_context: n_batch               = 2048
0.00.416.499 D llama_context: n_ubatch              = 512
0.00.416.500 D llama_context: flash_attn            = {flash}
0.00.416.501 D llama_context: kv_unified            = false
0.00.416.505 D llama_context: n_outputs_max         = 2048
0.00.416.579 D llama_context:        CPU  output buffer size =     0.58 MiB
0.00.416.683 D llama_kv_cache: size = 1152.00 MiB (  8192 cells,  36 layers,  1/1 seqs), \
K (f16):  576.00 MiB, V (f16):  576.00 MiB
0.00.522.530 D sched_reserve: RPC0[127.0.0.1:41305] compute buffer size =   304.75 MiB
0.00.522.530 D sched_reserve: RPC1[127.0.0.1:41305] compute buffer size =   {last} MiB
0.00.522.532 D sched_reserve:        CPU compute buffer size =    24.01 MiB
"""
TABLE = (("RPC0", 2588, 608, 304), ("RPC1", 1999, 544, 99), ("Host", 333, 0, 24))
GPUS = (CARD, Device("other", "cuda", 24 * GIB, 20 * GIB, 1))


def said(
    table: tuple[tuple[str, int, int, int], ...] = TABLE, flash: str = "enabled", last: str = "99.5"
) -> Pass:
    rows = tuple(Row(name, *(whole(str(n)) for n in sizes)) for name, *sizes in table)
    log = LOG.format(flash=flash, last=last).encode()
    return Pass(rows, Collector().add_all(read([log])), ("llama-fit-params",))


def test_a_table_becomes_lines_with_the_logs_finer_figures() -> None:
    model = describe(open_header(QWEN))
    ledger = ledger_of(said(), model, Launch(n_ctx=8192), GPUS, Host(available_bytes=8 * GIB))
    first, second, host = ledger.lines
    assert [line.buffer for line in ledger.lines] == ["VGPU0", "CUDA1", "CPU"]
    assert (first.device, first.free_bytes) == ("card", 7 * GIB)
    assert (first.weights_bytes, first.context_bytes) == (2588 * MIB, 608 * MIB)
    assert first.compute_bytes == 304 * MIB + MIB * 3 // 4
    assert second.compute_bytes == 99 * MIB + MIB // 2
    assert host.host
    assert host.free_bytes == 8 * GIB
    assert host.compute_bytes == round(24.01 * MIB)
    assert host.output_bytes == round(0.58 * MIB)
    assert ledger.context.n_outputs_max == 2048
    assert ledger.context.flash_attn
    assert ledger.compute_mode == "no-alloc"
    assert [(cache.cells, cache.nbytes) for cache in ledger.caches] == [(8192, 1152 * MIB)]


def test_a_device_that_is_not_generic_leaves_a_doubt() -> None:
    model = describe(open_header(QWEN))
    doubts = ledger_of(said(), model, Launch(n_ctx=8192), GPUS).doubts
    assert "stands in for CUDA" in str(doubts[0])
    assert ledger_of(said(), model, Launch(n_ctx=8192), (CARD,)).verified


def test_each_doubt_stands_once_beside_what_was_computed() -> None:
    model = describe(open_header(QWEN))
    launch = Launch(n_ctx=8192, n_gpu_layers=99)
    ledger = ledger_of(said(), model, launch, GPUS)
    computed = replace(account(model, launch, GPUS), doubts=(*ledger.doubts, phrase("another")))
    assert with_beside(ledger, computed).doubts == (*ledger.doubts, phrase("another"))


@pytest.mark.parametrize(
    ("last", "bytes_said"),
    [
        ("98.99", 99 * MIB),  # another figure than the table's: the table counts
        ("100.00", 100 * MIB),  # 99.998 is cut to 99 and rounded to 100.00
        ("99.00", 99 * MIB),
    ],
)
def test_the_log_counts_only_where_it_can_be_the_same_amount(last: str, bytes_said: int) -> None:
    model = describe(open_header(QWEN))
    ledger = ledger_of(said(last=last), model, Launch(n_ctx=8192), GPUS)
    assert ledger.lines[1].compute_bytes == bytes_said


@pytest.mark.parametrize(("flash", "on"), [("enabled", True), ("disabled", False)])
def test_flash_attention_that_was_never_in_question(flash: str, on: bool) -> None:
    model = describe(open_header(QWEN))
    ledger = ledger_of(said(flash=flash), model, Launch(n_ctx=8192), GPUS)
    assert ledger.context.flash_attn is on


def test_caches_on_one_device_are_as_fine_as_their_own_lines() -> None:
    model = describe(open_header(QWEN))
    table = (("RPC0", 4000, 1152, 304), ("Host", 333, 0, 24))
    ledger = ledger_of(said(table), model, Launch(n_ctx=8192), (CARD,))
    assert ledger.lines[0].context_bytes == 1152 * MIB


def test_an_empty_pass_gives_an_empty_ledger() -> None:
    model = describe(open_header(QWEN))
    empty = Pass((), Collector().loaded, ())
    ledger = ledger_of(empty, model, Launch(n_ctx=8192), (CARD,))
    assert [line.total_bytes for line in ledger.lines] == [0, 0]
    assert ledger.caches == ()
