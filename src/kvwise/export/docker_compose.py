"""A service of a compose file that runs llama.cpp's server image.

Read off the compose specification and llama.cpp b10605 docs/docker.md: the image starts
llama-server, and `$` is written twice because compose fills in variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from kvwise.errors import SourceError
from kvwise.export import Written, _yaml
from kvwise.export._kept import kept
from kvwise.export._words import posix_split
from kvwise.export.found import Found, string, strings
from kvwise.export.settings import (
    LeftOut,
    Settings,
    one_line,
    spoken,
    with_model,
)
from kvwise.options import OPTIONS
from kvwise.text import phrase, template

ABOUT = template("a service of docker compose")
FILE = "compose.yaml"
PLACE = template("set LLAMA_IMAGE to the full name of a llama.cpp server image, then "
                 "`docker compose -f {file} up`")  # fmt: skip

_IMAGE = "${LLAMA_IMAGE:?full name of a llama.cpp server image}"
_INSIDE = "/models"
_OWN = {"--host", "--port"}
_FILES = {"--spec-draft-model", "--mmproj", "--lora", "--lora-scaled", "--chat-template-file"}


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no compose file, UsageError without a file's path."""
    document = _yaml.mapping(old)
    service = _yaml.table(_yaml.table(document, "services"), settings.name)
    folder, name = _parts(settings)
    inside = with_model(settings, f"{_INSIDE}/{name}") if name else settings
    left = []
    command = []
    for each in spoken(inside):
        if each.flag in _OWN:
            left.append(LeftOut(each.typed, phrase("the image listens on port 8080, and its health "
                                                   "check asks there")))  # fmt: skip
        else:
            command += [_text(word) for word in each.typed]
    before = _service(settings.name, _yaml.plain(service))
    for words in kept(before.words if before else (), settings):
        command += [_text(word) for word in words]
    notes = [phrase("{flag} names a file: mount its folder too", flag=each.flag)
             for each in spoken(inside) if each.option.name in _FILES]  # fmt: skip
    if service.get("image") is None and service.get("build") is None:
        service["image"] = _yaml.text(_IMAGE)
        service["restart"] = "unless-stopped"
        service["ports"] = [_yaml.text("127.0.0.1:8080:8080")]
    service["command"] = command
    _forget_environment(service)
    if name:
        _mount(service, folder)
    _gpus(service, settings.gpu_kinds)
    return Written(_yaml.dump(document, old), tuple(left), tuple(notes))


def _parts(settings: Settings) -> tuple[str, str]:
    """(folder, file) of the model; two empty ones for a model that is an address."""
    if settings.launch.model.startswith(("hf:", "http://", "https://", "docker:")):
        return "", ""
    path = one_line(settings.file, phrase("a compose file"))
    path = path.replace("\\", "/") if settings.windows else path
    folder, slash, name = path.rpartition("/")
    return folder or slash or ".", name


def _text(word: str) -> str:
    return _yaml.text(one_line(word, phrase("a compose file")).replace("$", "$$"))


def _forget_environment(service: MutableMapping[str, Any]) -> None:
    """Flags win over LLAMA_ARG_ variables, so those that say the same would only mislead."""
    environ = service.get("environment")
    names = {option.env for option in OPTIONS if option.env and option.memory}
    if isinstance(environ, MutableMapping):
        for name in [each for each in environ if each in names]:
            del environ[name]
    elif isinstance(environ, list):
        for at in reversed(range(len(environ))):
            if str(environ[at]).partition("=")[0] in names:
                del environ[at]


def _mount(service: MutableMapping[str, Any], folder: str) -> None:
    source = _text(folder)
    mount = {"type": "bind", "source": source, "target": _INSIDE, "read_only": True}
    volumes = service.get("volumes") or []
    if not isinstance(volumes, list):
        raise SourceError("{key} is not a list", key="volumes")
    places = [at for at, each in enumerate(volumes) if _target(each) == _INSIDE]
    if places:
        volumes[places[0]] = mount
    else:
        volumes.append(mount)
    service["volumes"] = volumes


def _target(volume: object) -> str:
    if isinstance(volume, Mapping):
        return str(volume.get("target", "")).rstrip("/")
    parts = re.sub(r"^[A-Za-z]:(?=[\\/])", "", str(volume)).split(":")
    return parts[1].rstrip("/") if len(parts) > 1 else ""


def _gpus(service: MutableMapping[str, Any], kinds: tuple[str, ...]) -> None:
    """What the container may see of the GPUs, unless the service says so already."""
    if any(service.get(key) for key in ("deploy", "devices", "gpus", "runtime")):
        return
    if "cuda" in kinds or "generic" in kinds:
        row = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [row]}}}
    elif kinds:
        service["devices"] = ["/dev/dri", *(["/dev/kfd"] if "hip" in kinds else [])]


def is_mine(_name: str, text: str) -> bool:
    """A YAML file with services."""
    return bool(re.search(r"^services:", text, re.MULTILINE))


def read(text: str) -> list[Found]:
    """One per service that starts llama.cpp. Raises SourceError."""
    services = _yaml.plain(_yaml.mapping(text)).get("services")
    if not isinstance(services, Mapping):
        raise SourceError("this file has no services")
    found = [_service(name, each) for name, each in services.items() if isinstance(each, Mapping)]
    return [each for each in found if each]


def _service(name: str, service: Mapping[str, Any]) -> Found | None:
    command = service.get("command")
    words = posix_split(command) if isinstance(command, str) else strings(service, "command")
    environ = _environment(service.get("environment"))
    image = string(service, "image")
    flags = [each.replace("$$", "$") for each in words]
    program = "llama-server"
    if flags and not flags[0].startswith("-"):
        program, flags = flags[0], flags[1:]
    told = any(each.startswith("LLAMA_ARG_") for each in environ)
    if not (told or "llama" in image.lower() or ("llama" in program and words)):
        return None
    return Found(tuple(flags), name, program, environ=environ)


def _environment(found: object) -> dict[str, str]:
    if isinstance(found, Mapping):
        return {str(key): string(found, key).replace("$$", "$") for key in found
                if found[key] is not None}  # fmt: skip
    if isinstance(found, list):
        pairs = (str(each).replace("$$", "$").partition("=") for each in found)
        return {name: value for name, equals, value in pairs if equals}
    return {}
