"""Lines that look like the failure and are not."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, POSSIBLE, Hit, Rule, When
from kvwise.diagnose.rules.asking import ALLOCATIONS, at_run, failed, remedy, seen
from kvwise.diagnose.rules.remedies import (
    NOTHING,
)
from kvwise.text import template


def _fit_declined(case: Case) -> Hit | None:
    """Fitting declined, the load went well."""
    lines = [each for each in case.all("fit") if "error" not in each.fields]
    if not lines or failed(case) or case.has("server_exit"):
        return None
    models = case.loaded.models
    loaded = case.complete or any(model.offloaded or model.weights for model in models)
    return Hit(LIKELY, tuple(lines[:2])) if loaded else None


def _second_try(case: Case) -> Hit | None:
    """An allocation failed, another try succeeded."""
    lines = [each for each in case.all(*ALLOCATIONS, "compute_alloc", "retry_without_pipeline")
             if not at_run(each)]  # fmt: skip
    if (
        not lines
        or not case.complete
        or case.has("server_exit", "context_made", "killed", "crashed")
    ):
        return None
    return Hit(LIKELY, tuple(lines[:3]))


def _pinned(case: Case) -> Hit | None:
    lines = case.all("pinned_alloc")
    if not lines:
        return None
    others = failed(case) or case.has("gpu_oom", "host_alloc", "killed", "oom_killed")
    return Hit(POSSIBLE if others else FAIR, tuple(lines[:2]))


def _quietly(code: str, less: float = 0.0) -> When:
    """A harmless line matters most when there is nothing else."""

    def when(case: Case) -> Hit | None:
        lines = case.all(code)
        sure = (0.25 if case.loaded.failures else FAIR) - less
        return Hit(sure, tuple(lines[:3]), dict(lines[0].fields)) if lines else None

    return when


def _no_draft(case: Case) -> Hit | None:
    lines = case.all("speculation_line") if case.loaded.speculation == "" else []
    if not lines or case.beside & {"draft", "mtp"} or case.loaded.failures:
        return None
    return Hit(0.2 if case.complete else FAIR, tuple(lines[:1]))


RULES: tuple[Rule, ...] = (
    Rule(
        "declined",
        "benign-error-line",
        _fit_declined,
        template("fitting declined because an option was given by hand; the load itself went well"),
        (remedy("nothing to mend; leave -ngl, -ts and -ot away to let the engine fit itself"),),
    ),
    Rule(
        "second-try",
        "benign-error-line",
        _second_try,
        template("an allocation failed and another try succeeded: the load went well"),
        (NOTHING,),
    ),
    Rule(
        "pinned",
        "benign-warning",
        _pinned,
        template("memory could not be pinned; ordinary memory is used, a little slower"),
        (NOTHING,),
    ),
    Rule(
        "mlock",
        "mlock-warning",
        seen("mlock", confidence=0.7),
        template(
            "the process may not lock that much memory: the model is loaded all the same, and "
            "may be swapped out"
        ),
        (remedy("leave --mlock away"), remedy("or raise the limit", "ulimit -l unlimited")),
    ),
    Rule(
        "below-training",
        "benign-warning",
        _quietly("below_train"),
        template(
            "the context is shorter than the one the model was trained for: information, not an "
            "error"
        ),
        (remedy("raise it only if longer prompts are needed and memory allows", "-c N"),),
    ),
    Rule(
        "harmless",
        "benign-warning",
        _quietly("harmless", less=0.05),
        template("this line is harmless: {what}"),
        (NOTHING,),
    ),
    Rule(
        "harmless-error",
        "benign-error-line",
        _quietly("harmless_error"),
        template("this line looks like an error and is none: {what}"),
        (remedy("nothing to mend; newer builds do not print it"),),
    ),
    Rule(
        "no-draft",
        "benign-warning",
        _no_draft,
        template("without a draft model there is nothing to speculate with: information only"),
        (NOTHING,),
    ),
)
