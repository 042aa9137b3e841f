"""Launch <-> argv <-> environment <-> JSON, for each tool."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.errors import UsageError
from kvwise.gguf.types import CACHE_TYPES
from kvwise.launch import TOOLS, Launch
from kvwise.options import OPTIONS, Option, change, defaults, read, unsayable
from kvwise.options import kinds as k

SERVER, CLI, BENCH = TOOLS
_NAME = st.text(st.characters(codec="utf-8", exclude_characters=",=;/\0"), min_size=1, max_size=8)
_SHARES = st.lists(st.just(0.0) | st.floats(1e-37, 1e6), min_size=1, max_size=15)
_PAIRS = st.lists(st.tuples(_NAME, _NAME), min_size=1, max_size=3)
_NATURAL = st.integers(0, 2**31 - 1).map(str)
_INT = st.integers(-(2**31), 2**31 - 1).map(str)

VALUES: dict[k.Kind, st.SearchStrategy[str]] = {
    k.INT: _INT,
    k.NATURAL: _NATURAL,
    k.POSITIVE: _NATURAL.filter(lambda text: text != "0"),
    k.CONTEXT: _NATURAL | st.integers(0, 1000).map(lambda n: f"{n}k"),
    k.BATCH: st.integers(1, 2**31 - 1).map(str) | st.just("2k"),
    k.COUNT: _INT,
    k.TEXT: st.text(max_size=12) | st.sampled_from(["hf:a/b", "http://h/f.gguf", "-c", "x.gguf"]),
    k.LAYERS: _INT | st.sampled_from(["auto", "all"]),
    k.BENCH_LAYERS: _INT,
    k.FLASH: st.sampled_from(["on", "off", "auto", "1", "0", "-1"]),
    k.ON_OFF: st.sampled_from(["on", "off", "true", "0"]),
    k.CACHE: st.sampled_from(CACHE_TYPES),
    k.BENCH_CACHE: st.sampled_from(k.BENCH_CACHE_TYPES),
    k.SPLIT: _SHARES.map(lambda v: ",".join(map(repr, v))),
    k.BENCH_SPLIT: _SHARES.map(lambda v: "/".join(map(repr, v))),
    k.DEVICES: st.lists(_NAME, min_size=1, max_size=3).map(",".join),
    k.BENCH_DEVICES: st.lists(_NAME, min_size=1, max_size=3).map("/".join),
    k.OVERRIDES: _PAIRS.map(lambda v: ",".join(map("=".join, v))),
    k.BENCH_OVERRIDES: _PAIRS.map(lambda v: ";".join(map("=".join, v))),
    k.SPEC_TYPES: st.lists(st.sampled_from(k.SPEC_TYPES_LEGAL), min_size=1, max_size=3).map(
        ",".join
    ),
    k.DENSE: st.integers(0, 600).map(str),
    k.BENCH_TOKENS: st.integers(1, 2**30 - 1).map(str),
    k.BENCH_PAIR: st.tuples(st.integers(1, 2**28), st.integers(0, 2**28)).map(
        "{0[0]},{0[1]}".format
    ),
    k.BENCH_ON: st.sampled_from(["0", "1"]),
    k.BENCH_NOT: st.sampled_from(["0", "1"]),
    k.BUILD: st.integers(1, 99999).map("b{}".format),
}


@st.composite
def _words(draw: st.DrawFn, option: Option, tool: str) -> list[str]:
    kind = option.kind_in(tool)
    flag = draw(st.sampled_from(option.spellings(tool)))
    if kind.takes == 0:
        return [flag]
    if kind is k.PAIR:
        return [flag, draw(_INT), draw(_INT)]
    if kind.name == "choice":
        return [flag, draw(st.sampled_from(option.value.split("|")))]
    if tool == BENCH and kind is k.TEXT and not option.passed_on:
        return [flag, draw(_NAME)]
    return [flag, draw(VALUES[kind])]


@st.composite
def command_lines(draw: st.DrawFn, tool: str) -> list[str]:
    """Legal ones: any options of the tool, each at most once in llama-bench."""
    legal = [
        option
        for option in OPTIONS
        if option.spellings(tool) and not option.gone(10605) and option.field != "tool"
    ]
    options = draw(st.lists(st.sampled_from(legal), max_size=6))
    argv: list[str] = []
    seen: set[str] = set()
    for option in options:
        fields = {name for name, _ in option.settings(None)}
        if tool == BENCH and fields & seen:
            continue
        seen |= fields
        argv += draw(_words(option, tool))
    return argv


def _heard(argv: list[str], tool: str) -> Launch | None:
    """None where one legal option forbids another, or a value (0 slots)."""
    try:
        return Launch.parse(argv, tool=tool)
    except UsageError:
        return None


@pytest.mark.parametrize("tool", TOOLS)
@given(data=st.data())
@settings(deadline=None)
def test_argv_and_back(tool: str, data: st.DataObject) -> None:
    launch = _heard(data.draw(command_lines(tool)), tool)
    if launch is None:
        return
    argv = launch.to_argv(ours=True)
    assert Launch.parse(argv, tool=tool) == launch
    assert Launch.parse(argv).tool == tool  # --tool is in there


@pytest.mark.parametrize("tool", TOOLS)
@given(data=st.data())
@settings(deadline=None)
def test_environment_and_back(tool: str, data: st.DataObject) -> None:
    launch = _heard(data.draw(command_lines(tool)), tool)
    if launch is None:
        return
    environ, rest = launch.to_env(ours=True)
    assert Launch.parse(rest, tool=tool, environ=environ) == launch
    assert all(name.startswith(("LLAMA_ARG_", "MTMD_")) for name in environ)
    if tool == BENCH:
        assert environ == {}


@pytest.mark.parametrize("tool", TOOLS)
@given(data=st.data())
@settings(deadline=None)
def test_json_and_back(tool: str, data: st.DataObject) -> None:
    launch = _heard(data.draw(command_lines(tool)), tool)
    if launch is None:
        return
    assert Launch.from_dict(json.loads(json.dumps(launch.as_dict()))) == launch


_FLAGS = sorted({flag for option in OPTIONS for each in TOOLS for flag in option.spellings(each)})


@pytest.mark.parametrize("tool", TOOLS)
@given(argv=st.lists(st.sampled_from(_FLAGS) | st.text(max_size=8) | _INT, max_size=8))
@settings(deadline=None, max_examples=300)
def test_any_words_give_a_launch_or_a_usage_error(tool: str, argv: list[str]) -> None:
    try:
        launch = Launch.parse(argv, tool=tool)
    except UsageError as error:
        assert str(error)  # every field of the sentence and of the hint is there
        assert error.hint is None or str(error.hint)
    else:
        assert launch.n_batch >= 1 and launch.n_ctx >= 0


@given(
    environ=st.dictionaries(
        st.sampled_from([option.env for option in OPTIONS if option.env]), st.text(max_size=8)
    )
)
@settings(deadline=None)
def test_any_environment_gives_a_launch_or_a_usage_error(environ: dict[str, str]) -> None:
    try:
        Launch.parse([], environ=environ)
    except UsageError as error:
        assert str(error)


@pytest.mark.parametrize("tool", TOOLS)
def test_defaults_need_no_words(tool: str) -> None:
    assert defaults(tool).to_argv() == []
    assert unsayable(defaults(tool)) == ()


def test_short_and_plain_words() -> None:
    argv = ["-m", "m.gguf", "-c", "8192", "-ctk", "q8_0", "-ctv", "q8_0", "-ngl", "all"]
    assert Launch.parse(argv).to_argv() == argv
    assert Launch.parse(["-cmoe"]).to_argv() == ["-cmoe"]
    assert Launch.parse(["-np", "1"]).to_argv() == ["-np", "1"]


def test_what_a_tool_cannot_be_told() -> None:
    assert unsayable(replace(defaults(CLI), kv_unified=True)) == ("kv_unified",)
    assert "n_outputs_max" in unsayable(Launch())  # a bare context is no server
    assert unsayable(replace(defaults(BENCH), n_ctx=0)) == ("n_ctx",)


def test_a_bare_context_survives_with_our_words() -> None:
    launch = Launch(n_ctx=4096)
    assert Launch.parse(launch.to_argv(ours=True)) == launch


def test_a_change_takes_what_follows_along() -> None:
    launch = change(Launch.parse([]), n_seq_max=2)
    assert launch.n_outputs_max == 2
    assert change(launch, n_outputs_max=512).n_outputs_max == 512
    assert change(change(launch, n_outputs_max=512), n_seq_max=8).n_outputs_max == 512
    assert change(launch, spec_types=("draft-mtp",)).n_rs_seq == launch.draft_n_max


def test_mmap_off_is_said_even_when_only_the_field_was_changed() -> None:
    assert replace(Launch.parse([]), mmap=False).to_argv() == ["-lm", "none"]


def test_reading_costs_no_surprise_on_twins() -> None:
    """The same request from flags and from variables is the same launch, extra flags included."""
    one = read(["--keep", "5", "-t", "4"], environ={"LLAMA_ARG_PORT": "1"}).launch
    two = read(["--port", "1", "--keep", "5"], environ={"LLAMA_ARG_THREADS": "4"}).launch
    assert one == two


def test_a_launch_made_in_python_has_the_build_of_the_zoo() -> None:
    assert Launch().build == Launch.parse(["-c", "4096"]).build == "b10605"
    assert Launch.parse([], build="b11549").build == "b11549"
    assert Launch.parse(["--engine-build", "b11549"]).build == "b11549"
