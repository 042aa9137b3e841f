"""What is generated from: the user's own prompts, or three that were written for kvwise.

How much a draft or an n-gram gains depends on the text more than on anything else: code and
summaries repeat themselves, a story does not. So one's own prompts are the ones to measure with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from kvwise.engine.tokens import read_text
from kvwise.errors import SourceError, UsageError

BUILT_IN = ("code", "prose", "summary")
MOST = 1000
"""More prompts than anybody waits for."""
_ENDINGS = {".txt", ".md", ".prompt", ""}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text, or the messages of a chat (`role` and `content` each)."""

    name: str
    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()

    @property
    def chat(self) -> list[dict[str, str]]:
        """As messages; a plain text is what the user says."""
        pairs = self.messages or (("user", self.text),)
        return [{"role": role, "content": content} for role, content in pairs]

    @property
    def bytes(self) -> int:
        """Of its text in UTF-8."""
        return sum(len(each["content"].encode()) for each in self.chat)

    @property
    def digest(self) -> str:
        """What tells it from another one."""
        return hashlib.sha256(json.dumps(self.chat).encode()).hexdigest()[:16]


def built_in() -> tuple[Prompt, ...]:
    """Code, prose, and the summary of a given text."""
    folder = resources.files("kvwise") / "data/prompts"
    return tuple(
        Prompt(name, (folder / f"{name}.txt").read_text("utf-8").strip()) for name in BUILT_IN
    )


def read_prompts(path: str) -> tuple[Prompt, ...]:
    """Prompts of a file with one per line, of a file of JSON lines (a string, or an object with
    `prompt` or `messages`, and perhaps `name`), or of a folder of texts, each one prompt.

    Raises SourceError when there is nothing to read, UsageError when what is there is no prompt.
    """
    place = Path(path)
    found = tuple(_of_folder(place) if place.is_dir() else _of_lines(place))
    if not found:
        raise UsageError("{path} has no prompts", path=path, hint="one prompt per line")
    if len(found) > MOST:
        raise UsageError(
            "{path} has {count} prompts; more than {most} are not measured in one go",
            path=path, count=len(found), most=MOST,
        )  # fmt: skip
    return found


def _of_folder(folder: Path) -> Iterator[Prompt]:
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix.lower() in _ENDINGS and not file.name.startswith("."):
            text = read_text(file).strip()
            if text:
                yield Prompt(file.stem, text)


def _of_lines(file: Path) -> Iterator[Prompt]:
    lines = read_text(file).splitlines()
    wanted = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    is_json = bool(wanted) and wanted[0][1].lstrip()[:1] in ("{", '"')
    for number, line in wanted:
        name = str(number)
        if not is_json:
            yield Prompt(name, line.strip())
            continue
        try:
            yield _of_json(json.loads(line), name)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SourceError(
                "{path}, line {number} is no prompt: {why}",
                path=str(file), number=number, why=str(error) or type(error).__name__,
                hint='a line is a JSON string, or an object with "prompt" or "messages"',
            ) from error  # fmt: skip


def _of_json(value: Any, name: str) -> Prompt:
    if isinstance(value, str):
        return Prompt(name, value)
    name = str(value.get("name") or value.get("id") or name)
    if "messages" in value:
        pairs = tuple((str(each["role"]), str(each["content"])) for each in value["messages"])
        if not pairs:
            raise ValueError("no messages")
        return Prompt(name, messages=pairs)
    text = value.get("prompt", value.get("text"))
    if not isinstance(text, str) or not text:
        raise ValueError('no "prompt"')
    return Prompt(name, text)


def distinct(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """With names that differ: a name that comes again gets a number."""
    seen: dict[str, int] = {}
    found = []
    for prompt in prompts:
        count = seen[prompt.name] = seen.get(prompt.name, 0) + 1
        name = prompt.name if count == 1 else f"{prompt.name}-{count}"
        found.append(Prompt(name, prompt.text, prompt.messages))
    return tuple(found)
