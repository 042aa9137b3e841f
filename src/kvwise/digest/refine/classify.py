"""Which of some labels a document has: each chunk votes with its tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvwise.digest.engines import bytes_to_floats
from kvwise.digest.pool import cosine
from kvwise.digest.refine.generator import Generator, unit_key
from kvwise.digest.search import text_of
from kvwise.digest.session import fingerprint
from kvwise.digest.shelf import Document, Row, Shelf
from kvwise.errors import UsageError

_INSTRUCTION = (
    "Which one of these labels fits the following text best? Answer with the label and nothing "
    "else.\n\nLabels: {labels}"
)
_ANSWER_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """The label with most tokens behind it; `shares` of all labels add up to 1. `by` = generator
    or similarity."""

    document: str
    label: str
    shares: dict[str, float]
    chunks: tuple[tuple[int, str], ...]  # number of the chunk, its label
    by: str


Vote = Callable[[Row], str]


def labels_of(text: str) -> tuple[str, ...]:
    """From `a,b,c`. Raises UsageError for fewer than two."""
    found = tuple(dict.fromkeys(label.strip() for label in text.split(",") if label.strip()))
    if len(found) < 2:
        raise UsageError("--classify needs two labels or more, with commas between them")
    return found


def classify(
    shelf: Shelf, document: Document, vote: Vote, labels: Sequence[str], by: str
) -> Verdict:
    """All chunks of a document vote. Raises what `vote` raises."""
    counted: Counter[str] = Counter(dict.fromkeys(labels, 0))
    chunks: list[tuple[int, str]] = []
    for row in shelf.chunks(document.name):
        label = vote(row)
        counted[label] += row.tokens
        chunks.append((row.seq, label))
    total = max(1, sum(counted.values()))
    shares = {label: counted[label] / total for label in labels}
    best = max(labels, key=lambda label: shares[label])
    return Verdict(document.name, best, shares, tuple(chunks), by)


def by_generator(shelf: Shelf, generator: Generator, labels: Sequence[str]) -> Vote:
    """A grammar allows the labels and nothing else; each vote is kept."""
    instruction = _INSTRUCTION.format(labels=", ".join(labels))
    grammar = "root ::= " + " | ".join(json.dumps(label, ensure_ascii=False) for label in labels)
    maker = [*fingerprint(generator.model), grammar]
    generator.room(instruction, _ANSWER_TOKENS)  # or it is told before the first chunk

    def vote(row: Row) -> str:
        text = text_of(shelf, row)
        prompt = generator.prompt(instruction, text)
        key = unit_key("label", maker, prompt, _ANSWER_TOKENS)
        kept = shelf.unit(key, "")
        if kept not in labels:
            said = generator.write(prompt, _ANSWER_TOKENS, grammar=grammar).text
            kept = (
                said
                if said in labels
                else min(labels, key=lambda label: not label.startswith(said))
            )
            shelf.keep_unit(key, "label", kept)
        return str(kept)

    return vote


def by_similarity(shelf: Shelf, vectors: dict[str, Sequence[float]]) -> Vote:
    """The label whose own vector is nearest to the chunk's."""

    def vote(row: Row) -> str:
        chunk = bytes_to_floats(shelf.vector(row.vector))
        return max(vectors, key=lambda label: cosine(chunk, vectors[label]))

    return vote
