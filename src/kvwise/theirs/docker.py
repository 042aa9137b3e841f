"""`docker run` (and podman's): the image's words, its variables, and where its folders lie here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_SWITCHES = {"-d", "--detach", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-dit", "--rm",
             "--init", "--privileged", "--read-only", "-P", "--publish-all", "--no-healthcheck",
             "--oom-kill-disable", "-q", "--quiet", "-dt", "-td", "-itd"}  # fmt: skip
"""Options without a value; every other one has one (docs.docker.com, docker container run)."""


@dataclass(slots=True)
class Run:
    """What a container is started with."""

    image: str = ""
    words: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)  # inside -> here
    before: tuple[str, ...] = ()  # words up to the image

    def here(self, path: str) -> str:
        """The path outside of what the container calls `path`."""
        for inside in sorted(self.mounts, key=len, reverse=True):
            if path == inside or path.startswith(inside.rstrip("/") + "/"):
                return self.mounts[inside].rstrip("/") + path[len(inside.rstrip("/")) :]
        return path


def parse(words: Sequence[str]) -> Run:
    """The words after `docker run`."""
    run = Run()
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if words[at] in _SWITCHES or (equals and name in _SWITCHES):
            at += 1
            continue
        if not equals:
            attached = re.fullmatch(r"(-[epv])(.+)", words[at], re.DOTALL)
            name, value = (attached[1], attached[2]) if attached else (words[at], "")
            if not attached:
                value = words[at + 1] if at + 1 < len(words) else ""
                at += 1
        at += 1
        _option(run, name, value)
    run.image = words[at] if at < len(words) else ""
    run.words = tuple(words[at + 1 :])
    run.before = tuple(words[: at + 1])
    return run


def _option(run: Run, name: str, value: str) -> None:
    if name in ("-e", "--env"):
        variable, equals, text = value.partition("=")
        if equals:
            run.environ[variable] = text
    elif name in ("-v", "--volume"):
        outside, inside = _volume(value)
        if inside:
            run.mounts[inside] = outside
    elif name == "--mount":
        pairs = dict(part.partition("=")[::2] for part in value.split(","))
        inside = pairs.get("target") or pairs.get("destination") or pairs.get("dst") or ""
        if inside:
            run.mounts[inside] = pairs.get("source") or pairs.get("src") or ""


def _volume(value: str) -> tuple[str, str]:
    drive = re.match(r"[A-Za-z]:[\\/]", value)
    begin = len(drive[0]) if drive else 0
    head, _, rest = value[begin:].partition(":")
    return value[:begin] + head, rest.partition(":")[0]
