"""Count the words of labelled texts for `kvwise.diagnose.likeness`, and test what they are worth.

python scripts/doctor_words.py              write src/kvwise/data/diagnose/words.json
python scripts/doctor_words.py --check      exit 1 if it is not what this would write
python scripts/doctor_words.py --leave-out  for every kept text, take away what knows it, and ask

The texts are those of tests/diagnose/logs and tests/reports: public reports, and what rules are
written after. With --leave-out each text is judged twice. First without the wordings, or signals,
that gave its finding: what else the log says, other wordings and the words decide. Then without
any that match a line of it: the words alone decide. In both the words are counted in texts that are
not like it (a tenth is left out at a time; texts that share over 60 % of their words go together).
"""

# ruff: noqa: SLF001 (to leave out a wording it reaches into the tables)

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvwise.diagnose import diagnose, likeness
from kvwise.diagnose.case import Case
from kvwise.diagnose.likeness import HEALTHY, Counts, words_of
from kvwise.diagnose.rules import RULES
from kvwise.engine import failures

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "tests/diagnose/logs"
REPORTS = ROOT / "tests/reports/failures.dev.json"
KEPT = ROOT / "src/kvwise/data/diagnose/words.json"
MOST = 800
"""Words that are kept: those that tell most of the kind."""
FOLDS = 10
ALIKE = 0.6


class Text(NamedTuple):
    """A log whose kind is known; HEALTHY if nothing is wrong in it."""

    log: str
    kind: str
    memory: bool


def texts() -> list[Text]:
    """Every labelled text of the tests that is no whole log."""
    found = [
        Text(each["log"], each["kind"], each["memory_is_the_cause"])
        for each in json.loads((LOGS / "wordings.json").read_text("utf-8"))
    ]
    found += [
        Text("\n".join(each["symptom_log"]), each["kind"], each["memory_is_the_cause"])
        for each in json.loads(REPORTS.read_text("utf-8"))
        if each["symptom_log"]
    ]
    rules = {rule.name: rule for rule in RULES}
    for path in sorted((LOGS / "written").glob("*.log")):
        if path.stem not in rules:  # what kvwise itself says
            continue
        lines = [line for line in path.read_text("utf-8").splitlines() if line[:2] != "# "]
        rule = rules[path.stem]
        found.append(Text("\n".join(lines), rule.kind, rule.memory))
    found += [
        Text(each["log"], HEALTHY, memory=False)
        for each in json.loads((LOGS / "healthy.json").read_text("utf-8"))
    ]
    return found


def case_of(log: str) -> Case:
    """What the doctor keeps of a text, its last load if there are several."""
    found = diagnose(log, numbers=False)
    case = (found.loads[-1] if found.loads else found).case
    if case is None:
        raise ValueError(log)
    return case


def counts_of(known: Iterable[tuple[frozenset[str], str]], most: int = MOST) -> Counts:
    """The counts of texts given as words and kind, for the words that tell most."""
    rows = list(known)
    kinds = Counter(kind for _, kind in rows)
    have: Counter[str] = Counter()
    of_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for words, kind in rows:
        have.update(words)
        for word in words:
            of_kind[word][kind] += 1
    worth = {
        word: _worth(of_kind[word], kinds, len(rows)) for word, count in have.items() if count > 1
    }
    chosen = sorted(worth, key=lambda word: (-worth[word], word))[:most]
    return Counts(
        dict(sorted(kinds.items())), {word: dict(of_kind[word]) for word in sorted(chosen)}
    )


def _worth(of_kind: Counter[str], kinds: Counter[str], total: int) -> float:
    """How much a word tells of the kind, in nats (mutual information)."""
    have = sum(of_kind.values())
    told = 0.0
    for kind, texts in kinds.items():
        for both, side in ((of_kind[kind], have), (texts - of_kind[kind], total - have)):
            if both:
                told += both / total * math.log(both * total / (side * texts))
    return told


def encoded(counts: Counts) -> str:
    """As the package keeps them: one word per line, with pairs of a kind's number and how many."""
    number = {kind: at for at, kind in enumerate(counts.texts)}
    rows = [
        f"  {json.dumps(word)}: "
        + json.dumps([part for kind in sorted(row) for part in (number[kind], row[kind])])
        for word, row in counts.words.items()
    ]
    texts = json.dumps(counts.texts, indent=1).replace("\n", "\n ")
    return f'{{\n "texts": {texts},\n "words": {{\n' + ",\n".join(rows) + "\n }\n}\n"


# -- what they are worth --------------------------------------------------------------------------


def groups(logs: list[str]) -> list[int]:
    """A number per text, the same for texts that share most of their words."""
    words = [set(re.findall(r"[a-z]{2,}", log.lower())) for log in logs]
    group = list(range(len(logs)))

    def root(at: int) -> int:
        while group[at] != at:
            at = group[at]
        return at

    for one in range(len(logs)):
        for other in range(one):
            both = words[one] & words[other]
            if len(both) > ALIKE * len(words[one] | words[other]):
                group[root(one)] = root(other)
    return [root(at) for at in range(len(logs))]


@contextmanager
def without(sources: set[str], signals: set[int]) -> Iterator[None]:
    """The engine's wordings without some of them, and the signals too."""
    compiled, hints = failures._compiled, failures._hints
    never = re.compile(r"(?!)")
    failures._compiled = lambda source: never if source in sources else compiled(source)
    left = tuple(row for at, row in enumerate(hints()) if at not in signals)
    failures._hints = lambda: left
    try:
        yield
    finally:
        failures._compiled, failures._hints = compiled, hints


def known_by(lines: Iterable[str], *, all_of_them: bool) -> tuple[set[str], set[int]]:
    """The patterns and signals that match these lines: the first of each line, or all."""
    sources: set[str] = set()
    signals: set[int] = set()
    for line in lines:
        rows = [
            row.source
            for table, _ in failures.TABLES
            for row in table
            if row.needle in line and row.pattern.search(line)
        ]
        text = failures._PLACE.sub("", line)
        hits = [
            at
            for at, (_, cues, but) in enumerate(failures._hints())
            if all(cue.search(text) for cue in cues) and not (but and but.search(text))
        ]
        if all_of_them:
            sources.update(rows)
            signals.update(hits)
        elif rows:
            sources.add(rows[0])
        else:
            signals.update(hits[:1])
    return sources, signals


def left_out(*, all_of_them: bool, step: int = 1) -> Counter[str]:
    """How every `step`-th text fares without what gave its finding, or all that match its lines."""
    known = texts()
    words = [words_of(case_of(each.log)) for each in known]
    group = groups([each.log for each in known])
    fold = {number: at % FOLDS for at, number in enumerate(sorted(set(group)))}
    counts = [
        counts_of(
            (words[at], each.kind) for at, each in enumerate(known) if fold[group[at]] != left
        )
        for left in range(FOLDS)
    ]
    tally: Counter[str] = Counter()
    usual = likeness._counts
    try:
        for at, each in list(enumerate(known))[::step]:
            likeness._counts = lambda at=at: counts[fold[group[at]]]
            tally.update(_judged(each, all_of_them=all_of_them))
    finally:
        likeness._counts = usual
    return tally


def leave_out() -> None:
    """Print how often the kind is first, or in the first three, for texts made unknown."""
    for all_of_them in (False, True):
        tally = left_out(all_of_them=all_of_them)
        failed = tally["failed"]
        print("without all that match a line:" if all_of_them else "without what gave the finding:")
        print(
            f"  {failed} failures: first {tally['first'] / failed:.1%}, "
            f"in three {tally['three'] / failed:.1%}, memory right {tally['memory'] / failed:.1%}, "
            f"memory blamed wrongly {tally['blamed wrongly'] / failed:.1%}, nothing found "
            f"{tally['nothing'] / failed:.1%}; healthy texts blamed {tally['blamed']} of "
            f"{tally['healthy']}"
        )


def _judged(text: Text, *, all_of_them: bool) -> Iterator[str]:
    """What counts of one text."""
    found = diagnose(text.log, numbers=False)
    if text.kind == HEALTHY:
        yield "healthy"
        yield from ["blamed"] * bool(found.blamed)
        return
    lines = [line.text for each in found.findings[:1] for line in each.evidence]
    if all_of_them and found.case:
        lines = [
            *(record.text for record in found.case.loaded.failures),
            *(each.text for kept in found.case.seen.values() for each in kept),
            *text.log.splitlines(),
        ]
    with without(*known_by(lines, all_of_them=all_of_them)):
        found = diagnose(text.log, numbers=False)
    kinds = [each.kind for each in found.findings]
    memory = bool(found.findings) and found.findings[0].memory_is_the_cause
    yield "failed"
    yield from ["first"] * (kinds[:1] == [text.kind])
    yield from ["three"] * (text.kind in kinds[:3])
    yield from ["memory"] * (memory == text.memory)
    yield from ["blamed wrongly"] * (memory and not text.memory)
    yield from ["nothing"] * (not kinds)


def main() -> int:
    if "--leave-out" in sys.argv[1:]:
        leave_out()
        return 0
    new = encoded(counts_of((words_of(case_of(each.log)), each.kind) for each in texts()))
    if KEPT.exists() and KEPT.read_text("utf-8") == new:
        return 0
    if "--check" in sys.argv[1:]:
        print("words.json is not up to date: run scripts/doctor_words.py")
        return 1
    KEPT.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
