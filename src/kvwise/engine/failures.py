"""Log lines of known failures: one row each, with the values the line carries.

Only what the engine says; what it means and what to do is the diagnosis' business. Source: the
strings of llama.cpp b10605 (src, common, ggml, tools/server), the same words in earlier builds.
"""

# ruff: noqa: ISC004 (two string pieces in one row are one pattern)

from __future__ import annotations

import re

from kvwise.engine import events as ev

_TABLE: tuple[tuple[str, str, str], ...] = (
    # code, needle, pattern with named groups
    ("buffer_alloc", "failed to allocate ",
     r"failed to allocate (?:(?P<buffer>\S+) )?buffer of size (?P<bytes>\d{1,20})(?!\.)"),
    ("device_alloc", "Device memory allocation of size",
     r"Device memory allocation of size (?P<bytes>\d{1,20}) failed"),
    ("device_alloc", "on device ",
     r"allocating (?P<mib>\d{1,15}\.\d+) MiB on device (?P<device>\d{1,4}): (?P<reason>.{1,200})"),
    ("host_alloc", "insufficient memory (attempted",
     r"insufficient memory \(attempted to allocate\s+(?P<mb>\d{1,15}\.\d+) MB\)"),
    ("buffer_limit", "exceeds device",
     r"(?:Requested buffer size exceeds device|exceeds device) (?P<limit>[\w ]{1,60}) limit"),
    ("kv_alloc", "buffer for kv cache", r"failed to allocate buffer for kv cache"),
    ("rs_alloc", "buffer for rs cache", r"failed to allocate buffer for rs cache"),
    ("weights_alloc", "unable to allocate ", r"unable to allocate (?P<buffer>\S+) buffer"),
    ("compute_alloc", "failed to allocate compute", r"failed to allocate compute"),
    ("output_alloc", "failed to reserve initial output buffer",
     r"failed to reserve initial output buffer"),
    ("retry_without_pipeline", "without pipeline", r"retrying without pipeline parallelism"),
    ("v_quant_needs_flash_attn", "quantized V cache",
     r"quantized V cache (?:requires flash_attn to be enabled|was requested, but this requires)"),
    ("v_quant_needs_flash_attn", "V cache quantization requires",
     r"V cache quantization requires flash_attn"),
    ("block_vs_head_size", "with block size",
     r"(?P<side>[KV]) cache type (?P<type>\S+) with block size (?P<block>\d{1,9}) does not divide "
     r"n_embd_head_[kv]=(?P<head>\d{1,9})"),
    ("mla_k_v_types_differ", "does not support different K",
     r"does not support different K \((?P<k>\w+)\) and V \((?P<v>\w+)\)"),
    ("cache_type_unsupported", "Unsupported cache type", r"Unsupported cache type: (?P<type>\S+)"),
    ("context_init", "failed to initialize the context",
     r"ailed to initialize the context: (?P<reason>.{1,300})"),
    ("file_open", "failed to open GGUF file", r"failed to open GGUF file '(?P<path>[^']*)'"),
    ("not_gguf", "invalid magic characters", r"invalid magic characters: (?P<magic>.{1,40})"),
    ("header_cut", "gguf_init_from",
     r"gguf_init_from\w*: failed to read (?P<what>magic|header|key-value pairs|tensor info)"),
    ("data_cut", "not within the file bounds",
     r"tensor '(?P<tensor>[^']{1,200})' data is not within the file bounds"),
    ("architecture_unknown", "model architecture: '",
     r"(?:unknown|unsupported) model architecture: '(?P<arch>[^']{0,100})'"),
    ("tokenizer_unknown", "unknown tokenizer", r"unknown tokenizer: '(?P<name>[^']{0,100})'"),
    ("tensor_missing", "missing tensor '", r"missing tensor '(?P<tensor>[^']{1,200})'"),
    ("tensor_type_unknown", "has invalid ggml type",
     r"tensor '(?P<tensor>[^']{1,200})' has invalid ggml type (?P<type>-?\d{1,9})"),
    ("tensor_count", "wrong number of tensors", r"wrong number of tensors; expected (?P<want>\d+), "
     r"got (?P<got>\d+)"),
    ("split_illegal", "illegal split file idx", r"illegal split file idx: (?P<index>\d+)"),
    ("split_missing", "failed to load GGUF split", r"failed to load GGUF split from (?P<path>.+)$"),
    ("model_load", "error loading model", r"error loading model: (?P<reason>.{1,300})"),
    ("port_taken", "couldn't bind HTTP server socket",
     r"couldn't bind HTTP server socket, hostname: (?P<host>\S+), port: (?P<port>\d{1,6})"),
    ("argument", "error while handling argument",
     r"error while handling argument \"(?P<flag>[^\"]{1,80})\": (?P<reason>.{1,300})"),
    ("argument", "error: invalid", r"error: invalid (?:argument|parameter for argument): "
     r"(?P<flag>\S{1,80})"),
    ("device_name", "invalid device", r"invalid device: (?P<device>\S{1,80})"),
    ("fit", "failed to fit params",
     r"failed to fit params to free device memory: (?P<reason>.{1,300})"),
    ("fit", "encountered an error while trying to fit",
     r"while trying to fit params to free device memory: (?P<reason>.{1,300})"),
    ("rpc_connect", "Failed to connect to", r"Failed to connect to (?P<endpoint>\S+)"),
    ("rpc_lost", "Remote RPC server crashed", r"Remote RPC server crashed"),
    ("rpc_version", "RPC server version mismatch",
     r"RPC server version mismatch: (?P<version>\S+)"),
    ("device_lost", "evice", r"(?:ErrorDeviceLost|device lost on )"),
    ("cuda", " error: ", r"(?:CUDA|ROCm) error: (?P<reason>.{1,200})"),
    ("assert", "GGML_ASSERT(",
     r"(?P<where>[\w./\\-]+:\d+): GGML_ASSERT\((?P<what>.{1,400})\) failed"),
    ("swa_reprocessed", "forcing full prompt re-processing", r"forcing full prompt re-processing"),
    ("layer_elsewhere", "is assigned to device",
     r"layer (?P<layer>\d{1,6}) is assigned to device (?P<device>\S+) but (?P<what>.{1,120}?) "
     r"(?:tensor )?is assigned to device (?P<other>\S+)"),
    ("no_cells", "failed to find a memory slot", r"failed to find a memory slot for batch of size "
     r"(?P<batch>\d{1,9})"),
    ("no_cells", "failed to find free space in the KV cache",
     r"failed to find free space in the KV cache"),
    ("context_exceeded", "the available context size",
     r"request(?: \((?P<tokens>\d{1,12}) tokens\))? exceeds the available context size"
     r"(?: \((?P<n_ctx>\d{1,12}) tokens\))?"),
    ("input_above_ubatch", "is too large to process",
     r"input (?:\((?P<tokens>\d{1,12}) tokens\) )?is too large to process"),
    ("draft_vocab", "to use speculation", r"draft model vocab.*must.*match target"),
    ("draft_vocab", "target and draft vocabs are not compatible", r"vocabs are not compatible"),
    ("speculation_off", "failed to initialize speculative decoding",
     r"failed to initialize speculative decoding context: (?P<reason>.{1,300})"),
    ("mlock", "failed to mlock", r"failed to mlock (?P<bytes>\d{1,20})-byte buffer"),
    ("mmap", "mmap failed", r"mmap failed: (?P<reason>.{1,200})"),
    ("swa_full", "using full-size SWA cache", r"using full-size SWA cache"),
    ("tokenizer_degraded", "GENERATION QUALITY WILL BE DEGRADED", r"QUALITY WILL BE DEGRADED"),
    ("server_exit", "exiting due to", r"exiting due to (?P<reason>.{1,120})"),
)  # fmt: skip

ROWS = tuple((code, needle, re.compile(pattern, re.ASCII)) for code, needle, pattern in _TABLE)


def read(text: str) -> ev.Failure | None:
    """The failure that a line reports, or None."""
    for code, needle, pattern in ROWS:
        if needle in text:
            match = pattern.search(text)
            if match:
                fields = {key: value for key, value in match.groupdict().items() if value}
                return ev.Failure(code, fields)
    return None
