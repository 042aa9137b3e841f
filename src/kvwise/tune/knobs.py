"""What may be turned, and to which values: around a plan, within memory and quality.

Arithmetic decides what fits and what a cache type costs in quality; how fast a number of threads,
a batch or a split is, only the machine knows. A point has a value for every knob.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kvwise.bench.ruled import lacks
from kvwise.device import Device, Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.options import asked_threads, change
from kvwise.plan.quality import PAIRS, Grades, meets

Value = str | int
Point = tuple[tuple[str, Value], ...]
"""(knob, value) for every knob, in their order."""

UBATCHES = (64, 128, 256, 512, 1024, 2048)
POLLS = (0, 50, 100)
_DEFAULT_POLL = 50
_LAYER_STEPS = (-4, -2, -1, 0, 1, 2, 4)
_EXTRA = {"t": "-t", "tb": "-tb", "poll": "--poll"}
_SPELLINGS = {
    "t": ("-t", "--threads"),
    "tb": ("-tb", "--threads-batch"),
    "poll": ("--poll", "--poll-batch"),
}
_FIELDS = {
    "n_ubatch": "ub", "n_batch": "b", "flash_attn": "fa", "type_k": "cache", "type_v": "cache",
    "n_gpu_layers": "ngl", "n_cpu_moe": "ncmoe",
}  # fmt: skip
NAMES = ("t", "ub", "fa", "cache", "ngl", "ncmoe", "tb", "poll", "b")
"""Every knob, as llama.cpp's flags are called; the ones that usually matter most first."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A name and its values; `ordered` = neighbours behave alike."""

    name: str
    values: tuple[Value, ...]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Space:
    """All knobs, where the search starts, and the points that cannot be (memory, refusals)."""

    knobs: tuple[Knob, ...]
    start: Point

    @property
    def size(self) -> int:
        """Points of the full grid, impossible ones included."""
        size = 1
        for knob in self.knobs:
            size *= len(knob.values)
        return size

    def points(self) -> Iterator[Point]:
        """All of them."""
        names = [knob.name for knob in self.knobs]
        for values in product(*(knob.values for knob in self.knobs)):
            yield tuple(zip(names, values, strict=True))

    def with_value(self, point: Point, name: str, value: Value) -> Point:
        """The point with one knob turned."""
        return tuple((knob, value if knob == name else old) for knob, old in point)


def key_of(point: Point) -> str:
    """Its name in keys and tables: `t=4 ub=512 fa=auto`."""
    return " ".join(f"{name}={value}" for name, value in point)


def launch_of(base: Launch, point: Point) -> Launch:
    """`base` with the point's settings."""
    values = dict(point)
    changes: dict[str, object] = {}
    if "ub" in values:
        changes["n_ubatch"] = values["ub"]
        changes["n_batch"] = max(base.n_batch, int(values["ub"]))
    if "b" in values:
        changes["n_batch"] = max(int(values["b"]), int(values.get("ub", 0)))
    if "fa" in values:
        changes["flash_attn"] = values["fa"]
    if "cache" in values:
        changes["type_k"], changes["type_v"] = str(values["cache"]).split("/")
    if "ngl" in values:
        changes["n_gpu_layers"] = values["ngl"]
    if "ncmoe" in values:
        changes["n_cpu_moe"] = values["ncmoe"]
    return replace(change(base, **changes), extra=(*_without(base.extra, values), *_words(values)))


def _words(values: Mapping[str, Value]) -> Iterator[str]:
    for name, flag in _EXTRA.items():
        if name in values and not (name == "tb" and values[name] == values.get("t")):
            yield flag
            yield str(values[name])


def _without(words: Sequence[str], values: Mapping[str, Value]) -> Iterator[str]:
    """The words without those that the point sets."""
    set_here = {flag for name in values for flag in _SPELLINGS.get(name, ())}
    rest = iter(words)
    for word in rest:
        if word in set_here:
            next(rest, None)
        else:
            yield word


def given(fields: Collection[str], words: Sequence[str]) -> tuple[str, ...]:
    """Knobs that the user set: by launch fields, or by words that are passed on."""
    by_field = {_FIELDS[name] for name in fields if name in _FIELDS}
    by_word = {name for name, flags in _SPELLINGS.items() if set(flags) & set(words)}
    return tuple(sorted(by_field | by_word))


def space_of(
    model: Model,
    base: Launch,
    devices: Sequence[Device],
    *,
    cores: int,
    logical: int,
    floor: str,
    prompt_tokens: int,
    fixed: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Space:
    """The knobs around a planned launch. `fixed` are launch fields and flags that the user gave
    and keeps, `only` the knobs to turn (empty = all), `floor` the least quality of cache types.

    Raises UsageError for a knob that is not there.
    """
    found = dict(
        _knobs(
            model,
            base,
            devices,
            cores=cores,
            logical=logical,
            floor=floor,
            prompt_tokens=prompt_tokens,
        )
    )
    for name in only:
        if name not in found:
            raise UsageError(
                "--knobs: {name} cannot be turned here", name=name, known=", ".join(found),
                hint="what can be: {known}",
            )  # fmt: skip
    kept = {
        name: pair for name, pair in found.items()
        if (not only or name in only) and name not in fixed and len(pair[0].values) > 1
    }  # fmt: skip
    if not kept:
        raise UsageError("there is nothing to tune: every setting is given")
    knobs = tuple(kept[name][0] for name in NAMES if name in kept)
    return Space(knobs, tuple((knob.name, kept[knob.name][1]) for knob in knobs))


def _knobs(
    model: Model,
    base: Launch,
    devices: Sequence[Device],
    *,
    cores: int,
    logical: int,
    floor: str,
    prompt_tokens: int,
) -> Iterator[tuple[str, tuple[Knob, Value]]]:
    counts, threads = _threads(cores, logical), asked_threads(base, logical) or cores
    yield "t", (Knob("t", counts), cores)
    yield "tb", (Knob("tb", tuple(sorted({*counts, threads}))), threads)
    sizes = sorted({*_until(UBATCHES, prompt_tokens), base.n_ubatch})
    yield "ub", (Knob("ub", tuple(sizes)), base.n_ubatch)
    if prompt_tokens > UBATCHES[-3]:
        batches = tuple(sorted({512, 2048, base.n_batch}))
        yield "b", (Knob("b", batches), base.n_batch)
    yield "poll", (Knob("poll", POLLS), _DEFAULT_POLL)
    if base.type_v in ("f16", "f32", "bf16"):
        start = base.flash_attn
        other = "on" if start == "off" else "off"
        yield "fa", (Knob("fa", (start, other), ordered=False), start)
    pair = f"{base.type_k}/{base.type_v}"
    grades = Grades(architecture=model.architecture)
    allowed = [f"{k}/{v}" for k, v in PAIRS if meets(grades.of(k, v), floor)]
    yield "cache", (Knob("cache", tuple(dict.fromkeys((pair, *allowed))), ordered=False), pair)
    if devices:
        yield from _offload(model, base)


def _until(sizes: Sequence[int], most: int) -> Iterator[int]:
    """The sizes up to the first that holds all of a prompt: larger ones make no difference."""
    for size in sizes:
        yield size
        if size >= most:
            return


def _threads(cores: int, logical: int) -> tuple[int, ...]:
    """Around the number of cores: fewer where memory is what limits, more with hyper-threads."""
    shares = {1, cores // 4, cores // 2, 3 * cores // 4, cores - 1, cores, logical}
    return tuple(sorted(count for count in shares if count >= 1))


def _offload(model: Model, base: Launch) -> Iterator[tuple[str, tuple[Knob, Value]]]:
    """Layers, or experts, around where the plan put them."""
    everything = model.n_layer_all + 1
    if model.n_expert and base.n_cpu_moe:
        moe = min(base.n_cpu_moe, model.n_layer_all)
        yield "ncmoe", (Knob("ncmoe", _steps(moe, model.n_layer_all)), moe)
    elif 0 <= base.n_gpu_layers < everything:
        layers = base.n_gpu_layers
        yield "ngl", (Knob("ngl", _steps(layers, everything)), layers)


def _steps(at: int, most: int) -> tuple[int, ...]:
    return tuple(sorted({at + step for step in _LAYER_STEPS if 0 <= at + step <= most}))


def impossible(
    model: Model,
    launch: Launch,
    devices: Sequence[Device],
    host: Host | None,
    companions: Companions = NONE,
) -> bool:
    """Would llama.cpp refuse it, or memory not hold it? Known before anything is started."""
    try:
        ledger = account(model, launch, devices, host=host, companions=companions)
    except (Refused, UsageError):
        return True
    return host is not None and lacks(ledger, host) is not None
