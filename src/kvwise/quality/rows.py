"""Results of units -> one Measurement per setting, with its verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kvwise.engine.perplexity import TOOL
from kvwise.plan.quality import Fidelity
from kvwise.quality.forced import TOP
from kvwise.quality.plan import Setting
from kvwise.quality.prompts import Answer, Outcome, Prompt, outcome
from kvwise.quality.scorers import Setup
from kvwise.quality.verdict import verdict
from kvwise.results import (
    EngineSeen,
    Machine,
    Measurement,
    ModelSeen,
    Sample,
    engine_seen,
    machine_seen,
    model_seen,
    settings_seen,
)
from kvwise.results.record import State
from kvwise.text import Phrase, phrase
from kvwise.verify.codec import decode

if TYPE_CHECKING:
    from pathlib import Path

    from kvwise.device import Device
    from kvwise.gguf.model import Model

Results = Mapping[str, Mapping[str, Any]]
_TOLD = (
    "kl_mean", "kl_mean_error", "kl_p99", "kl_median", "kl_max", "same_top", "same_top_error",
    "ppl", "ppl_base", "ppl_ratio", "ppl_ratio_error", "positions", "rotation", "flash_attn",
)  # fmt: skip
_ITSELF = {"kl_mean": 0.0, "kl_p99": 0.0, "kl_median": 0.0, "kl_max": 0.0, "same_top": 1.0}


@dataclass(frozen=True, slots=True)
class Context:
    """What all measurements of a job have in common."""

    machine: Machine
    engine: EngineSeen
    model: ModelSeen
    test: Mapping[str, Any]
    prompts: tuple[Prompt, ...]

    @classmethod
    def of(  # noqa: PLR0917 (one place calls it)
        cls, model: Model, devices: Sequence[Device], setup: Setup, tool: Path | None,
        asked: tuple[Prompt, ...], room: int,
    ) -> Context:  # fmt: skip
        """`tool` = the llama-perplexity that is used, None = a server; `room` = tokens of the
        context of the prompts."""
        over_http = tool is None
        method = "http" if over_http else TOOL
        name = "llama-server" if over_http else TOOL
        test: dict[str, Any] = {
            "metric": "fidelity", "method": method, "text": setup.text.hash,
            "chunks": setup.chunks, "chunk_tokens": setup.chunk_tokens, "threads": setup.threads,
        }  # fmt: skip
        if over_http:
            test["top"] = TOP
        if asked:
            told = repr(asked).encode()
            test |= {"prompts": hashlib.sha256(told).hexdigest()[:16], "prompt_ctx": room}
        engine = engine_seen(setup.engine, name, str(tool or ""))
        return cls(machine_seen(devices), engine, model_seen(model), test, asked)


def measurement(context: Context, setting: Setting, results: Results) -> Measurement:
    """The row of a setting all of whose units are done. What was refused is `skipped`."""
    kind = "base" if setting.is_base else "score"
    result = results[f"{kind} {setting.key}"]
    asked = [results.get(f"ask {setting.key} {each.name}", {}) for each in context.prompts]
    at = max(float(each["at"]) for each in (result, *asked) if each)
    state, figures, why = _figures(context, setting, result, results)
    findings = [*result.get("findings", ())]
    return Measurement(
        kind="fidelity",
        at=at,
        machine=context.machine,
        engine=context.engine,
        model=context.model,
        settings=settings_seen(setting.launch),
        test=context.test,
        samples=(Sample(figures["kl_mean"], "nats", at),) if state == "ok" else (),
        figures=figures | {"why": [str(each) for each in why]},
        findings=tuple(findings),
        state=state,
    )


def _figures(
    context: Context, setting: Setting, result: Mapping[str, Any], results: Results
) -> tuple[State, dict[str, Any], tuple[Phrase, ...]]:
    for state in ("failed", "skipped"):
        if state in result:
            return state, {}, (why_of(result),)
    figures = {name: result[name] for name in _TOLD if result.get(name) is not None}
    if setting.is_base:
        figures |= {**_ITSELF, "reference": True, "base_bytes": result["base_bytes"]}
    figures |= _noise(results.get(f"noise {setting.group}", {}))
    outcomes, told = _outcomes(context, setting, results)
    if told:
        figures["prompts"] = told
    figures |= _parting(outcomes)
    judged = verdict(fidelity(setting, figures), outcomes)
    figures["verdict"] = judged.name
    why = (*_remarks(figures, results.get(f"base {setting.group}", {})), *judged.why)
    return "ok", figures, why


def why_of(result: Mapping[str, Any]) -> Phrase:
    """Why a unit has no figures."""
    said = decode(result.get("failed") or result.get("skipped"))
    assert isinstance(said, Phrase)  # noqa: S101 (`run` writes nothing else)
    return said


def _noise(result: Mapping[str, Any]) -> dict[str, Any]:
    """Of the base against itself; nothing where that failed: unknown is not 0."""
    if "kl_mean" not in result:
        return {}
    return {
        "noise_kl_mean": result["kl_mean"], "noise_kl_p99": result["kl_p99"],
        "noise_same_top": result["same_top"], "noise_by": result["by"],
    }  # fmt: skip


def fidelity(setting: Setting, figures: Mapping[str, Any]) -> Fidelity:
    """The figures as the planner takes them."""
    return Fidelity(
        setting.launch.type_k,
        setting.launch.type_v,
        float(figures["kl_mean"]),
        float(figures["same_top"]),
        float(figures.get("noise_kl_mean", 0.0)),
        figures.get("noise_same_top"),
    )


def _outcomes(
    context: Context, setting: Setting, results: Results
) -> tuple[list[Outcome], list[dict[str, Any]]]:
    outcomes, told = [], []
    for prompt, base, got, again in _answers(context, setting, results):
        if base is None or got is None:
            told.append({"name": prompt.name, "failed": True})
            continue
        found = outcome(prompt, base, got, again)
        outcomes.append(found)
        told.append(
            asdict(found)
            | {"broken": found.broken, "lost": found.lost, "beyond_noise": found.beyond_noise}
        )
    return outcomes, told


def _answers(
    context: Context, setting: Setting, results: Results
) -> Iterator[tuple[Prompt, Answer | None, Answer | None, Answer | None]]:
    """Each prompt with the answers of the base, of the setting, and of the base once more."""
    for prompt in context.prompts:
        names = (f"ask {setting.group}", f"ask {setting.key}", f"again {setting.group}")
        base, mine, again = (_answer(results.get(f"{each} {prompt.name}", {})) for each in names)
        yield prompt, base, mine, again


def _parting(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Where the first answer parts from the base's, and where the base's own do."""
    mine = [each.diverged_at for each in outcomes if each.diverged_at is not None]
    noise = [each.noise_at for each in outcomes if each.noise_at is not None]
    found = {"diverged_at": min(mine, default=None), "noise_diverged_at": min(noise, default=None)}
    return {name: value for name, value in found.items() if value is not None}


def _answer(result: Mapping[str, Any]) -> Answer | None:
    if "tokens" not in result:
        return None
    return Answer.from_dict({name: value for name, value in result.items() if name != "at"})


def _remarks(figures: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Phrase]:
    """What a reader must know to trust the figures."""
    mine, theirs = figures.get("flash_attn"), base.get("flash_attn")
    if mine is not None and theirs is not None and mine != theirs:
        yield phrase("flash attention differs from the base's: part of this is not the cache types")
    if "noise_kl_mean" not in figures:
        yield phrase("the noise of this model could not be measured")
