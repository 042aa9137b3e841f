"""Which build of llama.cpp a command line is about when it does not say: fast, for `kvwise size`.

The engine that is at hand decides: KVWISE_ENGINE, else the llama-server on PATH, else the embedded
one. A program is asked once for its version; the answer is kept under its path, time and size. One
that does not know its build is told by its flags where they are those of a known one (`by_flags`).
The embedded engine's build stands in the name of its package, which is not imported.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kvwise import builds
from kvwise.errors import KvwiseError
from kvwise.paths import cache_dir

EMBEDDED = "embedded"
BY_FLAGS = " --help"
"""Behind the name of an engine: it does not know its build, its `--help` told it."""
_SERVER = "llama-server"
_PACKAGE = "xllamacpp"
_DATED = re.compile(r"20\d\d\.\d{1,2}\.(\d{4,7})(?![\d])", re.ASCII)
_MOST = 1 << 20
_MOST_KEPT = 64
_ASKED_FOR = "version, flags"  # what is kept: an answer to other questions is asked again


@dataclass(frozen=True, slots=True)
class Here:
    """A build, like b11549, and the engine that has it: `xllamacpp 2026.10.11549`, or a path, with
    BY_FLAGS behind it where only its flags tell."""

    build: str
    engine: str


def build_here(wanted: str | None = None) -> Here | None:
    """The build of the engine at hand (`wanted` first); None where none tells its build.

    A wanted engine that is not there, or does not run, is whoever's who wants to start it.
    """
    wanted = wanted or os.environ.get("KVWISE_ENGINE") or None
    if wanted == EMBEDDED:
        return _embedded()
    if wanted:
        return _of_binary(_in_folder(Path(wanted).expanduser()))
    path = _which(_SERVER)
    found = _of_binary(path) if path else None
    return found or _embedded()


def _embedded() -> Here | None:
    version = embedded_version() or ""
    build = embedded_build(version)
    return Here(build, f"{_PACKAGE} {version}") if build else None


def embedded_build(version: str) -> str | None:
    """The build in a version of xllamacpp since 2026: year, month, build.

    >>> embedded_build("2026.4.8672.1"), embedded_build("0.2.14")
    ('b8672', None)
    """
    match = _DATED.match(version)
    return builds.name(int(match[1])) if match else None


def embedded_version() -> str | None:
    """The version of the embedded engine's package, None where there is none.

    From the package's folder of metadata; importing importlib.metadata would take longer.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    for folder in Path(spec.origin).parent.parent.glob(f"{_PACKAGE}-*.dist-info"):
        return folder.name.removeprefix(f"{_PACKAGE}-").removesuffix(".dist-info")
    from importlib import metadata  # noqa: PLC0415  (17 ms, and hardly ever needed)

    try:
        return metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def _in_folder(path: Path) -> Path | None:
    """The llama-server of a folder (as `find` has it), a program itself, or one on PATH."""
    if path.is_dir():
        from kvwise.engine.find import in_folder  # noqa: PLC0415  (starts processes)

        found = in_folder(path)
        return Path(found) if found else None
    return path if path.is_file() else _which(str(path))


def _which(name: str) -> Path | None:
    if sys.platform == "win32":
        import shutil  # noqa: PLC0415  (5 ms)

        found = shutil.which(name)
        return Path(found) if found else None
    if os.sep in name:
        return None
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        place = os.path.join(folder, name)  # noqa: PTH118  (dozens of them)
        if os.access(place, os.X_OK) and os.path.isfile(place):  # noqa: PTH113
            return Path(place)
    return None


def _of_binary(path: Path | None) -> Here | None:
    """The build of a program, asked once; a newer one beside the same path is asked again."""
    if path is None:
        return None
    try:
        place = path.resolve()
        key = _key(place)
    except (OSError, RuntimeError):
        return None
    kept = cache_dir() / "engines" / "builds.json"
    known = _read(kept)
    build = known.get(key)
    if build is None:
        build = _ask(place)
        _write(kept, known | {key: build})
    number = build.removesuffix(BY_FLAGS)
    return Here(number, str(path) + build.removeprefix(number)) if build else None


def _key(place: Path) -> str:
    """The program is a thin stub around libraries beside it, so their folder counts too."""
    own, folder = place.stat(), place.parent.stat()
    return f"{_ASKED_FOR} {place} {own.st_mtime_ns} {own.st_size} {folder.st_mtime_ns}"


def _ask(place: Path) -> str:
    """Empty for a program that does not run or does not know its build."""
    from kvwise.engine.find import binary  # noqa: PLC0415  (starts processes)

    try:
        found = binary(place)
    except KvwiseError:
        return ""
    return (found.build or "") + (BY_FLAGS if found.by_flags else "")


def _read(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST + 1)
        value = json.loads(raw) if len(raw) <= _MOST else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}


def _write(path: Path, known: dict[str, str]) -> None:
    """The newest answers; a cache that cannot be written is no failure."""
    kept = dict(list(known.items())[-_MOST_KEPT:])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(kept), "utf-8")
        part.replace(path)
    except OSError:
        return
