"""Log lines of every kind and age become events, and events add up to what was loaded."""

# ruff: noqa: ISC004 (two string pieces in a row are one line)

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.engine import events as ev
from kvwise.engine import log
from kvwise.engine.loaded import Collector, Loaded
from kvwise.engine.printed import Printed

from . import render

REPORTS = Path(__file__).parents[1] / "reports"
ALLOCATIONS: list[dict[str, Any]] = json.loads((REPORTS / "allocations.dev.json").read_text())
FAILURES: list[dict[str, Any]] = json.loads((REPORTS / "failures.dev.json").read_text())
LOGS = Path(__file__).parent / "logs"


def load(lines: list[str] | bytes) -> Loaded:
    data = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
    return Collector().add_all(log.read([data]))


def one(line: str) -> ev.Event | None:
    return log.read_line(log.split_line(1, line).text)


PREFIXES = {
    "none": "{}",
    "timestamps": "0.00.149.828 I {}",
    "error level": "0.12.149.828 E {}",
    "service": "Sep 26 10:00:00 box llama[123]: {}",
    "bridge": "# [2025-07-09 18:09:10.458] [info] [WASI-NN] llama.cpp: {}",
    "colour": "\x1b[34m0.00.149.828 I \x1b[0m{}\x1b[0m",
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("style", ["new", "unified", "self"])
@pytest.mark.parametrize("report", ALLOCATIONS, ids=lambda r: r["id"])
def test_every_value_of_a_public_report_comes_back(
    report: dict[str, Any], style: str, prefix: str
) -> None:
    lines = [PREFIXES[prefix].format(line) for line in render.log_of(report, style)]
    loaded, measured, params = load(lines), report["measured"], report["params"]
    check_context(loaded, params)
    check_buffers(loaded, measured)
    check_caches(loaded, measured, style)
    check_rest(loaded, measured)
    free = {d["backend"]: d["free_mib"] for d in report["devices"]}
    for device in loaded.devices:
        assert device.free.units == free[device.name]
    assert len(loaded.devices) == sum(isinstance(value, int) for value in free.values())


def check_context(loaded: Loaded, params: dict[str, Any]) -> None:
    main = loaded.main
    assert main is not None
    for name in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "n_seq_max", "flash_attn"):
        if name in params:
            # "enabled (forced by quantized V)": a word of the engine, and a remark of the report
            assert main.facts[name] == str(params[name]).split()[0]
    for name in ("kv_unified", "n_rs_seq", "n_outputs_max"):
        if name in params:
            assert main.facts[name] == str(params[name]).lower()
    if "/" in params.get("offloaded", ""):
        assert loaded.model is not None
        assert loaded.model.offloaded is not None
        assert "{}/{}".format(*loaded.model.offloaded) == params["offloaded"].split()[0]


def same(printed: Any, value: float) -> bool:
    return round(printed.mib, 4) == round(value, 4)


def check_buffers(loaded: Loaded, measured: dict[str, Any]) -> None:
    main = loaded.main
    assert main is not None
    for name, value in measured["model_mib"].items():
        assert loaded.model is not None
        assert same(loaded.model.weights[name], value)
    if any(cache["cache"] == "mtp-draft" for cache in measured["kv"]):
        return
    exits = {event.buffer: event.size for event in loaded.at_exit}
    for name, value in measured["compute_mib"].items():
        assert same(main.compute.get(name, exits.get(name)), value)
    for name, value in measured.get("output_mib", {}).items():
        assert same(main.output[name], value)
    splits = measured.get("graph_splits")
    if splits is not None:
        assert main.splits is not None
        want = splits if isinstance(splits, int) else next(iter(splits.values()))
        assert main.splits.prompt == want


def check_caches(loaded: Loaded, measured: dict[str, Any], style: str) -> None:
    found = [cache for context in loaded.contexts for cache in context.caches]
    kvs = [cache for cache in found if isinstance(cache.total, ev.KVCache)]
    states = [cache for cache in found if isinstance(cache.total, ev.RecurrentState)]
    assert len(kvs) == len(measured["kv"])
    assert len(states) == len(measured.get("rs", []))
    for cache, want in zip(kvs, measured["kv"], strict=True):
        total = cache.total
        assert isinstance(total, ev.KVCache)
        assert (total.cells, total.layers) == (want["cells"], want["layers"])
        if style == "new":
            assert (total.seqs, total.streams) == (want["n_seq_max"], want["n_stream"])
        assert same(total.size, want["size_mib"])
        if want["k_mib"] is not None:
            assert (total.type_k, total.type_v) == (want["type_k"], want["type_v"])
            assert total.k is not None
            assert total.v is not None
            assert same(total.k, want["k_mib"])
            assert same(total.v, want["v_mib"])
        for device, value in want["per_device_mib"].items():
            assert same(cache.by_buffer[device], value)
        if want["cache"] in ("SWA", "non-SWA"):
            assert cache.what == want["cache"]
    for cache, want in zip(states, measured.get("rs", []), strict=True):
        state = cache.total
        assert isinstance(state, ev.RecurrentState)
        assert (state.cells, state.layers) == (want["cells"], want["layers_printed"])
        assert (state.seqs, state.rs_seq) == (want["n_seq_max"], want["rs_seq"])
        assert same(state.size, want["size_mib"])
        if want["r_mib"] is not None:
            assert same(state.r, want["r_mib"])
            assert same(state.s, want["s_mib"])
        for device, value in want["per_device_mib"].items():
            assert same(cache.by_buffer[device], value)


def check_rest(loaded: Loaded, measured: dict[str, Any]) -> None:
    rows = {row.name: row for row in loaded.breakdown}
    for name, want in measured.get("breakdown", {}).items():
        row = rows[name]
        assert (row.own.units, row.model.units) == (want["self"], want["model"])
        assert (row.context.units, row.compute.units) == (
            want.get("context", 0),
            want.get("compute", 0),
        )
        if "total" in want:
            assert row.total is not None
            assert row.unaccounted is not None
            assert (row.total.units, row.unaccounted.units) == (want["total"], want["unaccounted"])
    fit = measured.get("fit")
    if fit:
        assert loaded.fit_projection is not None
        assert loaded.fit_target is not None
        assert loaded.fit_projection.used.units == fit["projected_mib"]
        assert loaded.fit_projection.available.units == fit["free_mib"]
        assert loaded.fit_target.target.units == fit["target_mib"]
        devices = {row.name.split()[0]: row for row in loaded.fit_devices}
        for name, want in fit.get("per_device", {}).items():
            assert devices[name].used.units == want["used"]
            assert devices[name].free.units == want["margin"]
        assert ("verdict" in fit) == (loaded.failure("fit") is not None)
    if "mmproj_mib" in measured:
        assert [part.size.mib for part in loaded.projector] == list(measured["mmproj_mib"].values())
    if "checkpoint_mib" in measured:
        assert loaded.prompt_cache[0].size.mib == measured["checkpoint_mib"]
    if "prompt_cache" in measured:
        limit, saved = loaded.prompt_cache
        assert limit.size.units == measured["prompt_cache"]["limit_mib"]
        assert saved.size.mib == measured["prompt_cache"]["saved_mib"]
    if "mtp_estimate_mib" in measured:
        assert loaded.extra_contexts[0].size.mib == measured["mtp_estimate_mib"]


QUIET = {
    # lines of these reports that are prose, or carry nothing to take out
    "nkvo-still-needs-vram",
    "iris-xe-max-buffer",
    "metal-8gb-working-set",
    "fit-hang",
    "ollama-truncating-2048",
    "nctx-less-than-train-warning",
    "vulkan-ring-timeout-ub512",
    "mtp-prefill-device-lost",
    "ot-comma-regex-last-wins",
}


@pytest.mark.parametrize("report", [r for r in FAILURES if r["symptom_log"]], ids=lambda r: r["id"])
def test_failure_lines_of_public_reports_are_read(report: dict[str, Any]) -> None:
    events = [one(line) for line in report["symptom_log"]]
    known = [event for event in events if event is not None]
    assert known or report["id"] in QUIET
    for event in known:
        if isinstance(event, ev.Failure) and "bytes" in event.fields:
            assert event.fields["bytes"].isdigit()


FAILURE_LINES = [
    ("E alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1056964608",
     "buffer_alloc", {"buffer": "Vulkan0", "bytes": "1056964608"}),
    ("ggml_backend_buft_alloc_buffer_n_default: failed to allocate CPU buffer of size 230397706240",
     "buffer_alloc", {"buffer": "CPU", "bytes": "230397706240"}),
    ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 137438953504",
     "buffer_alloc", {"bytes": "137438953504"}),
    ("ggml_vulkan: Device memory allocation of size 1056964608 failed.",
     "device_alloc", {"bytes": "1056964608"}),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8900.01 MiB on device 0: cudaMalloc "
     "failed: out of memory", "device_alloc", {"mib": "8900.01", "device": "0"}),
    ("ggml_aligned_malloc: insufficient memory (attempted to allocate 219729.38 MB)",
     "host_alloc", {"mb": "219729.38"}),
    ("0.00.5 E llama_init_from_model: failed to initialize the context: failed to allocate buffer "
     "for kv cache", "kv_alloc", {}),
    ("llama_init_from_model: quantized V cache requires flash_attn to be enabled",
     "v_quant_needs_flash_attn", {}),
    ("llama_init_from_model: K cache type q4_K with block size 256 does not divide "
     "n_embd_head_k=64", "block_vs_head_size",
     {"side": "K", "type": "q4_K", "block": "256", "head": "64"}),
    ('error while handling argument "-ctk": Unsupported cache type: q4_K',
     "cache_type_unsupported", {"type": "q4_K"}),
    ('error while handling argument "--draft-max": the argument has been removed.',
     "argument", {"flag": "--draft-max", "reason": "the argument has been removed."}),
    ("gguf_init_from_file: failed to open GGUF file 'F.gguf' (No such file or directory)",
     "file_open", {"path": "F.gguf"}),
    ("gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'", "not_gguf", {}),
    ("llama_model_load: error loading model: tensor 'blk.2.ffn_up.weight' data is not within the "
     "file bounds, model is corrupted or incomplete", "data_cut",
     {"tensor": "blk.2.ffn_up.weight"}),
    ("0.1 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
     "port_taken", {"host": "127.0.0.1", "port": "8080"}),
    ("/src/llama-context.cpp:1426: GGML_ASSERT(cparams.n_ubatch >= n_tokens && \"encoder requires "
     "n_ubatch >= n_tokens\") failed", "assert", {"where": "/src/llama-context.cpp:1426"}),
    ("Failed to connect to 127.0.0.1:50061", "rpc_connect", {"endpoint": "127.0.0.1:50061"}),
    ("resolve_fused_ops: layer 3 is assigned to device CUDA0 but the Flash Attention tensor is "
     "assigned to device CPU (usually due to missing support)", "layer_elsewhere",
     {"layer": "3", "device": "CUDA0", "other": "CPU"}),
    ("srv load_model: failed to initialize speculative decoding context: draft model vocab type "
     "must match target model to use speculation", "draft_vocab", {}),
    ("request (1500 tokens) exceeds the available context size (1024 tokens), try increasing it",
     "context_exceeded", {"tokens": "1500", "n_ctx": "1024"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code", "fields"), FAILURE_LINES, ids=lambda v: str(v)[:30])
def test_failure_lines(line: str, code: str, fields: dict[str, str]) -> None:
    event = one(line)
    assert isinstance(event, ev.Failure)
    assert event.code == code
    assert fields.items() <= event.fields.items()


def test_each_failure_counts_once_though_fit_makes_it_appear_twice() -> None:
    line = "llama_init_from_model: quantized V cache requires flash_attn to be enabled"
    loaded = load([line, "something else", line])
    assert [record.line for record in loaded.failures] == [1]


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda p: p.stem)
def test_whole_logs(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    assert summary(load(path.read_bytes())) == expected


def summary(loaded: Loaded) -> dict[str, Any]:
    """What a log adds up to, short enough to read and to keep beside it."""

    def amounts(values: Any) -> dict[str, float]:
        return {name: round(total.mib, 4) for name, total in values.items()}

    def cache(item: Any) -> list[Any]:
        total = item.total
        shape = [] if total is None else [total.size.mib, getattr(total, "cells", None)]
        return [item.what, type(total).__name__, *shape, amounts(item.by_buffer)]

    return {
        "models": [[m.draft, amounts(m.weights), m.facts.get("arch")] for m in loaded.models],
        "contexts": [
            [c.draft, c.facts.get("n_ctx"), c.facts.get("n_ctx_seq"), c.flash_attn,
             [cache(item) for item in c.caches], amounts(c.compute), amounts(c.output)]
            for c in loaded.contexts
        ],
        "listening": loaded.listening,
        "ready": loaded.ready,
        "speculation": loaded.speculation,
        "breakdown": [[row.name, row.own.units] for row in loaded.breakdown],
        "failures": [r.event.code for r in loaded.failures if isinstance(r.event, ev.Failure)],
    }  # fmt: skip


def test_a_log_in_any_pieces_gives_the_same_events() -> None:
    data = b"".join(path.read_bytes() for path in sorted(LOGS.glob("*.log")))
    whole = list(log.read([data]))
    assert len(whole) > 100
    rng = random.Random(7)
    for _ in range(20):
        cuts = sorted(rng.sample(range(len(data)), 50))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert list(log.read(pieces)) == whole


def test_windows_line_ends_and_broken_text() -> None:
    line = b"llama_kv_cache:        CPU KV buffer size =    45.00 MiB"
    assert [r.event for r in log.read([line + b"\r\n\xff\xfe\x00\r\n" + line])] == [
        ev.Buffer("kv", "CPU", Printed(4500))
    ] * 2


def test_a_line_of_any_length_costs_a_bounded_amount() -> None:
    reader = log.Reader()
    for _ in range(64):
        reader.feed(b"x" * 100_000)
        assert len(reader._rest) <= log.MAX_LINE
    assert reader.feed(b"\n") == []
    assert [type(r.event) for r in reader.feed(b"srv x: listening on http://127.0.0.1:1\n")] == [
        ev.Listening
    ]


def test_every_wording_is_a_pattern() -> None:
    # they are compiled when a line first needs them: a broken one would be found on some log only
    for rows, _ in log.failures.TABLES:
        for row in rows:
            assert row.pattern.search("") is None, row.source


WORDS = st.sampled_from(
    [row.needle for row in log.lines.ROWS]
    + [row[1] for row in log.failures.ROWS]
    + ["- ", " | ", "CPU", " 12.50 MiB", "(", ")", ":", ": ", " = ", "999999999999999999999", "'",
       "size =", "K (f16): ", "R (f32): ", "1", "/", " + ", "\t", "   ", "\x1b[0m", "é"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=40).map("".join))
@settings(max_examples=400, deadline=None)
def test_no_line_breaks_the_reader(line: str) -> None:
    records = list(log.read([line.encode()]))
    Collector().add_all(records)
    assert all(record.line >= 1 for record in records)


@given(st.binary(max_size=2000))
@settings(max_examples=200, deadline=None)
def test_no_bytes_break_the_reader(data: bytes) -> None:
    records = list(log.read([data]))
    assert len(records) <= data.count(b"\n") + 1


@given(
    cells=st.integers(0, 10**9), layers=st.integers(0, 999), seqs=st.integers(1, 256),
    streams=st.integers(1, 256), k=st.integers(0, 10**12), v=st.integers(0, 10**12),
    kind=st.sampled_from(["f16", "q8_0", "iq4_nl", "bf16"]),
)  # fmt: skip
def test_a_cache_line_comes_back(
    *, cells: int, layers: int, seqs: int, streams: int, k: int, v: int, kind: str
) -> None:
    mib = 1024**2
    line = (
        f"llama_kv_cache: size = {(k + v) / mib:7.2f} MiB ({cells:6d} cells, {layers:3d} layers, "
        f"{seqs:2d}/{streams} seqs), K ({kind}): {k / mib:7.2f} MiB, V ({kind}): {v / mib:7.2f} MiB"
    )
    event = one(line)
    assert isinstance(event, ev.KVCache)
    assert (event.cells, event.layers, event.seqs, event.streams) == (cells, layers, seqs, streams)
    assert event.k is not None
    assert event.v is not None
    assert event.k.agrees(k)
    assert event.v.agrees(v)
    assert event.size.agrees(k + v)
