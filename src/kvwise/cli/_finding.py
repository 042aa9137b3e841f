"""What the doctor says to a run that failed, for commands that start an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.text import Phrase, phrase

if TYPE_CHECKING:
    from kvwise.diagnose import Finding
    from kvwise.verify import Attempt

_SURE = 0.5


def finding_of(attempt: Attempt) -> Finding | None:
    """The cause that the run's log shows best, if it is sure enough: of its whole log where that
    was kept, else of its last lines."""
    from kvwise.diagnose import diagnose  # noqa: PLC0415  (only a failed run needs it)

    outcome = attempt.outcome
    log = Path(attempt.log) if attempt.log else None
    kept = log is not None and log.is_file()
    if not attempt.failed or not (kept or outcome):
        return None
    lines: Path | tuple[str, ...] = log if log and kept else outcome.tail if outcome else ()
    found = diagnose(lines, exit_code=outcome.code if outcome else None, numbers=False).blamed
    return found[0] if found and found[0].confidence >= _SURE else None


def sentences(finding: Finding) -> list[Phrase]:
    """The cause, and what to do about it."""
    remedies = [phrase("what to do: {what}", what=each.text) for each in finding.remedies[:2]]
    return [finding.cause, *remedies]


def attach(document: dict[str, Any], attempts: tuple[Attempt, ...], language: str) -> None:
    """Give each failed run of a kvwise/verify document its `finding` (kvwise/diagnosis/1)."""
    from kvwise.diagnose.document import finding_json  # noqa: PLC0415

    for row, attempt in zip(document["attempts"], attempts, strict=True):
        found = finding_of(attempt) if attempt.failed else None
        row["finding"] = finding_json(found, language) if found else None
