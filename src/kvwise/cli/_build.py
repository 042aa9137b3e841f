"""Whose rules apply when the line does not say `--engine-build`, and where that came from.

A model of the zoo (a JSON) has the build that it was measured with; for any other model it is the
build of the engine at hand, else the newest known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kvwise import builds
from kvwise.arch import row_of
from kvwise.engine.build import build_here
from kvwise.gguf.model import Model
from kvwise.launch import ZOO_BUILD, Launch
from kvwise.options import Reading, read

ASKED, ZOO, NEWEST = "--engine-build", "zoo", "newest known"
_MODEL_FLAGS = ("-m", "--model")


def read_for_build(words: Sequence[str], model: str | None, engine: str | None) -> Reading:
    """The launch of a line with the rules of the build it is about; `engine` is that of
    `--engine`. Raises UsageError."""
    if any(word == ASKED for word in words):
        return _from(read(words, environ=os.environ), ASKED)
    build, origin = _default(model or _named(words), engine)
    return _from(read(words, environ=os.environ, build=build), origin)


def _from(reading: Reading, origin: str) -> Reading:
    return replace(reading, launch=replace(reading.launch, build_from=origin))


def _named(words: Sequence[str]) -> str:
    named = [value for word, value in pairwise(words) if word in _MODEL_FLAGS]
    return named[-1] if named else os.environ.get("LLAMA_ARG_MODEL", "")


def _default(ref: str, engine: str | None) -> tuple[str, str]:
    zoo = of_zoo(ref)
    here = build_here(engine) if engine or not zoo else None
    if here is not None:
        return here.build, here.engine
    return (ZOO_BUILD, ZOO) if zoo else (builds.name(builds.NEWEST), NEWEST)


def of_zoo(ref: str) -> bool:
    """Is MODEL a JSON, as the zoo's models are?"""
    return ref.lower().endswith((".json", ".json.gz"))


def for_architecture(launch: Launch, model: Model) -> Launch:
    """A zoo model of an architecture that came after the zoo gets the newest rules."""
    since = row_of(model.header).since
    if launch.build_from != ZOO or since is None:
        return launch
    if builds.has(builds.number(launch.build), since):
        return launch
    return replace(launch, build=builds.name(builds.NEWEST), build_from=NEWEST)
