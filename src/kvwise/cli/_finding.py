"""What the doctor says to a run of `verify` that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvwise.diagnose import Finding
    from kvwise.verify import Attempt


def finding_of(attempt: Attempt) -> Finding | None:
    """The cause that the run's log shows best, if it is sure enough."""
    from kvwise.diagnose.failed_run import why_failed  # noqa: PLC0415  (only a failed run needs it)

    if not attempt.failed:
        return None
    return next(iter(why_failed(attempt.log, attempt.outcome)), None)


def attach(document: dict[str, Any], attempts: tuple[Attempt, ...], language: str) -> None:
    """Give each failed run of a kvwise/verify document its `finding` (kvwise/diagnosis/1)."""
    from kvwise.diagnose.document import finding_json  # noqa: PLC0415

    for row, attempt in zip(document["attempts"], attempts, strict=True):
        found = finding_of(attempt) if attempt.failed else None
        row["finding"] = finding_json(found, language) if found else None
