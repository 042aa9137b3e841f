"""What a device can do per second, as a slow and a fast end, and where the figures come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from kvwise.catalogue import Gpu, gpus, of_driver
from kvwise.device import Device, Host
from kvwise.plan.speed import factors
from kvwise.plan.speed.factors import Factors
from kvwise.text import Phrase, phrase

# multiply-adds count twice; per SM and clock: f16 of the tensor cores, f32 of the vector units
_TENSOR_PER_CLOCK = {"7.0": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.7": 1024, "8.9": 1024,
                     "9.0": 4096, "10.0": 8192, "10.3": 8192, "11.0": 2048, "12.0": 1024,
                     "12.1": 1024}  # fmt: skip
_VECTOR_PER_CLOCK = {"6.0": 128, "7.0": 128, "7.2": 128, "7.5": 128, "8.0": 128}
_VECTOR_USUAL = 256
_CLOCK_HZ = {"5": (0.9e9, 1.3e9), "6": (1.2e9, 1.9e9), "7": (1.2e9, 1.8e9), "8.9": (1.4e9, 2.5e9),
             "8": (1.1e9, 1.8e9), "9": (1.2e9, 1.8e9), "10": (1.5e9, 1.9e9), "11": (1.0e9, 1.6e9),
             "12": (1.4e9, 2.5e9)}  # fmt: skip
_OLD = {"Polaris", "Kepler", "Maxwell", "Pascal"}
_SERVER = {"8.0", "9.0", "10.0", "10.3"}

# Apple: GPU cores (fewest, most) and GHz; 256 operations per core and clock, f16 as f32
_APPLE = re.compile(r"Apple ((M\d)(?: (?:Pro|Max|Ultra))?)")
_APPLE_CORES = {
    "M1": (7, 8), "M1 Pro": (14, 16), "M1 Max": (24, 32), "M1 Ultra": (48, 64),
    "M2": (8, 10), "M2 Pro": (16, 19), "M2 Max": (30, 38), "M2 Ultra": (60, 76),
    "M3": (8, 10), "M3 Pro": (14, 18), "M3 Max": (30, 40), "M3 Ultra": (60, 80),
    "M4": (8, 10), "M4 Pro": (16, 20), "M4 Max": (32, 40),
    "M5": (8, 10), "M5 Pro": (16, 20), "M5 Max": (32, 40), "M5 Ultra": (64, 80),
}  # fmt: skip
_APPLE_HZ = {"M1": 1.28e9, "M2": 1.4e9, "M3": 1.4e9, "M4": 1.5e9, "M5": 1.6e9}
# Radeon graphics of processors: compute units, operations per unit and clock in f16, GHz (AMD's
# specifications; RDNA 3 counted at the dual-issue rate as in the catalogue)
_RADEON = {
    "8060S": (40, 512, 2.9), "8050S": (32, 512, 2.8), "890M": (16, 512, 2.9),
    "880M": (12, 512, 2.9), "860M": (8, 512, 3.0), "780M": (12, 512, 2.7), "760M": (8, 512, 2.6),
    "680M": (12, 256, 2.2), "Vega 8": (8, 256, 2.0),
}  # fmt: skip
_CORES = re.compile(r"(\d+)-core")
_LANE_BYTES_PER_S = {"3.0": 0.985e9, "4.0": 1.969e9, "5.0": 3.938e9}
_BUS = re.compile(r"(\d\.0) x(\d+)")
_UNKNOWN_BUS = (8 * 0.985e9, 16 * 3.938e9)


@dataclass(frozen=True, slots=True)
class Rate:
    """One end of what a device does per second; 0 = not known.

    `memory` bytes; `matrix`, `attention`, `vector` operations; `half_batch` tokens; `layer_s`
    seconds per layer and token; `per_weight` vector operations; `bus` bytes to and from the host.
    """

    memory: float
    matrix: float
    attention: float
    vector: float
    layer_s: float
    per_weight: float
    half_batch: float
    bus: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Both ends, and where they come from."""

    slow: Rate
    fast: Rate
    memory_basis: Phrase
    arithmetic_basis: Phrase
    factors: Phrase

    @property
    def knows_memory(self) -> bool:
        return self.slow.memory > 0

    @property
    def knows_arithmetic(self) -> bool:
        return self.slow.matrix > 0


def of_device(device: Device) -> Rates:
    """A GPU's ends, from its own figures and from the catalogue's where it is known by name."""
    gpu = of_driver(device.name, device.total_bytes) if device.name else None
    row = _factors(device, gpu)
    memory = device.bandwidth_bytes_per_s or 0
    matrix, vector, basis = _arithmetic(device, gpu)
    bus = _bus(device, gpu)
    ends = [
        Rate(
            memory=memory * row.memory[end],
            matrix=matrix[end] * row.matrix[end],
            attention=matrix[end] * row.attention[end],
            vector=vector[end],
            layer_s=row.layer_s[end],
            per_weight=row.per_weight[end],
            half_batch=row.half_batch[end],
            bus=bus[end] * factors.BUS[end],
        )
        for end in (0, 1)
    ]
    return Rates(
        ends[0],
        ends[1],
        phrase("{gb:,.0f} GB/s", gb=memory / 1e9) if memory else phrase("unknown"),
        basis,
        row.source,
    )


def of_host(host: Host | None, *, quantized_cache: bool = False) -> Rates:
    """The processor's ends: its memory as given, else the usual range; its arithmetic by its
    cores, unknown without."""
    row = factors.HOST
    given = host.bandwidth_bytes_per_s if host else None
    memory = (float(given), float(given)) if given else factors.HOST_BYTES_PER_S
    cores = host.cores if host else 0
    kept = factors.UNPACKED if quantized_cache else (1.0, 1.0)
    ends = [
        Rate(
            memory=memory[end] * (row.memory[end] if given else 1),
            matrix=cores * factors.CORE_FLOPS[end],
            attention=cores * factors.CORE_FLOPS[end] * row.attention[end] * kept[end],
            vector=cores * factors.CORE_FLOPS[end],
            layer_s=row.layer_s[end],
            per_weight=row.per_weight[end],
            half_batch=row.half_batch[end],
            bus=0,
        )
        for end in (0, 1)
    ]
    if given:
        said = phrase("{gb:,.0f} GB/s", gb=given / 1e9)
    else:
        said = phrase(
            "{low:.0f} to {high:.0f} GB/s, not measured", low=memory[0] / 1e9, high=memory[1] / 1e9
        )
    arithmetic = phrase("{count} threads", count=cores) if cores else phrase("unknown")
    return Rates(ends[0], ends[1], said, arithmetic, row.source)


def _factors(device: Device, gpu: Gpu | None) -> Factors:
    capability = device.compute_capability or (gpu.compute_capability if gpu else None) or ""
    old = capability[:1] in {"5", "6"} or (gpu is not None and gpu.arch in _OLD)
    if device.kind == "cuda":
        if old:
            return factors.CUDA_PASCAL
        no_tensor = capability == "7.5" and gpu and not gpu.tensor_cores
        usual = factors.CUDA_NO_TENSOR if no_tensor else factors.CUDA
        return factors.CUDA_SERVER if capability in _SERVER else usual
    if device.kind == "vulkan" and old:
        return factors.VULKAN_OLD
    if device.kind == "vulkan" and gpu and gpu.vendor not in {"AMD", "NVIDIA"}:
        return factors.OTHER
    rows = {"hip": factors.HIP, "vulkan": factors.VULKAN, "metal": factors.METAL}
    return rows.get(device.kind, factors.OTHER)


Ends = tuple[float, float]


def _arithmetic(device: Device, gpu: Gpu | None) -> tuple[Ends, Ends, Phrase]:
    """(matrices, vector units, basis): operations per second; zeros where nothing is known."""
    apple = _APPLE.match(device.name)
    if apple:
        return _apple(device.name, apple[1], apple[2])
    sm = device.sm_count or (gpu.sm_count if gpu else None)
    capability = device.compute_capability or (gpu.compute_capability if gpu else None)
    if gpu and gpu.fp16_tflops_dense:
        rate = gpu.fp16_tflops_dense * 1e12
        basis = phrase("{rate:,.0f} TFLOP/s in f16", rate=rate / 1e12)
        vector = rate / 4 if gpu.tensor_cores else rate / 2
        if capability in _SERVER:
            vector = rate / 16
        return (rate, rate), (vector, vector), basis
    if sm and capability:
        return _by_sm(sm, capability, tensor=gpu is None or gpu.tensor_cores)
    for name, (units, per, ghz) in _RADEON.items():
        if gpu and f"{name} Graphics" in gpu.name:
            rate = units * per * ghz * 1e9
            basis = phrase("{units} compute units at {ghz:.1f} GHz", units=units, ghz=ghz)
            return (rate, rate), (rate / 4, rate / 4), basis
    if gpu:
        return _like_its_family(gpu)
    return (0, 0), (0, 0), phrase("unknown")


def _by_sm(sm: int, capability: str, *, tensor: bool) -> tuple[Ends, Ends, Phrase]:
    clock = _CLOCK_HZ.get(capability) or _CLOCK_HZ.get(capability.split(".", maxsplit=1)[0])
    if clock is None:
        return (0, 0), (0, 0), phrase("unknown")
    per = _VECTOR_PER_CLOCK.get(capability, _VECTOR_USUAL)
    vector = (sm * per * clock[0], sm * per * clock[1])
    has = _TENSOR_PER_CLOCK.get(capability) if tensor else None
    matrix = (sm * has * clock[0], sm * has * clock[1]) if has else vector
    if capability == "7.5" and not tensor:  # packed f16
        matrix = (2 * vector[0], 2 * vector[1])
    basis = phrase(
        "{sm} multiprocessors at {low:.1f} to {high:.1f} GHz",
        sm=sm, low=clock[0] / 1e9, high=clock[1] / 1e9,
    )  # fmt: skip
    return matrix, vector, basis


def _apple(name: str, chip: str, series: str) -> tuple[Ends, Ends, Phrase]:
    cores = _APPLE_CORES.get(chip)
    if cores is None:
        return (0, 0), (0, 0), phrase("unknown")
    said = _CORES.search(name)
    if said:
        cores = (int(said[1]), int(said[1]))
    one = 256 * _APPLE_HZ[series]
    ends = (cores[0] * one, cores[1] * one)
    basis = phrase(
        "{low} to {high} GPU cores at {ghz:.2f} GHz",
        low=cores[0], high=cores[1], ghz=_APPLE_HZ[series] / 1e9,
    )  # fmt: skip
    return ends, ends, basis


def _like_its_family(gpu: Gpu) -> tuple[Ends, Ends, Phrase]:
    """From the bandwidth, by what others of its architecture have for theirs."""
    ends = _flops_per_byte(gpu.arch.split(".")[0].removesuffix("-H"))
    if ends is None or not gpu.bandwidth_gb_s:
        return (0, 0), (0, 0), phrase("unknown")
    bytes_per_s = gpu.bandwidth_gb_s * 1e9
    matrix = (ends[0] * bytes_per_s, ends[1] * bytes_per_s)
    basis = phrase("as other {arch} have for their bandwidth", arch=gpu.arch)
    return matrix, (matrix[0] / 4, matrix[1] / 4), basis


@lru_cache(maxsize=64)
def _flops_per_byte(arch: str) -> Ends | None:
    found = [
        gpu.fp16_tflops_dense * 1e3 / gpu.bandwidth_gb_s
        for gpu in gpus()
        if gpu.arch == arch and gpu.fp16_tflops_dense and gpu.bandwidth_gb_s
    ]
    return (min(found), max(found)) if found else None


def _bus(device: Device, gpu: Gpu | None) -> Ends:
    """Nominal bytes per second between the device and the host."""
    if device.unified or device.kind == "metal":
        whole = float(device.bandwidth_bytes_per_s or 0)
        return whole, whole
    text = (gpu.pcie or "") if gpu else ""
    match = _BUS.search(text)
    if match and match[1] in _LANE_BYTES_PER_S:
        rate = _LANE_BYTES_PER_S[match[1]] * int(match[2])
        return rate, rate
    if text.startswith(("SXM", "OAM")):
        return 16 * _LANE_BYTES_PER_S["4.0"], 16 * _LANE_BYTES_PER_S["5.0"]
    return _UNKNOWN_BUS
