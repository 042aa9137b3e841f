"""Settings to be measured, and the tests of each.

A test is what llama-bench calls pp512, tg128 or pp512@d4096: a prompt or a generation of so many
tokens behind so many that are in the cache already. An axis is one of llama.cpp's options with the
values to try; all axes together make the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from kvwise.errors import UsageError
from kvwise.gguf.types import CACHE_TYPES
from kvwise.launch import TOOLS, Launch
from kvwise.options import Option, change, spellings
from kvwise.options.kinds import FLAG, SWITCH, TEXT, truth
from kvwise.units import pad, parse_count

Kind = Literal["prompt", "decode", "embedding"]
MATRICES = ("kv", "six")
_SHORT: dict[Kind, str] = {"prompt": "pp", "decode": "tg", "embedding": "embd"}
_TESTS = {
    "p": "prompt", "n-prompt": "prompt", "n": "decode", "n-gen": "decode", "d": "depth",
    "n-depth": "depth",
}  # fmt: skip
CELLS = 256
"""Contexts are padded to a multiple of this many cells (src/llama-context.cpp)."""
MOST_CASES = 4096
PAIRS = "ctk/ctv"
"""Name of the axis of a matrix."""
SIX = (
    ("f16", "f16"), ("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q8_0"), ("f16", "q4_0"),
    ("q8_0", "q4_0"),
)  # fmt: skip
"""K and V of the pairs that people compare by hand, the usual one first."""


@dataclass(frozen=True, slots=True)
class Task:
    """`tokens` read (prompt) or generated one by one (decode), behind `depth` tokens; or made into
    a vector (embedding)."""

    kind: Kind
    tokens: int
    depth: int = 0

    @property
    def name(self) -> str:
        """As llama-bench names it, but for embeddings, which it calls prompts too."""
        depth = f"@d{self.depth}" if self.depth else ""
        return f"{_SHORT[self.kind]}{self.tokens}{depth}"

    @property
    def context(self) -> int:
        """Tokens that the cache must hold; one more than llama-bench, because a server always
        generates a token behind a prompt."""
        return self.tokens + self.depth + (self.kind != "embedding")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths to be tried: every prompt and every generation at every depth."""

    prompt: tuple[int, ...] = (512,)
    decode: tuple[int, ...] = (128,)
    depth: tuple[int, ...] = (0,)

    def all(self) -> tuple[Task, ...]:
        """Shallow ones first. Raises UsageError when there is nothing to do."""
        kinds: tuple[tuple[Kind, tuple[int, ...]], ...] = (
            ("prompt", self.prompt),
            ("decode", self.decode),
        )
        found = [
            Task(kind, tokens, depth)
            for depth in self.depth
            for kind, lengths in kinds
            for tokens in lengths
            if tokens
        ]
        if not found:
            raise UsageError("-p 0 and -n 0 leave nothing to run")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Axis:
    """One option and its values: `name` as the user wrote it (ctk), `values` as changes."""

    name: str
    values: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One setting of one model (`model` counts from 0). `varied` are the options that differ
    between settings, with their values."""

    model: int
    launch: Launch
    varied: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """`ctk=q8_0 ctv=f16`; empty for an only one."""
        return " ".join(f"{name}={value}" for name, value in self.varied)

    @property
    def key(self) -> str:
        """Names it among the settings of a job."""
        return f"{self.model} {self.label}".strip()

    @property
    def rest(self) -> tuple[tuple[str, str], ...]:
        """What varies beside the types of the cache."""
        return tuple(pair for pair in self.varied if pair[0] not in ("ctk", "ctv"))


def lengths_of(text: str, flag: str) -> tuple[int, ...]:
    """`512,2k` -> (512, 2048); raises UsageError."""
    try:
        return tuple(dict.fromkeys(parse_count(word) for word in text.split(",")))
    except UsageError as error:
        raise UsageError("{flag}: {problem}", flag=flag, problem=error.phrase) from None


def parse_vary(texts: Iterable[str], tests: Lengths) -> tuple[tuple[Axis, ...], Lengths]:
    """`ctk=f16,q8_0;fa=on,off;d=0,4096` -> the axes, and the tests with p, n and d in them.

    Names are llama.cpp's own without the dashes; lists inside a value are written with / as for
    llama-bench. Raises UsageError.
    """
    axes: list[Axis] = []
    seen: set[str] = set()
    for piece in (piece for text in texts for piece in text.split(";") if piece.strip()):
        name, equals, values = (part.strip() for part in piece.partition("="))
        name = name.lstrip("-")
        if not equals or not name or not values:
            raise UsageError(
                "--vary: {piece!r} is no option with values", piece=piece[:80],
                hint="write it like ctk=f16,q8_0;fa=on,off",
            )  # fmt: skip
        called = _TESTS.get(name) or _option(name)[0].name
        if called in seen:
            raise UsageError("--vary: {name} is there twice", name=name)
        seen.add(called)
        if name in _TESTS:
            tests = replace(tests, **{_TESTS[name]: lengths_of(values, name)})
        else:
            axes.append(_axis(name, values.split(",")))
    return tuple(axes), tests


def _axis(name: str, values: Sequence[str]) -> Axis:
    option, tool = _option(name)
    return Axis(name, tuple(dict.fromkeys(_value(name, option, tool, text) for text in values)))


def _option(name: str) -> tuple[Option, str]:
    """llama-bench's spelling first: its switches take values."""
    for tool in reversed(TOOLS):
        known = spellings(tool)
        option = known.get(f"-{name}") or known.get(f"--{name}")
        if option is not None and not option.ours:
            return option, tool
    import difflib  # noqa: PLC0415  (only a typing error pays for it)

    names = [flag.lstrip("-") for flag in spellings(TOOLS[-1])]
    near = difflib.get_close_matches(name[:40], names, n=1, cutoff=0.5)
    raise UsageError(
        "--vary: llama.cpp has no option {name}", name=name[:40], near=near and near[0],
        hint="did you mean {near}?" if near else None,
    )  # fmt: skip


class _Hashed(dict[str, Any]):
    """Changes of a launch that can be compared and counted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def _value(
    name: str, option: Option, tool: str, text: str
) -> tuple[str, Mapping[str, Any], tuple[str, ...]]:
    """(the text, fields of a launch it sets, words that are passed on)."""
    text, kind = text.strip(), option.kind_in(tool)
    if kind is TEXT:  # llama-bench takes lists there; here each value stands alone
        kind = option.kind
    try:
        value = truth(text) if kind in (FLAG, SWITCH) else kind.read(text)
    except UsageError as error:
        raise UsageError("--vary: {name}: {problem}", name=name, problem=error.phrase) from None
    if not option.passed_on:
        fields = _Hashed(option.settings(value))
        if any(field.startswith("_") for field in fields):
            raise UsageError("--vary: {name} cannot vary", name=name,
                             hint="several models are written as MODEL MODEL")  # fmt: skip
        return text, fields, ()
    flag = option.spellings("llama-server") or option.spellings(tool)
    if kind in (FLAG, SWITCH):
        off = option.negative[:1] if option.negative else ()
        return text, _Hashed(), flag[:1] if value else off
    return text, _Hashed(), (flag[0], kind.write(value))


def matrix(name: str) -> tuple[Axis, ...]:
    """The axis of a matrix: pairs of cache types, those of SIX first."""
    pairs: list[tuple[str, str]] = list(SIX)
    if name == "kv":
        pairs += [(k, v) for k in CACHE_TYPES for v in CACHE_TYPES if (k, v) not in SIX]
    values = tuple(
        (f"{k}/{v}", _Hashed({"type_k": k, "type_v": v}), ()) for k, v in pairs
    )  # fmt: skip
    return (Axis(PAIRS, values),)


def make_cases(
    bases: Sequence[Launch], axes: Sequence[Axis], tests: Sequence[Task], fixed_ctx: bool
) -> list[Case]:
    """All settings of all models, model by model. `fixed_ctx` keeps the context of the bases,
    else it is what the longest test needs. Raises UsageError when there are too many."""
    count = len(bases)
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CASES:
        raise UsageError(
            "{count:,} settings are more than {most:,}", count=count, most=MOST_CASES,
            hint="vary fewer options, or fewer values of each",
        )  # fmt: skip
    return [
        Case(model, _launch(base, combination, None if fixed_ctx else _needed(base, tests)), varied)
        for model, base in enumerate(bases)
        for combination, varied in _combinations(axes)
    ]


def _needed(base: Launch, tests: Sequence[Task]) -> int:
    """Cells for the longest test that there is for a launch."""
    return pad(max((test.context for test in tests_of(base, tests)), default=CELLS), CELLS)


def tests_of(launch: Launch, tests: Sequence[Task]) -> tuple[Task, ...]:
    """Of the tests those that there are for a launch: one for vectors reads, from nothing."""
    if not launch.embeddings:
        return tuple(tests)
    return tuple(
        Task("embedding", test.tokens) for test in tests if test.kind == "prompt" and not test.depth
    )


def _combinations(
    axes: Sequence[Axis],
) -> Iterator[tuple[list[tuple[Mapping[str, Any], tuple[str, ...]]], tuple[tuple[str, str], ...]]]:
    for values in product(*(axis.values for axis in axes)):
        varied: list[tuple[str, str]] = []
        for axis, (text, _, _) in zip(axes, values, strict=True):
            if axis.name == PAIRS:
                k, _, v = text.partition("/")
                varied += [("ctk", k), ("ctv", v)]
            else:
                varied.append((axis.name, text))
        yield [(fields, words) for _, fields, words in values], tuple(varied)


def _launch(
    base: Launch,
    changes: Sequence[tuple[Mapping[str, Any], tuple[str, ...]]],
    n_ctx: int | None,
) -> Launch:
    fields: dict[str, Any] = {} if n_ctx is None else {"n_ctx": n_ctx}
    extra = base.extra
    for more, words in changes:
        fields |= more
        extra = _with_words(extra, words)
    if "load_mode" in fields:
        fields["mmap"] = fields["load_mode"] in ("auto", "mmap", "mmap+mlock")
    launch = change(replace(base, extra=extra), **fields)
    slots = 1 if launch.kv_unified else launch.n_seq_max
    if n_ctx is not None and slots > 1 and launch.n_ctx == n_ctx:  # it is divided among them
        launch = change(launch, n_ctx=n_ctx * slots)
    return launch


def _with_words(extra: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    """The words in place of an earlier mention of the same flag."""
    if not words:
        return extra
    kept = list(extra)
    if words[0] in kept:
        at = kept.index(words[0])
        del kept[at : at + len(words)]
    return (*kept, *words)
