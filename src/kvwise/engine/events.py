"""What a line of an engine's log can say, one class per kind of line.

Sizes are `Printed`. A field is None where that build's line does not carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kvwise.engine.printed import Printed


@dataclass(frozen=True, slots=True)
class Build:
    """`build: 10605 (abc)`; 0 or -1 when it was built outside a repository."""

    number: int
    commit: str


@dataclass(frozen=True, slots=True)
class ModelOpened:
    """The header of a model file was read: everything that follows belongs to this file."""

    path: str
    tensors: int


@dataclass(frozen=True, slots=True)
class ModelFact:
    """`print_info: n_layer = 30` (llm_load_print_meta in older builds)."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A key of the file's header, as the loader dumps it; long arrays and texts are cut off."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class DeviceUsed:
    """A device the model was offered (`using device CUDA0 (NAME) - 7000 MiB free`)."""

    name: str
    description: str
    free: Printed


@dataclass(frozen=True, slots=True)
class DeviceListed:
    """A row of the device list: name, description, total and free."""

    name: str
    description: str
    total: Printed
    free: Printed


@dataclass(frozen=True, slots=True)
class SystemInfo:
    """What the engine was compiled to use: `AVX2`, `AVX512`, `REPACK`..."""

    features: frozenset[str]


@dataclass(frozen=True, slots=True)
class Offloaded:
    """`offloaded 31/31 layers to GPU`. Printed even when no GPU is there: never proof."""

    layers: int
    of: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of one device. `part`: weights, kv, rs, state, compute, output, lora, moe_cache."""

    part: str
    buffer: str
    size: Printed
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BufferAtExit:
    """Debug line at the end: the compute buffer as it was, and as it was planned."""

    buffer: str
    size: Printed
    expected: Printed


@dataclass(frozen=True, slots=True)
class ContextStarts:
    """A new llama_context: what follows belongs to it."""


@dataclass(frozen=True, slots=True)
class ReserveStarts:
    """The compute buffers are about to be reserved (again): earlier ones are gone."""


@dataclass(frozen=True, slots=True)
class ContextFact:
    """`llama_context: n_ctx = 4096`; names as in b10605 (n_ctx_per_seq -> n_ctx_seq)."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CacheStarts:
    """A model with several caches says which one comes next: non-SWA, SWA, indexer, CSA..."""

    what: str
    cells: int | None


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Builds before mid-2025: `kv_size = 4096, ..., type_k = 'f16', n_layer = 32`."""

    cells: int
    layers: int | None
    recurrent: bool


@dataclass(frozen=True, slots=True)
class KVCache:
    """The total of one attention cache. `cells` per stream; K and V as two sizes."""

    size: Printed
    cells: int | None
    layers: int | None
    seqs: int | None
    streams: int | None
    type_k: str | None
    k: Printed | None
    type_v: str | None
    v: Printed | None


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The total of one recurrent state. R, S and (since 2026-10) P as sizes."""

    size: Printed
    cells: int | None
    layers: int | None
    seqs: int | None
    rs_seq: int | None
    type_r: str | None
    r: Printed | None
    type_s: str | None
    s: Printed | None
    p: Printed | None = None


@dataclass(frozen=True, slots=True)
class CompressorState:
    """DeepSeek-V4: the state of one compressor."""

    name: str
    ratio: int
    rows: int
    width: int
    streams: int
    rs_seq: int
    layers: int
    size: Printed


@dataclass(frozen=True, slots=True)
class Rotation:
    """Quantized caches are rotated: `attn_rot_k = 1`, or `n_rot_k = 64` in newer builds."""

    side: str
    on: bool


@dataclass(frozen=True, slots=True)
class FlashAttention:
    """What `auto` became."""

    on: bool


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of the graph of a prompt batch."""

    prompt: int


@dataclass(frozen=True, slots=True)
class Splits:
    """Pieces the graph was cut into, for a prompt batch and for one token; newer builds say its
    nodes on the same line."""

    prompt: int
    token: int | None
    batch: int | None
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Slots:
    """llama-server's slots and what each may hold."""

    n_slots: int
    n_ctx_slot: int | None
    kv_unified: bool | None


@dataclass(frozen=True, slots=True)
class SlotCapped:
    """More context was paid for than the model was trained on; the slot does not get it."""

    asked: int
    given: int


@dataclass(frozen=True, slots=True)
class DraftStarts:
    """From here on the lines are about a draft (`mtp`: a second context of the same model).

    `measured` = `--fit` only measures it: its table of memory ends it.
    """

    path: str
    mtp: bool
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: the implementation in use, or "" when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class DraftStatistics:
    """What one kind of speculation did since the start: `drafts` made, tokens drafted and accepted,
    the accepted share by position in the draft, and the time that drafting took."""

    name: str
    drafts: int
    drafted: int
    accepted: int
    by_position: tuple[float, ...]
    draft_ms: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A row of the memory breakdown, in whole MiB cut off; device columns None on the host."""

    name: str
    own: Printed
    model: Printed
    context: Printed
    compute: Printed
    total: Printed | None = None
    free: Printed | None = None
    unaccounted: Printed | None = None


@dataclass(frozen=True, slots=True)
class FitProjection:
    """What `--fit` expects to use, against what it thinks is there."""

    used: Printed
    available: Printed
    host: bool


@dataclass(frozen=True, slots=True)
class FitDevice:
    """One device in the projection of `--fit`; `free` is what would be left."""

    name: str
    used: Printed
    free: Printed
    total: Printed | None = None
    target: Printed | None = None
    layers: int | None = None


@dataclass(frozen=True, slots=True)
class FitTarget:
    """What `--fit` tries to leave free on a device."""

    target: Printed
    left: Printed | None


@dataclass(frozen=True, slots=True)
class Projector:
    """mmproj (vision, audio): `part` is weights, compute, estimate (of all of it), or counted (what
    `--fit` adds for it on the device that `buffer` names)."""

    part: str
    buffer: str
    size: Printed


@dataclass(frozen=True, slots=True)
class PromptCache:
    """The server's prompt cache in host memory, or one context checkpoint."""

    what: str
    size: Printed
    limit: Printed | None = None


@dataclass(frozen=True, slots=True)
class ExtraContext:
    """What the server expects a second (MTP or draft) context to take."""

    what: str
    size: Printed


@dataclass(frozen=True, slots=True)
class Timing:
    """`prompt eval time`, `eval time`, `load time`...: milliseconds as printed, and tokens."""

    name: str
    ms: float
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Listening:
    """The HTTP server's own address. The model may still be loading."""

    url: str


@dataclass(frozen=True, slots=True)
class ModelReady:
    """The model is loaded."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A line of a known failure. `code` names it; `fields` are its values as printed."""

    code: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Remark:
    """A line that is no failure by itself: progress, a setting, a harmless warning."""

    code: str
    fields: dict[str, str]


Event: TypeAlias = (
    Build
    | ModelOpened
    | ModelFact
    | ModelKey
    | DeviceUsed
    | DeviceListed
    | SystemInfo
    | Offloaded
    | Buffer
    | BufferAtExit
    | ContextStarts
    | ReserveStarts
    | ContextFact
    | CacheStarts
    | CacheShape
    | KVCache
    | RecurrentState
    | CompressorState
    | Rotation
    | FlashAttention
    | Nodes
    | Splits
    | Slots
    | SlotCapped
    | DraftStarts
    | Speculation
    | DraftStatistics
    | Breakdown
    | FitProjection
    | FitDevice
    | FitTarget
    | Projector
    | PromptCache
    | ExtraContext
    | Timing
    | Listening
    | ModelReady
    | Failure
    | Remark
)


@dataclass(frozen=True, slots=True)
class Record:
    """An event with the line it came from (number from 1, text without its time and level)."""

    line: int
    level: str | None
    text: str
    event: Event
