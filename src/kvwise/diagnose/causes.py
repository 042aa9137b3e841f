"""Why an engine ended, in kvwise's own words: the one table behind `run` and behind the doctor.

`run` looks a log up in `OF_CODE` and says the row's sentence; the doctor knows the sentence again
when somebody pastes it, and calls it by `kind`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kvwise.diagnose.titles import TITLES
from kvwise.text import template


class Row(NamedTuple):
    """One cause. `sentence` "" = the title of its kind; `cures` = may a smaller setting help?"""

    kind: str  # of the doctor's vocabulary (titles.py)
    sentence: str = ""
    cures: bool = False
    memory: bool = False


CAUSES: dict[str, Row] = {
    "weights-oom": Row("weights-oom", cures=True, memory=True),
    "kv-alloc-oom": Row("kv-alloc-oom", cures=True, memory=True),
    "recurrent-state-oom": Row("recurrent-state-oom", cures=True, memory=True),
    "compute-oom": Row("compute-oom", cures=True, memory=True),
    "out-of-memory": Row("", template("a buffer does not fit"), cures=True, memory=True),
    "single-allocation-limit": Row(
        "single-allocation-limit",
        template("a buffer is larger than the device allows for one"),
        cures=True,
        memory=True,
    ),
    "device-lost-timeout": Row(
        "device-lost-timeout",
        template("the GPU was lost or reset (a watchdog, or its driver)"),
        cures=True,
    ),
    "cache-types": Row(
        "cache-type-refused", template("the engine refused these cache types"), cures=True
    ),
    "file-missing": Row("file-missing", template("the model file cannot be opened")),
    "file-corrupt": Row("file-corrupt", template("the model file is damaged or cut off")),
    "split-missing": Row("split-missing", template("a part of the split model is missing")),
    "missing-tensor": Row(
        "missing-tensor", template("the model file lacks tensors that this build wants")
    ),
    "arch-unknown": Row(
        "arch-unknown", template("this build of llama.cpp does not know the model")
    ),
    "port-taken": Row("port-taken", template("the port is taken by another process")),
    "bad-flag": Row("option-refused", template("the engine does not accept a flag")),
    "rpc-dead": Row(
        "rpc-unreachable",
        template("an RPC server does not answer, and the engine would go on without it"),
    ),
    "rpc-lost": Row("rpc-unreachable", template("an RPC server went away or is of another build")),
    "wrong-kernel-build": Row(
        "wrong-kernel-build", template("the engine was not built for this GPU or processor")
    ),
    "hang": Row(
        "hang", template("no output, no reading and no work for {silence} s"), cures=True
    ),
    "slow-start": Row("hang", template("not ready within {limit} s"), cures=True),
    "killed": Row(
        "host-ram-growth",
        template("killed from outside: almost always the system was out of memory"),
        cures=True,
        memory=True,
    ),
    "low-memory": Row(
        "host-ram-growth",
        template("stopped because the machine had only {available} left"),
        cures=True,
        memory=True,
    ),
    "vram-spill-slow": Row(
        "vram-spill-slow",
        template("{spilled} of what belongs on the GPU lie in system memory"),
        cures=True,
        memory=True,
    ),
    "crash": Row("engine-crash", template("the engine crashed ({signal})"), cures=True),
    "cannot-start": Row("engine-incomplete", template("the program cannot be run")),
    "unhealthy": Row("hang", template("no answer and no work for {silence} s")),
    "ended": Row("engine-crash", template("the engine ended by itself (code {code})")),
    "unknown": Row(
        "model-refused", template("the engine refused to start (code {code}) for an unknown reason")
    ),
}  # fmt: skip
"""Name of a cause -> what it is. Names are those of the failure reports where one fits."""

OF_CODE = (  # surest first: the first code that a log has decides
    ("port_taken", "port-taken"),
    ("argument", "bad-flag"), ("device_name", "bad-flag"),
    ("file_open", "file-missing"),
    ("not_gguf", "file-corrupt"), ("header_cut", "file-corrupt"), ("data_cut", "file-corrupt"),
    ("split_missing", "split-missing"), ("split_illegal", "split-missing"),
    ("architecture_unknown", "arch-unknown"), ("tokenizer_unknown", "arch-unknown"),
    ("tensor_type_unknown", "arch-unknown"),
    ("tensor_missing", "missing-tensor"), ("tensor_count", "missing-tensor"),
    ("rpc_version", "rpc-lost"), ("rpc_lost", "rpc-lost"),
    ("device_lost", "device-lost-timeout"),
    ("no_kernel", "wrong-kernel-build"), ("driver_old", "wrong-kernel-build"),
    ("no_backend", "wrong-kernel-build"), ("cpu_instructions", "wrong-kernel-build"),
    ("library_missing", "cannot-start"),
    ("slots_above_limit", "bad-flag"), ("spec_type", "bad-flag"), ("split_mode", "bad-flag"),
    ("mtp_missing", "bad-flag"), ("draft_load", "file-missing"), ("file_version", "arch-unknown"),
    ("file_endian", "file-corrupt"), ("tensor_shape", "missing-tensor"),
    ("cache_type_unsupported", "cache-types"), ("block_vs_head_size", "cache-types"),
    ("mla_k_v_types_differ", "cache-types"), ("v_quant_needs_flash_attn", "cache-types"),
    ("buffer_limit", "single-allocation-limit"),
    ("weights_alloc", "weights-oom"), ("kv_alloc", "kv-alloc-oom"),
    ("rs_alloc", "recurrent-state-oom"), ("compute_alloc", "compute-oom"),
    ("output_alloc", "compute-oom"),
    ("buffer_alloc", "out-of-memory"), ("device_alloc", "out-of-memory"),
    ("host_alloc", "out-of-memory"), ("mmap", "out-of-memory"), ("gpu_oom", "out-of-memory"),
    ("vk_oom", "out-of-memory"), ("metal_oom", "out-of-memory"), ("ram_short", "out-of-memory"),
    ("rpc_connect", "rpc-dead"), ("mtp_context", "bad-flag"),
)  # fmt: skip
"""Codes of engine/failures.py -> causes."""

CURABLE = frozenset(name for name, row in CAUSES.items() if row.cures)
MEMORY = frozenset(name for name, row in CAUSES.items() if row.memory)
"""Causes that are a lack of memory."""


def sentence(name: str) -> str:
    """The template that says a cause."""
    row = CAUSES[name]
    return row.sentence or TITLES[row.kind]


@cache
def kinds() -> dict[str, str]:
    """English sentence of a cause -> its kind."""
    return {sentence(name): row.kind for name, row in CAUSES.items() if row.kind}
