"""How much of the host's memory a plan may take: by what was refused, and by limits."""

from __future__ import annotations

import sys

import pytest

from kvwise.device import Host
from kvwise.diagnose import diagnose, room
from kvwise.diagnose.case import Case
from kvwise.diagnose.room import host_of
from kvwise.probe import host as probed
from kvwise.units import GIB, MIB

FREE = "common_param:   - CPU     : AMD EPYC (24105 MiB, {free} MiB free)\n"
WEIGHTS = "load_tensors:   CPU_Mapped model buffer size =    92.10 MiB\n"
CONTEXT = "llama_context: constructing llama_context\nllama_context: n_ctx         = 65536\n"
CACHE = (
    "llama_kv_cache:        CPU KV buffer size =   720.00 MiB\n"
    "llama_kv_cache: size =  720.00 MiB (  8192 cells,  30 layers,  4/4 seqs), K (f16):  360.00 "
    "MiB, V (f16):  360.00 MiB\nsched_reserve: reserving ...\n"
)
REFUSED = "ggml_aligned_malloc: insufficient memory (attempted to allocate {size} MB)\n"
GPU = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1440.00 MiB on device 0: cudaMalloc "
    "failed: out of memory\n"
)
END = "llama_init_from_model: failed to initialize the context: failed to allocate buffers\n"


def case(*lines: str) -> Case:
    found = diagnose("".join(lines) + END, numbers=False).case
    assert found is not None
    return found


FIRST = case(FREE.format(free=24105), WEIGHTS, CONTEXT, REFUSED.format(size="1440.00"))
SECOND = case(FREE.format(free=24105), WEIGHTS, CONTEXT, CACHE, REFUSED.format(size="41.96"))
ON_GPU = case(WEIGHTS, CONTEXT, GPU)


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed, "process_limits", list)


def test_what_was_refused_with_what_was_there_is_more_than_there_is() -> None:
    found = host_of([FIRST], None)
    assert found is not None
    assert found.available_bytes == 1440 * MIB + round(92.10 * MIB) - 1


def test_the_least_of_all_loads_counts() -> None:
    found = host_of([FIRST, SECOND], None)
    assert found is not None
    both = round(41.96 * MIB) + round(92.10 * MIB) + 720 * MIB - 1
    assert found.available_bytes == both


def test_a_host_that_is_named_is_cut_and_not_made_larger() -> None:
    for total in (GIB, 64 * GIB):
        found = host_of([FIRST], Host(total, total))
        assert found is not None
        assert found.available_bytes == min(total, 1440 * MIB + round(92.10 * MIB) - 1)


def test_what_a_gpu_refused_says_nothing_of_the_host() -> None:
    assert host_of([ON_GPU], None) is None
    assert host_of([ON_GPU], Host(GIB, GIB)) == Host(GIB, GIB)


def test_a_limit_of_this_process_counts_where_no_machine_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = probed.Limit("RLIMIT_AS", 600 * MIB, 600 * MIB)
    monkeypatch.setattr(probed, "process_limits", lambda: [limit])
    found = host_of([FIRST], None)
    assert found is not None
    assert 0 < found.available_bytes < 600 * MIB - 200 * MIB
    named = host_of([FIRST], Host(64 * GIB, 64 * GIB))
    assert named is not None
    assert named.available_bytes > 600 * MIB
    assert host_of([ON_GPU], None) is None


@pytest.mark.skipif(sys.platform == "win32", reason="no rlimits")
def test_the_limit_is_that_of_the_kernel() -> None:
    assert room._own_limits() == [1 << 62]


def test_a_limit_is_told_only_where_more_was_free_than_was_refused() -> None:
    text = FREE.format(free=24105) + WEIGHTS + CONTEXT + REFUSED.format(size="1440.00") + END
    first = diagnose(text, numbers=False).findings[0]
    assert first.memory_pool == "host-ram"
    assert first.remedies[0].flags == ("ulimit -v",)
    few = diagnose(text.replace("24105", "1500"), numbers=False).findings[0]
    assert all(each.flags != ("ulimit -v",) for each in few.remedies)
