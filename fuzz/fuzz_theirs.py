"""Fuzz target for settings of others: `python fuzz/fuzz_theirs.py -runs=200000` (atheris)."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["kvwise"]):
    from kvwise.errors import KvwiseError
    from kvwise.export import files, names, target
    from kvwise.launch import Launch
    from kvwise.options import read
    from kvwise.theirs import kind_of, of_text
    from kvwise.theirs.repair import repair

_READERS = [target(name) for name in names() if hasattr(target(name), "read")]
_STARTS = (
    "llama-server -m a -c ", "koboldcpp --contextsize ", "docker run -v /a:/b i -m ", "& x `\n",
    '{"contextsize": ', '{"models": [{"model": ', '{"load": {"fields": [{"key": ',
    "models:\n  a:\n", "services:\n  a:\n    command: ", "[Service]\nExecStart=", "[a]\nmodel = ",
    "FROM a\nPARAMETER ", "a$:\n  loader: llama.cpp\n  ", "name: a\nparameters:\n  ",
)  # fmt: skip


def one_input(data: bytes) -> None:
    """Any bytes, behind the words that each reader looks for."""
    provider = atheris.FuzzedDataProvider(data)
    start = _STARTS[provider.ConsumeIntInRange(0, len(_STARTS) - 1)]
    content = start.encode() + provider.ConsumeBytes(sys.maxsize)
    try:
        text = files.decode(content, "fuzz").text
    except KvwiseError:
        return
    kind_of("fuzz", text)
    for reader in (of_text, *(each.read for each in _READERS)):
        try:
            given = reader(text)
            found = given if isinstance(given, list) else [given.found]
            for each in found:
                read(repair(each.words, each.tool, Launch().build).words, tool=each.tool)
        except KvwiseError as error:
            str(error)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
