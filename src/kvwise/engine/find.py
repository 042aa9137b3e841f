"""Which engines are here, which build each is, and which flags it knows.

A binary is asked `--version` and `--help` once; the answers are kept under the hash of the
program and of the llama.cpp libraries beside it (a binary of today is a thin stub around them).
Its build may be 0: llama.cpp compiled outside a repository does not know its own number. Then its
flags tell (`by_flags`), or those of the llama-server, llama-cli or llama-bench beside it that is of
the same version; else it stays unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kvwise.engine.build import BY_FLAGS, embedded_build, embedded_version
from kvwise.engine.by_flags import build_by_flags, shown_in
from kvwise.engine.limits import clean_environment
from kvwise.errors import EngineError, UsageError
from kvwise.launch import Launch
from kvwise.options.row import EVERY
from kvwise.oserrors import reason_of
from kvwise.paths import cache_dir

EMBEDDED = "embedded"
SERVER = "llama-server"
FIT_PARAMS = "llama-fit-params"
_FOLDERS = ("", "build/bin", "build/bin/Release", "bin")
"""Where a llama.cpp has its programs: as a release, as built by CMake, as installed."""
_TIMEOUT_S = 30
_FLAG = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
_NEW_STYLE = 8000
"""Builds that print the newer form are above it."""
_VERSION = re.compile(r"version: (\d+) \((\w+)\)|\(build (\d+), commit (\w+)\)")


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: the embedded one, or a binary. `build` is like b10605, None if unknown, and
    `by_flags` says that the program does not know it and its flags told it; `flags` is empty for
    the embedded one, whose settings are attributes."""

    kind: Literal["embedded", "binary"]
    path: str = ""
    build: str | None = None
    version: str = ""
    flags: frozenset[str] = frozenset()
    by_flags: bool = False

    @property
    def name(self) -> str:
        """For people: what it is and where."""
        if self.kind == "embedded":
            return f"xllamacpp {self.version} ({self.build or '?'})"
        told = f"{self.build} by its flags" if self.by_flags else self.build
        return f"{self.path} ({told or 'unknown build'})"

    def as_json(self) -> dict[str, Any]:
        """The `engine` of documents; `build_by_flags` as `by_flags` above."""
        return {
            "kind": self.kind,
            "path": self.path or None,
            "build": self.build,
            "build_by_flags": self.by_flags,
            "version": self.version,
        }

    def knows(self, flag: str) -> bool:
        """Does this binary's `--help` show the flag? True if it has not been asked."""
        return not self.flags or flag in self.flags

    def ruled(self, launch: Launch) -> Launch:
        """The launch with the rules of this engine's build, where it says which it is."""
        if self.build is None:
            return launch
        origin = self.path or f"xllamacpp {self.version}".strip()
        origin += BY_FLAGS if self.by_flags else ""
        return replace(launch, build=self.build, build_from=origin)

    def tool(self, name: str) -> Path | None:
        """Another program of the same llama.cpp: beside this one, or on PATH."""
        if self.path:
            beside = shutil.which(name, path=str(Path(self.path).parent))
            if beside:
                return Path(beside)
        found = shutil.which(name)
        return Path(found) if found else None


def find(wanted: str | None = None) -> Engine:
    """The engine to use: `wanted` (a path or "embedded"), KVWISE_ENGINE, embedded, then PATH.

    Raises UsageError for a wanted one that is not there, EngineError when there is none at all.
    """
    wanted = wanted or os.environ.get("KVWISE_ENGINE") or None
    if wanted:
        return _wanted(wanted)
    engine = embedded()
    if engine is not None:
        return engine
    path = shutil.which(SERVER)
    if path:
        return binary(path)
    raise EngineError(
        "no engine found: neither xllamacpp nor llama-server",
        hint="pip install 'kvwise[engine]', or give --engine PATH of your llama-server",
    )


def serving(wanted: str | None = None) -> Engine:
    """The engine that `kvwise run` serves with and that a plan is for: `wanted`, KVWISE_ENGINE, the
    llama-server on PATH, the embedded one. Raises what `find` raises.
    """
    if wanted or os.environ.get("KVWISE_ENGINE"):
        return find(wanted)
    path = shutil.which(SERVER)
    return binary(path) if path else find()


def _wanted(wanted: str) -> Engine:
    if wanted == EMBEDDED:
        engine = embedded()
        if engine is None:
            raise UsageError(
                "the embedded engine is not installed", hint="pip install 'kvwise[engine]'"
            )
        return engine
    path = Path(wanted).expanduser()
    found = in_folder(path) if path.is_dir() else shutil.which(str(path)) or shutil.which(wanted)
    if not found:
        raise UsageError(
            "{path} is not a program", path=wanted, hint="give the path of a llama-server"
        )
    engine = binary(found)
    stranger = not _VERSION.search(engine.version)
    if stranger and engine.flags and not engine.flags & {"-m", "--model"}:
        raise UsageError(
            "{path} is no program of llama.cpp", path=wanted, hint="give the path of a llama-server"
        )
    return engine


def in_folder(folder: Path) -> str | None:
    """The llama-server of a llama.cpp's folder, else its llama-fit-params."""
    for name in (SERVER, FIT_PARAMS):
        for place in _FOLDERS:
            found = shutil.which(name, path=str(folder / place))
            if found:
                return found
    return None


def for_gpus(wanted: str | None = None) -> Engine | None:
    """An engine that can be asked about GPUs: `wanted`, KVWISE_ENGINE, or what is on PATH.

    None when there is only the embedded one, which knows no GPUs. Raises what `find` raises for a
    wanted one.
    """
    wanted = wanted or os.environ.get("KVWISE_ENGINE") or None
    if wanted:
        engine = _wanted(wanted)
        return engine if engine.kind == "binary" else None
    path = shutil.which(SERVER) or shutil.which(FIT_PARAMS)
    return binary(path) if path else None


def at_hand(wanted: str | None = None, *, gpus: bool) -> Engine | None:
    """An engine for this machine's processor or for `gpus`; None when there is none.

    GPUs need a binary (`wanted`, KVWISE_ENGINE, PATH), the processor is known to the embedded one.
    Raises UsageError for a wanted one that is not there.
    """
    try:
        return for_gpus(wanted) if gpus else find(wanted)
    except EngineError:
        if wanted:
            raise
        return None


def embedded() -> Engine | None:
    """xllamacpp, if it is installed. Its build is a part of its version, because the library
    itself reports build 0."""
    version = embedded_version()
    if version is None:
        return None
    return Engine("embedded", build=embedded_build(version), version=version)


def binary(path: str | Path) -> Engine:
    """A llama.cpp program; raises EngineError when it does not run."""
    place = Path(path).resolve()
    kept = cache_dir() / "engines" / f"{_fingerprint(place)}.json"
    try:
        known = json.loads(kept.read_text(encoding="utf-8"))
        return Engine(
            "binary", str(place), known["build"], known["version"], frozenset(known["flags"]),
            known["by_flags"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        pass
    version, page = _ask(place, "--version"), _ask(place, "--help")
    shown = shown_in(page)
    engine = Engine(
        "binary", str(place), build_of(version), first_line(version),
        frozenset(_FLAG.findall(page)) | shown,
    )  # fmt: skip
    if engine.build is None:
        build = build_by_flags(shown) or _of_a_neighbour(engine)
        engine = replace(engine, build=build, by_flags=build is not None)
    _keep(kept, engine)
    return engine


def _of_a_neighbour(engine: Engine) -> str | None:
    """The build by flags of the llama-server (or another tool that we know all flags of) in the
    same folder, if it calls itself the same version."""
    place = Path(engine.path)
    for name in EVERY:
        other = place.with_name(name + place.suffix)
        if engine.version and place.stem not in EVERY and other.is_file():
            with suppress(EngineError):
                found = binary(other)
                if found.by_flags and found.version == engine.version:
                    return found.build
    return None


def build_of(text: str) -> str | None:
    """`version: 4713 (a4f011e8d)`, or since 2026 `version: 0.2.0 (build 10605, commit a4f)`.

    A number is the count of commits: a clone without history makes it 1.
    """
    match = _VERSION.search(text)
    number = int(match[1] or match[3]) if match else 0
    return f"b{number}" if number > (_NEW_STYLE if match and match[3] else 1) else None


def first_line(text: str) -> str:
    return next((line for line in text.splitlines() if "version" in line), "")


def _ask(path: Path, flag: str) -> str:
    try:
        done = subprocess.run(
            [str(path), flag],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, env=clean_environment(), check=False,
        )  # fmt: skip
    except OSError as error:
        raise EngineError(
            "{path} cannot be run: {why}", path=str(path), why=reason_of(error)
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            "{path} {flag} gave no answer in {limit} s", path=str(path), flag=flag, limit=_TIMEOUT_S
        ) from error
    if done.returncode < 0:
        raise EngineError(
            "{path} {flag} was ended by signal {signal}",
            path=str(path), flag=flag, signal=-done.returncode,
        )  # fmt: skip
    return done.stderr + done.stdout


def _fingerprint(path: Path) -> str:
    """Of the program's bytes, and of the size and time of the libraries beside it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise EngineError(
            "{path} cannot be read: {why}", path=str(path), why=reason_of(error)
        ) from error
    for library in sorted(path.parent.glob("*llama*")) + sorted(path.parent.glob("*ggml*")):
        state = library.stat()
        digest.update(f"{library.name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _keep(path: Path, engine: Engine) -> None:
    """Remember the answers; a cache that cannot be written is no failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(asdict(engine) | {"flags": sorted(engine.flags)}), "utf-8")
        scratch.replace(path)
    except OSError:
        return
