"""A question answered from the passages that fit, with where each statement stands.

The question stands before the text and after it: a small model has lost it by then. What such a
model gets is little, a few sentences about the question; a larger one gets whole chunks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvwise.digest.refine.generator import Answer, Generator
from kvwise.digest.refine.judge import Fault, fault, supported, without_loop
from kvwise.digest.search import Hit, different, text_of
from kvwise.digest.shelf import Row, Shelf

ANSWER_TOKENS = 256
TAKEN, TAKEN_BY_SMALL = 5, 1
_SMALL = 1_000_000_000
"""Parameters below which a model answers from a few sentences or not at all."""

_BEFORE = "Question: {question}\n\nText:"
_AFTER = "\n\nFrom this text, answer in one short sentence: {question}"
_BEFORE_PLAIN, _AFTER_PLAIN = "Text:", "\n\nQuestion: {question}"
"""For a model that only goes on with a text: the form of a reading test."""
_BEFORE_LARGE = "Question: {question}\n\nPassages:"
_AFTER_LARGE = (
    "\n\nAnswer the question from these passages and from nothing else, in the language of the "
    "question. After each statement name its passage in square brackets, like [1]. If they do not "
    "hold the answer, say so.\n\nQuestion: {question}"
)
_CITED = re.compile(r"\[(\d{1,3})\]")


@dataclass(frozen=True, slots=True)
class Passage:
    """A numbered stretch of a document, from byte `start` to `end`, that the prompt has; `cited` by
    the answer, or `supports` it: most of what the answer says stands there."""

    number: int
    row: Row
    start: int
    end: int
    text: str
    score: float
    cited: bool = False
    supports: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """`passages` were in the prompt, best first; `left_out` of those found did not fit the budget;
    `unknown` numbers were cited and stand for nothing. `context` = the budget in tokens; `fault` =
    why the answer is none."""

    question: str
    answer: Answer
    passages: tuple[Passage, ...]
    left_out: tuple[Row, ...]
    unknown: tuple[int, ...]
    context: int
    fault: Fault | None = None
    same: tuple[Row, ...] = ()  # left out too: they say what one before them says


@dataclass(frozen=True, slots=True)
class Form:
    """How a question is put to a model: words before and after the text, passages or whole chunks,
    how many."""

    before: str
    after: str
    numbered: bool
    whole: bool
    most: int

    @classmethod
    def of(cls, generator: Generator, most: int | None) -> Form:
        """For a model of this size; `most` = as many as the user wants."""
        small = generator.model.header.n_params < _SMALL
        if not generator.chats:
            most = most or (TAKEN_BY_SMALL if small else TAKEN)
            return cls(_BEFORE_PLAIN, _AFTER_PLAIN, numbered=False, whole=False, most=most)
        if small:
            return cls(_BEFORE, _AFTER, numbered=False, whole=False, most=most or TAKEN_BY_SMALL)
        return cls(_BEFORE_LARGE, _AFTER_LARGE, numbered=True, whole=True, most=most or TAKEN)


def ask(
    shelf: Shelf, generator: Generator, question: str, hits: Sequence[Hit],
    answer_tokens: int = ANSWER_TOKENS, *, most: int | None = None,
) -> Reply:  # fmt: skip
    """Take the hits, best first, as long as they fit whole; never a part of one."""
    form = Form.of(generator, most)
    before, after = form.before.format(question=question), form.after.format(question=question)
    room = generator.room(before, answer_tokens, after)
    taken: list[Passage] = []
    left_out: list[Row] = []
    text = ""
    found = different(hits, len(hits))
    same = tuple(hit.row for hit in hits if all(hit is not other for other in found))
    for hit in found[: form.most]:
        passage = _passage(shelf, hit, len(taken) + 1, whole=form.whole)
        longer = text + _shown(passage, numbered=form.numbered)
        if generator.tokens(longer) <= room:
            text = longer
            taken.append(passage)
        else:
            left_out.append(hit.row)
    if not taken:  # what a model says of no text is invented
        return Reply(
            question, Answer("", 0, 0, cut=False), (), tuple(left_out), (), generator.context,
            "nothing", same,
        )  # fmt: skip
    answer = generator.write(generator.prompt(before, text, after), answer_tokens)
    answer = replace(answer, text=without_loop(answer.text))
    cited = {int(number) for number in _CITED.findall(answer.text)}
    support = supported(answer.text, [each.text for each in taken])
    passages = tuple(
        replace(each, cited=each.number in cited, supports=each.number - 1 in support)
        for each in taken
    )
    unknown = tuple(sorted(number for number in cited if not 1 <= number <= len(taken)))
    told = f"{form.before} {form.after}".format(question="")
    wrong = fault(answer.text, question, told, text)
    return Reply(
        question, answer, passages, tuple(left_out), unknown, generator.context, wrong, same
    )


def _passage(shelf: Shelf, hit: Hit, number: int, *, whole: bool) -> Passage:
    if whole:
        row = hit.row
        return Passage(number, row, row.start, row.end, text_of(shelf, row), hit.score)
    return Passage(number, hit.row, hit.start, hit.end, hit.text, hit.score)


def _shown(passage: Passage, *, numbered: bool) -> str:
    text = " ".join(passage.text.split()) if not numbered else passage.text.strip()
    return f"[{passage.number}] {text}\n\n" if numbered else f"{text}\n\n"
