"""What `kvwise digest --ask` shows: the answer, where it is from, or why there is none."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvwise.cli._digest_view import place_of, shortened
from kvwise.cli.output import Printer
from kvwise.text import phrase

if TYPE_CHECKING:
    from kvwise.digest.refine.ask import Reply

_FAULTS = {
    "nothing": phrase("there is no passage to answer from"),
    "empty": phrase("the model says nothing"),
    "question": phrase("the model only repeats the question"),
    "instruction": phrase("the model repeats its instruction instead of following it"),
    "copy": phrase("the model only copies the text that it was given"),
}


def reply_json(reply: Reply) -> dict[str, Any]:
    """The `answer` of kvwise/digest/1."""
    return {
        "question": reply.question, "answer": reply.answer.text, "cut": reply.answer.cut,
        "prompt_tokens": reply.answer.prompt_tokens, "answer_tokens": reply.answer.tokens,
        "context": reply.context,
        "passages": [
            {"number": each.number, "cited": each.cited, "supports": each.supports,
             "score": round(each.score, 6), **asdict(each.row), "start": each.start,
             "end": each.end, "text": each.text} for each in reply.passages
        ],
        "left_out": [asdict(row) for row in reply.left_out],
        "left_out_same": [asdict(row) for row in reply.same],
        "cited_unknown": list(reply.unknown), "fault": reply.fault,
    }  # fmt: skip


def show_reply(printer: Printer, reply: Reply) -> None:
    """The answer and its passages; the passages alone where the answer is none."""
    printer.text()
    printer.text(reply.question, "title")
    if reply.fault is not None and not reply.passages:
        printer.text(phrase("no answer: {why}", why=_FAULTS[reply.fault]), "warn")
    elif reply.fault is not None:
        printer.text(
            phrase("no answer: {why}; the passages nearest to the question:",
                   why=_FAULTS[reply.fault]), "warn",
        )  # fmt: skip
    else:
        printer.text(reply.answer.text)
        if reply.answer.cut:
            printer.text(phrase("the answer was cut at its token limit"), "warn")
    printer.text()
    for each in reply.passages:
        good = each.cited or each.supports
        place = place_of(each.row, each.start, each.end)
        printer.text(f"[{each.number}] {place}", "good" if good else "dim")
        printer.text(shortened(each.text), "dim")
    _doubts(printer, reply)


def _doubts(printer: Printer, reply: Reply) -> None:
    if reply.fault is None and not any(each.supports for each in reply.passages):
        printer.text(
            phrase("less than half of its words stand in one of the passages: check it"), "warn"
        )
    elif reply.fault is None and not any(each.cited for each in reply.passages):
        numbers = ", ".join(f"[{each.number}]" for each in reply.passages if each.supports)
        printer.text(
            phrase("the model names no passage; by its words the answer is from {numbers}",
                   numbers=numbers), "dim",
        )  # fmt: skip
    if reply.unknown:
        numbers = ", ".join(f"[{number}]" for number in reply.unknown)
        printer.text(phrase("it names passages that it was not given: {numbers}", numbers=numbers),
                     "warn")  # fmt: skip
    if reply.same:
        printer.text(
            phrase("left out because they say the same: {count}", count=len(reply.same)), "dim"
        )
    if reply.left_out:
        printer.text(
            phrase(
                "{count} of the passages found did not fit the budget of {context} tokens and were "
                "left out",
                count=len(reply.left_out), context=reply.context,
            ),
            "warn",
        )  # fmt: skip
