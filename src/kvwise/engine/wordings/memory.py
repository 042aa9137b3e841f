"""Memory that could not be had."""

# ruff: noqa: E501, ISC004 (one row is one line; two string pieces in one row are one pattern)

from __future__ import annotations

from kvwise.engine.wordings import Wording

ROWS: tuple[Wording, ...] = (
    # -- a limit that is not the memory itself; before the words "out of memory" --------------------
    ("buffer_limit", "exceeds device",
     r"(?:Requested buffer size exceeds device|exceeds device) (?P<limit>[\w ]{1,60}) limit"),
    ("buffer_limit", "preallocation size is too large",
     r"Requested (?P<limit>preallocation) size is too large"),
    ("buffer_limit", "maxBufferLength", r"(?:exceed|larger|greater|above)\w*.{0,80}maxBufferLength"),
    ("buffer_limit", "INVALID_BUFFER_SIZE", r"(?P<limit>CL_INVALID_BUFFER_SIZE)"),
    ("buffer_limit", "MAX_MEM_ALLOC_SIZE", r"(?P<limit>CL_DEVICE_MAX_MEM_ALLOC_SIZE)"),
    ("buffer_limit", "max buffer size", r"(?:exceeds|larger than|above).{0,40}max(?:imum)? buffer size"),
    ("buffer_limit", "axStorageBuffer", r"(?P<limit>maxStorageBuffer\w*)"),
    ("buffer_limit", "larger than 4GB", r"larger than (?P<limit>4GB)"),
    # -- a buffer of a device ------------------------------------------------------------------------
    ("kv_alloc", "buffer for kv cache", r"(?:failed|unable) to allocate buffer for kv cache"),
    ("kv_alloc", "for self-attention cache", r"failed for self-attention cache"),
    ("kv_alloc", "kv cache", r"(?:failed|unable) to (?:allocate|create) (?:the )?kv cache"),
    ("rs_alloc", "rs cache", r"failed to allocate buffer for rs cache"),
    ("rs_alloc", "recurrent", r"failed to allocate (?:buffer for )?(?:the )?recurrent"),
    ("output_alloc", "output buffer", r"failed to (?:reserve initial|allocate) output buffer"),
    ("pinned_alloc", "pinned memory",
     r"[Ff]ailed to allocate (?:(?P<mib>\d{1,15}\.\d+) MiB of )?pinned memory"),
    ("buffer_alloc", "failed to allocate ",
     r"(?:(?P<function>\w+): )?failed to allocate (?:(?P<buffer>\S+) )?buffer of size "
     r"(?P<bytes>\d{1,20})(?!\.)"),
    ("buffer_alloc", "failed to allocate buffer, size",
     r"(?:(?P<function>\w+): )?(?:error: )?failed to allocate buffer, size =\s*"
     r"(?P<mib>\d{1,15}\.\d+) MiB"),
    ("buffer_alloc", "failed to allocate ",
     r"(?:(?P<function>\w+): )?failed to allocate (?P<buffer>(?:CUDA|ROCm|Vulkan|SYCL|Metal|MTL|"
     r"OpenCL|CANN|HTP|MUSA|RPC|CPU)\S{0,60}) buffer\b"),
    ("weights_alloc", "unable to allocate ", r"unable to allocate (?P<buffer>\S+) buffer"),
    ("compute_alloc", "failed to allocate compute",
     r"failed to allocate compute(?: (?P<which>pp|tg))?(?: (?:buffers?|graph))?"),
    ("compute_alloc", "failed to reserve", r"graph_reserve: failed to reserve|failed to reserve (?:graph|memory)"),
    ("compute_alloc", "failed to allocate graph", r"failed to allocate graph"),
    ("retry_without_pipeline", "without pipeline", r"retrying without pipeline parallelism"),
    ("device_alloc", "Device memory allocation of size",
     r"Device memory allocation of size (?P<bytes>\d{1,20}) failed"),
    ("device_alloc", "on device ",
     r"allocating (?P<mib>\d{1,15}\.\d+) MiB on device (?P<device>\d{1,4}): (?P<reason>.{1,200})"),
    ("device_alloc", "alloc failed: out of memory", r"(?:cuda|hip|musa)Malloc\w* failed: (?P<reason>out of memory)"),
    ("device_alloc", "can't allocate ",
     r"can't allocate (?P<bytes>\d{1,20}) Bytes? of memory on device"),
    ("device_alloc", "OUT_OF_DEVICE_MEMORY", r"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
    ("device_alloc", "MEM_OBJECT_ALLOCATION_FAILURE", r"CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    # -- the host ------------------------------------------------------------------------------------
    ("host_alloc", "insufficient memory (attempted",
     r"insufficient memory \(attempted to allocate\s+(?P<mb>\d{1,15}\.\d+) MB\)"),
    ("host_alloc", "Bytes of memory on host", r"can't allocate (?P<bytes>\d{1,20}) Bytes of memory on host"),
    ("host_alloc", "bad_alloc", r"(?P<reason>std::bad_alloc)"),
    ("host_alloc", "bad allocation", r"(?P<reason>bad allocation)"),
    ("host_alloc", "vm_allocate failed", r"vm_allocate failed"),
    ("ram_short", "more system memory",
     r"requires more system memory \((?P<asked>[\d.]+ \w?i?B)\) than is available \((?P<free>[\d.]+ \w?i?B)\)"),
    ("ram_short", "memory layout cannot be allocated", r"memory layout cannot be allocated"),
    ("guard_stopped", "insufficient system resources",
     r"insufficient system resources(?:.{0,120}approximately (?P<asked>[\d.]+ \w?i?B))?"),
    ("oom_killed", "Killed process",
     r"(?:Out of memory|Memory cgroup out of memory|oom-kill).{0,200}?Killed process \d+ \((?P<name>[^)]{1,60})\)"),
    ("oom_killed", "Killed process", r"Killed process \d+ \((?P<name>(?:llama|ollama|python|kobold|local)[^)]{0,60})\)"),
    ("oom_killed", "oom-kill", r"oom-kill:constraint=(?P<limit>\w{1,40})"),
    ("oom_killed", "oom_reaper", r"oom_reaper: reaped process \d+ \((?P<name>[^)]{1,60})\)"),
    ("oom_killed", "OOMKilled", r"OOMKilled(?:\W+true)?"),
    ("killed", "signal: killed", r"signal: killed"),
    ("killed", "it code", r"[Ee]xit(?:ed with)? code:? ?(?:137|-9)\b"),
    ("killed", "it status 137", r"exit status 137\b"),
    ("killed", "Killed", r"^(?:\S+: line \d+:\s+\d+ )?Killed(?:: 9)?(?:\s+\S.{0,200})?$"),
    ("killed", "(SIGKILL)", r"\(SIGKILL\)"),
    # -- at run time ---------------------------------------------------------------------------------
    ("gpu_oom", "error: out of memory", r"(?:CUDA|ROCm|HIP|MUSA) error: out of memory"),
    ("gpu_oom", "ErrorOutOfMemory", r"(?:hip|cuda)ErrorOutOfMemory"),
    ("gpu_oom", "CUDA out of memory", r"CUDA out of memory"),
    ("gpu_oom", "ALLOC_FAILED", r"(?:CUBLAS|HIPBLAS)_STATUS_ALLOC_FAILED"),
    ("gpu_oom", "resource allocation failed", r"error: the resource allocation failed"),
    ("gpu_oom", "CUDA error 2 at", r"CUDA error 2 at"),
    ("vk_oom", "OutOfDeviceMemory", r"ErrorOutOfDeviceMemory"),
    ("vk_oom", "OutOfHostMemory", r"ErrorOutOfHostMemory"),
    ("metal_oom", "Insufficient Memory (", r"Insufficient Memory \(0+8:\w+OutOfMemory\)"),
    ("metal_oom", "CommandBufferCallbackErrorOutOfMemory", r"CallbackErrorOutOfMemory"),
    ("vram_kept", "VRAM usage didn't recover", r"VRAM usage didn't recover within timeout"),
)  # fmt: skip
