"""An engine that does not come up or dies: what the doctor reads in its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvwise.diagnose.failed_run import failure_error, why_failed
from kvwise.engine.outcome import EngineEnded
from kvwise.gguf.model import Model
from kvwise.launch import Launch


@contextmanager
def explained(log: Path, model: Model, launch: Launch) -> Iterator[None]:
    """Raises EngineError with the cause and a remedy in place of EngineEnded."""
    try:
        yield
    except EngineEnded as error:
        found = why_failed(log, error.outcome, model=model, launch=launch)
        raise failure_error(found, error.phrase, log=log) from error
