"""OPTIONS: every option of llama.cpp's server, CLI and bench, and who understands what."""

from __future__ import annotations

from functools import cache

from kvwise.errors import UsageError
from kvwise.launch import ZOO_BUILD
from kvwise.options.memory import SETTING_ROWS
from kvwise.options.passed import PASSED_ROWS
from kvwise.options.row import EVERY, Option

OPTIONS: tuple[Option, ...] = SETTING_ROWS + PASSED_ROWS
RANK = {option: rank for rank, option in enumerate(OPTIONS)}


@cache
def spellings(tool: str) -> dict[str, Option]:
    """Every flag that `tool` (or kvwise, for its own) understands."""
    return {flag: option for option in OPTIONS for flag in option.spellings(tool)}


def normal(word: str) -> str:
    """`--ctx_size` is `--ctx-size` to llama.cpp; short flags and values stay as they are."""
    return word.replace("_", "-") if word.startswith("--") else word


def number(build: str) -> int:
    """`b10605` -> 10605."""
    return int(build.removeprefix("b"))


def find(word: str, tool: str, build: str = ZOO_BUILD) -> Option:
    """The option that a flag names; raises UsageError with the nearest one."""
    flag = normal(word)
    option = spellings(tool).get(flag)
    if option is not None and not option.gone(number(build)):
        return option
    if option is not None:
        raise UsageError(
            "{flag} was removed from llama.cpp", flag=flag, instead=option.removed,
            hint="use {instead}",
        )  # fmt: skip
    raise _unknown(flag, tool)


def _unknown(flag: str, tool: str) -> UsageError:
    if not flag.startswith("-"):
        return UsageError("{word!r} is not an option", word=flag, hint="options start with -")
    name, equals, value = flag.partition("=")
    if equals and name in spellings(tool):
        return UsageError(
            "{tool} takes no = after {name}", tool=tool, name=name, value=value,
            hint="write {name} {value}",
        )  # fmt: skip
    if tool == "llama-bench" and flag in ("-c", "--ctx-size"):
        return UsageError(
            "llama-bench has no {flag}", flag=flag, hint="its context is -p or -n, and -d"
        )
    others = [other for other in EVERY if flag in spellings(other)]
    if others:
        return UsageError(
            "{tool} has no option {flag}", tool=tool, flag=flag, others=", ".join(others),
            hint="{others} has it",
        )  # fmt: skip
    import difflib  # noqa: PLC0415  (only a typing error pays for it)

    near = difflib.get_close_matches(flag[:80], list(spellings(tool)), n=1, cutoff=0.5)
    if near:
        return UsageError(
            "{tool} has no option {flag}", tool=tool, flag=flag, near=near[0],
            hint="did you mean {near}?",
        )  # fmt: skip
    return UsageError("{tool} has no option {flag}", tool=tool, flag=flag)
