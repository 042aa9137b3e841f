"""How commands are found, parsed and explained.

Our own options are long and may stand anywhere on the line; every other word is llama.cpp's
(`-ngl`, `-ctk`, ...) or a positional argument and is handed on as it was written, because
llama.cpp's table of options (`kvwise.options`) is the one that knows them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import click

import kvwise
from kvwise import cli
from kvwise.cli._settings import SETTINGS
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.launch import TOOLS
from kvwise.options import OPTIONS, spellings, split_argv
from kvwise.options.table import find
from kvwise.text import Phrase, phrase, template

WORDS = "kvwise.words"
"""Where a context keeps llama.cpp's options (`Context.meta`)."""

STRANGERS = "kvwise.strangers"
"""Where a context keeps the words for the engine that nobody here knows."""

NEAREST_OF = TOOLS[0]
"""Whose options a misspelt one is compared with."""

MAYBE_A_NUMBER = -1
"""Count of values of an option that may stand alone."""

_NOT_COMMANDS = {"output"}
_HELP = {"help_option_names": ["-h", "--help"]}


class MaybeNumber(click.Option):
    """An option whose value, a whole number, may be left out: `--restart`, `--restart 3`."""

    def __init__(self, flags: Sequence[str], alone: int, **kwargs: Any) -> None:
        super().__init__(flags, type=int, is_flag=False, flag_value=alone, **kwargs)


class CommandFolder(click.Group):
    """The group `kvwise`: its commands are the files of this folder."""

    def __init__(self) -> None:
        super().__init__(
            "kvwise",
            help="What fits on your GPU with llama.cpp, to the byte, before anything is loaded.",
            params=[click.Option(["--version"], is_flag=True, help="Show the versions.")],
            callback=_without_command,
            invoke_without_command=True,
            context_settings=_HELP,
        )

    @staticmethod
    def names() -> list[str]:
        """All commands there are."""
        names = (module.name for module in iter_modules(cli.__path__))
        return sorted(name for name in names if name[0] != "_" and name not in _NOT_COMMANDS)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's)
        return self.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(f"kvwise.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101  (a file without one is our bug)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0][0] != "-" and args[0] not in self.list_commands(ctx):
            raise click.NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        printer = ctx.find_object(Printer) or Printer()
        formatter.write_usage("kvwise", "COMMAND ...", prefix=printer.say(phrase("Usage: ")))
        formatter.write_paragraph()
        formatter.write_text(printer.say(phrase(self.help or "")))
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section(printer.say(phrase("Commands"))):
            formatter.write_dl(
                [(name, printer.say(phrase(_first(each)))) for name, each in commands if each]
            )
        _write_settings(printer, formatter, [("--version", "Show the versions.")])


class Command(click.Command):
    """A command with examples, translated help, and llama.cpp's options beside its own.

    `engine` says that it takes llama.cpp's options; then they stand in `Context.meta[WORDS]`. With
    `passes_on`, what nobody here knows is no error behind `--` or beside a model that is named by
    a flag: it is kept in `Context.meta[STRANGERS]`, for the engine.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        notes: Sequence[Phrase] = (),
        engine: bool = True,
        passes_on: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("context_settings", _HELP)
        super().__init__(*args, **kwargs)
        self.examples, self.notes, self.engine = examples, notes, engine
        self.passes_on = passes_on

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        counts = _value_counts(self.get_params(ctx))
        ctx.meta[WORDS], ctx.meta[STRANGERS], behind = [], [], []
        if self.passes_on and "--" in args:
            at = args.index("--")
            args, behind = args[:at], args[at + 1 :]
        if self.engine:
            ctx.meta[WORDS], args = split_argv(args, counts)
        ours, others = split_words(args, counts)
        if self.passes_on and _names_model(ctx.meta[WORDS]):
            ctx.meta[STRANGERS], others = others, []
        if behind:
            known, strange = split_known(behind)
            ctx.meta[WORDS] += known
            ctx.meta[STRANGERS] += strange
        room = _room(self.params)
        for word in others:
            if word.startswith("-") and len(word) > 1:
                raise self._unknown(word, counts)
        if len(others) > room:
            _check_values(ctx.meta[WORDS])
            raise UsageError("one word too many: {word}", word=others[room][:80])
        return super().parse_args(ctx, [*ours, "--", *others])

    def _unknown(self, word: str, ours: Iterable[str]) -> UsageError:
        flag, equals, _ = word.partition("=")
        if self.engine and equals and flag in spellings(NEAREST_OF):
            find(word, NEAREST_OF)  # raises: llama.cpp takes no =
        flag = flag[:80]
        known = [*ours, *(spellings(NEAREST_OF) if self.engine else ())]
        near = get_close_matches(flag, known, n=1, cutoff=0.5)
        hint = "did you mean {near}?" if near else "`kvwise {name} --help` shows what it takes"
        if self.passes_on and not near:
            hint = "put what only the engine knows behind --"
        return UsageError(
            "unknown option {word}", word=flag, near=near and near[0], name=self.name, hint=hint
        )

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        printer = ctx.find_object(Printer) or Printer()
        takes = [
            param.make_metavar(ctx) for param in self.params if isinstance(param, click.Argument)
        ]
        takes.append(f"[{printer.say(phrase('options'))}]")
        if self.passes_on:
            takes.append("[-- ...]")
        formatter.write_usage(
            ctx.command_path, " ".join(takes), prefix=printer.say(phrase("Usage: "))
        )
        paragraphs = [
            *(phrase(" ".join(text.split())) for text in (self.help or "").split("\n\n")),
            *self.notes,
            *([phrase(_ENGINE_FLAGS)] if self.engine else ()),
        ]
        for paragraph in paragraphs:
            formatter.write_paragraph()
            formatter.write_text(printer.say(paragraph))
        rows = self._option_rows(printer)
        if rows:
            with formatter.section(printer.say(phrase("Options"))):
                formatter.write_dl(rows)
        _write_settings(printer, formatter, [])
        with formatter.section(printer.say(phrase("Examples"))):
            for example in self.examples:
                formatter.write(f"  $ {example}\n")

    def _option_rows(self, printer: Printer) -> list[tuple[str, str]]:
        rows = [
            (", ".join(option.opts) + _metavar(option), printer.say(phrase(option.help or "")))
            for option in self.params
            if isinstance(option, click.Option) and not option.hidden
        ]
        if self.engine:
            rows += [
                (f"{row.name} {row.value}".rstrip(), _sentence(printer, row.help))
                for row in OPTIONS
                if row.ours
            ]
        return rows


_ENGINE_FLAGS = template(
    "llama.cpp's own flags are read as llama.cpp reads them, and so are its LLAMA_ARG_ variables: "
    "-c -b -ub -np -kvu -fa -ctk -ctv -ngl -sm -ts -mg -dev -ot -cmoe -ncmoe -nkvo --swa-full ..."
)


def command(
    help: str,  # noqa: A002  (click's own name for it)
    *params: click.Parameter,
    examples: Sequence[str],
    notes: Sequence[Phrase] = (),
    engine: bool = True,
    passes_on: bool = False,
) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command of its file.

    It is called as `function(printer, **params)` and returns the exit code; with `engine`,
    `words` are llama.cpp's options as they were written; with `passes_on`, `strangers` are words
    for the engine that are not in its table.
    """

    def make(function: Callable[..., int]) -> Command:
        @click.pass_context
        def callback(ctx: click.Context, /, **values: Any) -> int:
            if engine:
                values["words"] = ctx.meta[WORDS]
            if passes_on:
                values["strangers"] = ctx.meta[STRANGERS]
            return function(ctx.find_object(Printer), **values)

        return Command(
            function.__module__.rpartition(".")[2],
            help=help,
            callback=callback,
            params=list(params),
            examples=examples,
            notes=notes,
            engine=engine,
            passes_on=passes_on,
        )

    return make


_MODEL_FIELDS = {"_path", "_url", "_hf", "_docker"}


def _names_model(words: Sequence[str]) -> bool:
    """Is a model named by one of llama.cpp's flags?"""
    known = spellings(NEAREST_OF)
    return any(known[word].field in _MODEL_FIELDS for word in words if word in known)


def _check_values(words: Sequence[str]) -> None:
    """Raises UsageError for an option that took the next one for its value (`-fa -c 512`): what
    that one was given is then the word too many."""
    known = spellings(NEAREST_OF)
    at = 0
    while at < len(words):
        option = known.get(words[at])
        takes = option.kind_in(NEAREST_OF).takes if option else 0
        if option and any(word in known for word in words[at + 1 : at + 1 + takes]):
            raise UsageError("{flag} needs a value: {value}", flag=words[at],
                             value=option.value or "VALUE")  # fmt: skip
        at += 1 + takes


def split_known(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(llama-server's own options with their values, everything else), each in its order.

    >>> split_known(["--new", "5", "-c", "4096"])
    (['-c', '4096'], ['--new', '5'])
    """
    options = spellings(NEAREST_OF)
    known: list[str] = []
    strange: list[str] = []
    at = 0
    while at < len(words):
        option = options.get(words[at])
        takes = option.kind_in(NEAREST_OF).takes if option else 0
        (known if option else strange).extend(words[at : at + 1 + takes])
        at += 1 + takes
    return known, strange


def split_words(
    words: Sequence[str], value_counts: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """(our options with their values, all other words), each in the order they stood.

    Raises UsageError for an option without its value.

    >>> split_words(["m.gguf", "--gpu", "6GiB", "-ngl", "9"], {"--gpu": 1})
    (['--gpu', '6GiB'], ['m.gguf', '-ngl', '9'])
    """
    ours: list[str] = []
    others: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        flag, equals, _ = word.partition("=")
        count = value_counts.get(word, value_counts.get(flag) if flag.startswith("--") else None)
        if count is None:
            others.append(word)
        elif count == MAYBE_A_NUMBER and not equals:
            follows = at < len(words) and words[at].isdecimal()
            ours.append(f"{word}={words[at]}" if follows else word)
            at += follows
        else:
            values = [] if equals else list(words[at : at + count])
            if not equals and len(values) < count:
                raise UsageError("{what} needs a value", what=word)
            ours += [word, *values]
            at += len(values)
    return ours, others


def _room(params: Iterable[click.Parameter]) -> int:
    """Positional words that a command takes; an argument of -1 takes all there are."""
    counts = [param.nargs for param in params if isinstance(param, click.Argument)]
    return sys.maxsize if -1 in counts else sum(counts)


def _value_counts(params: Iterable[click.Parameter]) -> dict[str, int]:
    counts = {}
    for option in params:
        if isinstance(option, click.Option):
            plain = option.is_flag or option.count
            maybe = isinstance(option, MaybeNumber)
            for flag in (*option.opts, *option.secondary_opts):
                counts[flag] = MAYBE_A_NUMBER if maybe else 0 if plain else option.nargs
    return counts


def _sentence(printer: Printer, words: str) -> str:
    """A row's help as the commands' own are written: a capital first, a full stop last."""
    said = printer.say(phrase(words))
    return printer.say(phrase("{text}.", text=said[:1].upper() + said[1:]))


def _metavar(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "|".join(option.type.choices)
    return " " + (option.metavar or (option.name or "").upper())


def _first(each: click.Command) -> str:
    """The first paragraph of a command's help: its line in the list of commands."""
    return " ".join((each.help or "").split("\n\n")[0].split())


def _write_settings(
    printer: Printer, formatter: click.HelpFormatter, more: list[tuple[str, str]]
) -> None:
    rows = [
        (", ".join(row.flags) + (" " + "|".join(row.values) if row.values else ""), row.help)
        for row in SETTINGS
    ]
    with formatter.section(printer.say(phrase("Options of every command"))):
        formatter.write_dl([(flag, printer.say(phrase(text))) for flag, text in more + rows])


@click.pass_context
def _without_command(ctx: click.Context, /, version: bool) -> int | None:
    if ctx.invoked_subcommand is not None:
        return None
    printer = ctx.find_object(Printer) or Printer()
    if version:
        return _show_versions(printer)
    if not printer.json:
        printer.text(ctx.get_help())
        return 0
    raise click.MissingParameter(ctx=ctx, param_hint="COMMAND", param_type="argument")


def _show_versions(printer: Printer) -> int:
    import platform  # noqa: PLC0415

    from kvwise import builds  # noqa: PLC0415

    versions = {
        "kvwise": kvwise.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "rules_of_build": ", ".join(map(builds.name, builds.KNOWN)),
    }
    if printer.json:
        printer.document({"schema": "kvwise/version/1", **versions})
    else:
        printer.text(
            phrase(
                "kvwise {kvwise}, rules of llama.cpp {rules_of_build}, Python {python}, {platform}",
                **versions,
            )
        )
    return 0
