"""What a target is to be told, and an account of what it was told.

A target takes the fields it can express with `Told.say`, names those it cannot with `Told.lacks`,
and whatever nobody mentioned ends in `left_out` by itself: nothing is dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvwise.errors import UsageError
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.options import OPTIONS, Option, to_argv
from kvwise.options.reading import experts_on_cpu, walk
from kvwise.options.resolve import TOGETHER
from kvwise.options.row import SERVER
from kvwise.text import Phrase

_WINDOWS = re.compile(r"^([A-Za-z]:[\\/]|\\\\)")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_ALWAYS = ("n_ctx", "n_seq_max", "n_gpu_layers", "flash_attn", "type_k", "type_v", "n_batch",
           "n_ubatch", "fit")  # fmt: skip


@dataclass(frozen=True, slots=True)
class StandIn:
    """A path that is written for a file of which only the header is known. `flag` gives another."""

    path: str
    flag: str

    def shown_in(self, text: str) -> str:
        """As it stands in what was written, by path or by name; empty if it does not."""
        name = self.path.rpartition("/")[2]
        return next((each for each in (self.path, name) if each in text), "")


@dataclass(frozen=True, slots=True)
class Settings:
    """A launch of llama-server with what the engine makes of it. Counts are tokens and layers.

    `source` is MODEL as the user named it, `launch.model` the path or address that is written,
    `stand_ins` those of its paths that no program can open. `exact` says that the flags are to be
    written as they are, and no default beside them.
    """

    launch: Launch
    name: str
    source: str = ""
    n_ctx: int = 0  # all slots together
    slot_tokens: int = 0
    gpu_layers: int = 0  # the output counted as one
    layers: int = 0  # all there are, the output counted as one
    flash: bool = False
    gpu_kinds: tuple[str, ...] = ()  # backends of the GPUs in use
    program: str = SERVER
    exact: bool = False
    misses_by_bytes: int = 0  # what the devices here lack
    memory: tuple[tuple[str, int], ...] = ()  # (device, bytes that all of it takes there)
    stand_ins: tuple[StandIn, ...] = ()

    @property
    def auto(self) -> bool:
        """Whether the engine is left to choose the layers."""
        return self.launch.fit and self.launch.n_gpu_layers == -1

    @property
    def file(self) -> str:
        """Path of the model's file. Raises UsageError for a model that is an address."""
        model = self.launch.model
        if not model or model.startswith(("hf:", "http://", "https://", "docker:")):
            raise UsageError(
                "this target needs the path of a model file, not {model}",
                model=model or "-", hint="give it as --model-path PATH",
            )  # fmt: skip
        return model

    @property
    def file_name(self) -> str:
        """The last part of the model's path, Windows' or POSIX'."""
        parts = re.split(r"[\\/]" if self.windows else "/", self.file)
        return parts[-1]

    @property
    def windows(self) -> bool:
        """Whether the paths are those of Windows."""
        return bool(_WINDOWS.match(self.launch.model))


def settings_of(
    ledger: Ledger,
    name: str,
    *,
    source: str = "",
    program: str = SERVER,
    exact: bool = False,
) -> Settings:
    """The settings of a launch whose ledger is known. Raises UsageError for another tool's."""
    launch, context = ledger.launch, ledger.context
    if launch.tool != SERVER:
        raise UsageError("only settings of llama-server can be exported, not of {tool}",
                         tool=launch.tool)  # fmt: skip
    return Settings(
        launch=launch,
        name=name,
        source=source,
        n_ctx=context.n_ctx,
        slot_tokens=context.n_ctx_seq,
        gpu_layers=ledger.placement.gpu_layers,
        layers=ledger.model.n_layer_all + 1,
        flash=context.flash_attn,
        gpu_kinds=tuple(device.kind for device in ledger.devices),
        program=program,
        exact=exact,
        misses_by_bytes=ledger.misses_by_bytes,
        memory=tuple((line.buffer, line.total_bytes) for line in ledger.lines),
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Flags of llama.cpp that a target cannot be told, and why."""

    words: tuple[str, ...]
    why: Phrase


@dataclass(frozen=True, slots=True)
class Spoken:
    """An option of the launch as it would be typed."""

    option: Option
    positive: bool
    words: tuple[str, ...]

    @property
    def flag(self) -> str:
        """The long spelling."""
        if self.positive:
            return self.option.name
        return next((each for each in self.option.negative if each.startswith("--")),
                    self.option.negative[0])  # fmt: skip

    @property
    def typed(self) -> tuple[str, ...]:
        return (self.flag, *self.words)


def spoken(settings: Settings) -> list[Spoken]:
    """All that llama-server is to be told, in long spellings; core settings always, unless exact.

    Other programs and other builds have other defaults: what matters is written out.
    """
    launch = settings.launch
    said = [Spoken(option, positive, words) for option, positive, words, _ in
            walk(to_argv(launch), SERVER, launch.build)]  # fmt: skip
    if settings.exact:
        return said
    heard = {name for each in said for name in fields_of(each.option)}
    missing = [name for name in _ALWAYS if name not in heard]
    for name in missing:
        if _engine_decides(launch, name):
            continue
        said.append(_row(launch, name))
        if name == "n_seq_max" and launch.kv_unified:
            said.append(_row(launch, "kv_unified"))
    return said


def _engine_decides(launch: Launch, name: str) -> bool:
    match name:
        case "n_ctx":
            return launch.n_ctx == 0
        case "n_gpu_layers":
            return launch.n_gpu_layers == -1
        case "flash_attn":
            return launch.flash_attn == "auto"
        case "fit":
            return launch.fit
        case _:
            return False


def _row(launch: Launch, name: str) -> Spoken:
    option = next(each for each in OPTIONS if each.field == name and SERVER in each.tools)
    value = getattr(launch, name)
    return Spoken(option, bool(value) or option.kind.takes > 0,
                  (option.kind.write(value),) if option.kind.takes else ())  # fmt: skip


def fields_of(option: Option) -> set[str]:
    """The Launch fields that an option sets, under the names they have there."""
    names = {name for name, _ in (*option.on, *option.off)} | {option.field}
    found = set()
    for name in names - {""}:
        found |= {whole for whole, parts in TOGETHER.items() if name in parts} or {name}
    return found


@dataclass(slots=True)
class Told:
    """The account of what a target has been told of a launch."""

    settings: Settings
    _open: list[Spoken] = field(default_factory=list)
    _left: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        launch = self.settings.launch
        self._open = [Spoken(option, positive, words) for option, positive, words, _ in
                      walk(to_argv(launch), SERVER, launch.build)]  # fmt: skip

    def say(self, *names: str) -> None:
        """These Launch fields (or long flags of options that set none) are expressed."""
        self._open = [each for each in self._open if not _is(each.option, names)]

    def lacks(self, name: str, why: Phrase) -> None:
        """This field (or flag) cannot be expressed as it is."""
        found = [each for each in self._open if _is(each.option, (name,))]
        if not found and not name.startswith("-"):
            found = [_row(self.settings.launch, name)]
        self._left += [LeftOut(each.typed, why) for each in found]
        self.say(name)

    def mentions(self, name: str) -> bool:
        """Whether the launch differs from llama-server's defaults in this field or flag."""
        return any(_is(each.option, (name,)) for each in self._open)

    def value(self, flag: str) -> str | None:
        """The value of an option that is only passed on (`--threads`), and it is expressed."""
        found = [each for each in self._open if _is(each.option, (flag,))]
        self.say(flag)
        return found[-1].words[-1] if found and found[-1].words else None

    def rest(self) -> list[Spoken]:
        """What nobody has said yet."""
        return list(self._open)

    def left_out(self, why: Phrase) -> tuple[LeftOut, ...]:
        """What was not expressed: named so far with its own reason, everything else with `why`."""
        return (*self._left, *(LeftOut(each.typed, why) for each in self._open))


def _is(option: Option, names: Sequence[str]) -> bool:
    fields = fields_of(option)
    spellings = {*option.flags, *option.negative}
    return any(name in spellings if name.startswith("-") else name in fields for name in names)


def one_line(text: str, what: Phrase) -> str:
    """The text if the target can hold it; raises UsageError for line ends, control characters."""
    if _CONTROLS.search(text):
        raise UsageError("{what} cannot hold a line end or control character: {text!r}",
                         what=what, text=text)  # fmt: skip
    return text


def with_model(settings: Settings, model: str) -> Settings:
    """The same with another path of the model."""
    return replace(settings, launch=replace(settings.launch, model=model))


def experts_as_tensors(settings: Settings) -> Settings:
    """The same without -ncmoe beside -ot: where options have no order, one value keeps it.

    Both fill one list, whose first match wins (llama.cpp b10605 common/arg.cpp).
    """
    launch = settings.launch
    if not (launch.n_cpu_moe and launch.override_tensor):
        return settings
    experts = experts_on_cpu(launch.n_cpu_moe)
    return replace(settings, launch=replace(
        launch, n_cpu_moe=0, override_tensor=launch.override_tensor + experts))  # fmt: skip


def plain_name(text: str) -> str:
    """A name that every target takes: letters of any script, digits, `.`, `_` and `-`.

    >>> plain_name("Qwen3 8B (Q4_K_M)")
    'qwen3-8b-q4_k_m'
    """
    name = re.sub(r"[^\w.-]+", "-", text.lower()).strip("-._")
    return name[:80] or "model"


def as_json(left: Sequence[LeftOut], say: Any) -> list[dict[str, object]]:
    """`left_out` of the JSON document."""
    return [{"flags": list(each.words), "why": say(each.why)} for each in left]
