"""llama-fit-params and the no-alloc pass: what is asked, and what is made of the answer."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.engine import fit, noalloc, noalloc_server
from kvwise.engine.fit import FitChoice, read_choice, rename_buffers, settings
from kvwise.engine.loaded import Collector, Loaded
from kvwise.engine.log import read
from kvwise.engine.noalloc import Pass, Run, negotiated, on_virtual, pass_over, run, table, why
from kvwise.engine.outcome import Ending, EngineEnded, Outcome
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import EngineError, Refused
from kvwise.launch import Launch
from kvwise.units import GIB, MIB

GPU = VirtualGPU(6 * GIB, 5 * GIB)

LOG = """\
0.00.411.285 D llama_context: constructing llama_context
0.00.416.498 D llama_context: n_ctx                 = 8192
0.00.416.579 D llama_context:        CPU  output buffer size =     1.00 MiB
0.00.416.683 D llama_kv_cache: size =   24.00 MiB (  8192 cells,   3 layers,  1/1 seqs), K (f16): \
  12.00 MiB, V (f16):   12.00 MiB
0.00.522.530 D sched_reserve: RPC0[127.0.0.1:41305] compute buffer size =    25.52 MiB
0.00.522.532 D sched_reserve:        CPU compute buffer size =    11.52 MiB
0.00.592.031 I common_memory_breakdown_print: | memory breakdown [MiB]     | total    free    self \
  model   context   compute    unaccounted |
0.00.592.127 I common_memory_breakdown_print: |   - RPC0 (127.0.0.1:41305) | 24576 = 24576 + (  78 \
=    35 +      17 +      25) +         -78 |
0.00.592.175 I common_memory_breakdown_print: |   - Host                   |                   181 \
=   170 +       7 +      11                |
0.00.592.176 I common_memory_breakdown_print: |   - CPU_REPACK             |                    12 \
=    12 +       0 +       0                |
"""
PROJECTED = (
    "0.00.6 I common_params_fit_impl: projected to use 272 MiB of host memory vs. 24105 MiB of "
    "total host memory\n"
)


def loaded(text: str) -> Loaded:
    return Collector().add_all(read([text.encode()]))


def value(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_every_setting_that_moves_bytes_is_said_aloud() -> None:
    argv = settings(Launch(n_ctx=4096, type_k="q8_0", n_seq_max=2, tensor_split=(3, 1.5)))
    said = {flag: value(argv, flag) for flag in argv if flag.startswith("-")}
    assert said["-c"] == "4096"
    assert said["-ctk"], said["-ctv"] == ("q8_0", "f16")
    assert (said["-np"], said["-b"], said["-ub"], said["-ts"]) == ("2", "2048", "512", "3,1.5")
    assert said["-ngl"] == "999"


@pytest.mark.parametrize(
    ("change", "flags"),
    [
        ({"swa_full": True}, ["--swa-full"]),
        ({"offload_kqv": False}, ["-nkvo"]),
        ({"op_offload": False}, ["--no-op-offload"]),
        ({"repack": False}, ["--no-repack"]),
        ({"n_cpu_moe": 7}, ["-ncmoe", "7"]),
        ({"devices": ("none",)}, ["-dev", "none"]),
        ({"override_tensor": (("exps", "CPU"), ("a.*b", "CPU"))}, ["-ot", "exps=CPU,a.*b=CPU"]),
    ],
)
def test_one_setting_adds_its_flag_and_nothing_else(
    change: dict[str, object], flags: list[str]
) -> None:
    plain, argv = settings(Launch()), settings(replace(Launch(), **change))
    assert [word for word in argv if word in plain] == plain
    assert [word for word in flags if word not in argv] == []
    assert len(argv) == len(plain) + len(flags)


def test_virtual_gpus_take_the_place_of_devices_and_their_buffers() -> None:
    with VirtualDevices([GPU, GPU]) as gpus:
        argv = settings(Launch(devices=("CUDA0",)), gpus)
        assert "-dev" not in argv
        assert value(on_virtual(gpus), "-dev") == "RPC0,RPC1"
        pairs = (("a", "CUDA1"), ("b", "CPU"), ("c", "VGPU0"), ("d", "CUDA7"))
        names = [name for _, name in rename_buffers(pairs, gpus)]
        assert names == [f"RPC1[{gpus.endpoint}]", "CPU", f"RPC0[{gpus.endpoint}]", "CUDA7"]
    assert rename_buffers(pairs, None) == pairs
    assert on_virtual(None) == []


@pytest.mark.parametrize(
    ("change", "in_fit", "in_server"),
    [
        ({}, True, False),
        ({"n_outputs_max": 1}, False, True),
        ({"n_outputs_max": 4096}, True, False),
        ({"n_outputs_max": 4, "n_seq_max": 4, "kv_unified": True}, False, True),
        ({"n_seq_max": 4, "kv_unified": True}, False, False),
        ({"kv_unified": True}, True, False),
        ({"embeddings": True}, False, True),
        ({"pooling": "mean", "embeddings": True}, False, True),
        ({"mtp": True}, False, False),
    ],
)
def test_who_can_be_asked(change: dict[str, object], in_fit: bool, in_server: bool) -> None:
    launch = replace(Launch(), **change)
    assert fit.expressible(launch) is in_fit
    assert noalloc_server.expressible(launch) is in_server


def test_the_choice_is_read_as_printed() -> None:
    line = '-c 4096 -ngl 31 -ts 20,11 -ot "blk\\.1\\.ffn=RPC0[127.0.0.1:1],x=CPU"\n'
    assert read_choice(line) == FitChoice(
        4096, 31, (20, 11), r"blk\.1\.ffn=RPC0[127.0.0.1:1],x=CPU",
        ("-c", "4096", "-ngl", "31", "-ts", "20,11", "-ot",
         r"blk\.1\.ffn=RPC0[127.0.0.1:1],x=CPU"),
    )  # fmt: skip
    assert read_choice("-c 4096 -ngl -1").n_gpu_layers == -1


@given(st.text(max_size=80))
def test_anything_else_is_an_engine_error(text: str) -> None:
    with contextlib.suppress(EngineError):
        assert "-c" in read_choice(text).argv


def test_the_first_table_of_a_log_counts() -> None:
    again = LOG.replace("=    35 +", "=    99 +")
    rows = table(loaded(LOG + again))
    got = [(row.device, row.model.units, row.context.units, row.compute.units) for row in rows]
    assert got == [("RPC0", 35, 17, 25), ("Host", 170, 7, 11), ("CPU_REPACK", 12, 0, 0)]
    assert rows[0].model.agrees(36 * MIB - 1)
    assert not rows[0].model.agrees(36 * MIB)


def test_the_pass_is_over_when_fit_goes_on() -> None:
    assert not pass_over(loaded(LOG))
    assert pass_over(loaded(LOG + PROJECTED))
    assert not pass_over(loaded(PROJECTED))


def test_the_context_of_a_pass_is_its_first() -> None:
    later = LOG.replace("25.52", "99.99")
    found = Pass((), loaded(LOG + later), ())
    assert found.context is not None
    assert found.context.compute["RPC0[127.0.0.1:41305]"].mib == 25.52


HEAD = "0.00.015.755 E llama_init_from_model: "
REASONS = {
    "v_quant_needs_flash_attn": "quantized V cache requires flash_attn to be enabled",
    "k_block_vs_head_size": "K cache type q8_0 with block size 32 does not divide n_embd_head_k=80",
    "v_block_vs_head_size": "V cache type q8_0 with block size 32 does not divide n_embd_head_v=80",
    "mla_k_v_types_differ": "model does not support different K (q8_0) and V (f16) cache types",
    "internal_abort": "/x/ggml.c:2062: GGML_ASSERT(ggml_can_repeat(b, a)) failed",
}


def _ran(text: str, code: int = 1) -> Run:
    ending = Ending.EXITED if code == 0 else Ending.REFUSED
    return Run(Outcome(ending, code, 1, 0.0, False, said="it said"), loaded(text), "", False)


@pytest.mark.parametrize("code", REASONS)
def test_the_engines_reason_becomes_a_refusal_with_its_code(code: str) -> None:
    error = why(_ran(f"{HEAD}{REASONS[code]}\n"), "tool")
    assert isinstance(error, Refused)
    assert error.code == code
    assert REASONS[code][:20] in str(error)


def test_without_a_reason_the_end_is_told() -> None:
    assert isinstance(why(_ran("nothing known\n"), "tool"), EngineEnded)
    assert "tool ended without" in str(why(_ran("", 0), "tool"))


def test_no_rpc_in_a_build_is_told_at_once() -> None:
    tries = []

    def attempt() -> Run:
        tries.append(1)
        return _ran("error: invalid argument: --rpc\n")

    with VirtualDevices([GPU]) as gpus, pytest.raises(EngineError, match="no RPC"):
        negotiated(gpus, attempt)
    assert len(tries) == 1


def test_a_failure_before_any_hello_is_not_tried_forever() -> None:
    tries = []

    def attempt() -> Run:
        tries.append(1)
        return _ran("gguf_init_from_file: failed to open GGUF file 'x' (No such file)\n")

    with VirtualDevices([GPU]) as gpus:
        negotiated(gpus, attempt)
    assert len(tries) == 1


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_run_gives_what_was_printed() -> None:
    code = f"import sys; print('Host 1 2 3'); sys.stderr.write({LOG!r})"
    got = run(_python(code), limit_s=30)
    assert got.outcome.clean
    assert got.stdout == "Host 1 2 3"
    assert len(got.loaded.breakdown) == 3


def test_a_run_is_stopped_when_enough_is_said() -> None:
    code = f"import os, time; os.write(2, {(LOG + PROJECTED).encode()!r}); time.sleep(60)"
    got = run(_python(code), limit_s=30, enough=pass_over)
    assert got.enough
    assert got.outcome.ending is Ending.STOPPED


def test_a_silent_run_ends_with_an_error() -> None:
    with pytest.raises(EngineError, match="within 1 s"):
        run(_python("import time; time.sleep(60)"), limit_s=0.6)


def test_a_tool_that_is_not_there() -> None:
    with pytest.raises(EngineEnded):
        fit.measure(Path("/nonexistent/llama-fit-params"), Path("m.gguf"), Launch())


def test_host_is_called_as_llama_cpp_calls_it() -> None:
    assert noalloc.HOST == "Host"
