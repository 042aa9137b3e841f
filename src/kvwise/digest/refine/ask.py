"""A question answered from the chunks that fit, with where each statement stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.digest.refine.generator import Answer, Generator
from kvwise.digest.search import Hit, text_of
from kvwise.digest.shelf import Row, Shelf

ANSWER_TOKENS = 256
_INSTRUCTION = (
    "Answer the question from the numbered passages below and from nothing else. After each "
    "statement name its passage in square brackets, like [1]. If the passages do not hold the "
    "answer, say that they do not. Answer in the language of the question.\n\nQuestion: {question}"
)
_ECHO = 8  # words in a row that no answer has by chance
_CITED = re.compile(r"\[(\d{1,3})\]")


@dataclass(frozen=True, slots=True)
class Passage:
    """A numbered chunk in the prompt; `cited` by the answer."""

    number: int
    row: Row
    score: float
    cited: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """`passages` were in the prompt, best first; `left_out` of those found did not fit the budget;
    `unknown` numbers were cited and stand for nothing. `context` = the budget in tokens."""

    question: str
    answer: Answer
    passages: tuple[Passage, ...]
    left_out: tuple[Row, ...]
    unknown: tuple[int, ...]
    context: int
    echoes: bool = False  # the answer repeats what it was told to do


def ask(
    shelf: Shelf, generator: Generator, question: str, hits: Sequence[Hit],
    answer_tokens: int = ANSWER_TOKENS,
) -> Reply:  # fmt: skip
    """Take the hits, best first, as long as they fit whole; never a part of one."""
    instruction = _INSTRUCTION.format(question=question)
    room = generator.room(instruction, answer_tokens)
    taken: list[Hit] = []
    left_out: list[Row] = []
    text = ""
    for hit in hits:
        longer = text + _passage(len(taken) + 1, text_of(shelf, hit.row))
        if generator.tokens(longer) <= room:
            text = longer
            taken.append(hit)
        else:
            left_out.append(hit.row)
    answer = generator.write(generator.prompt(instruction, text), answer_tokens)
    cited = {int(number) for number in _CITED.findall(answer.text)}
    passages = tuple(
        Passage(number, hit.row, hit.score, number in cited) for number, hit in enumerate(taken, 1)
    )
    unknown = tuple(sorted(number for number in cited if not 1 <= number <= len(taken)))
    return Reply(question, answer, passages, tuple(left_out), unknown, generator.context,
                 repeats(answer.text, _INSTRUCTION))  # fmt: skip


def repeats(answer: str, instruction: str) -> bool:
    """Whether eight words of the instruction stand in the answer in a row."""
    said, told = f" {' '.join(_words(answer))} ", _words(instruction)
    runs = (told[start : start + _ECHO] for start in range(len(told) - _ECHO + 1))
    return any(f" {' '.join(run)} " in said for run in runs)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _passage(number: int, text: str) -> str:
    return f"[{number}] {text.strip()}\n\n"
