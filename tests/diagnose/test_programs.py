"""Logs that say that it failed and not why: what is known, and where the reason stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvwise.diagnose import diagnose
from kvwise.diagnose.failed_run import why_failed
from kvwise.diagnose.programs import PROGRAMS

SAID = {
    "LM Studio": "\U0001f972 Failed to load the model\n\nError loading model.\n\n(Exit code: 1).",
    "Docker Model Runner": "docker model run x\nunable to load runner: failed to load model",
    "Jan": 'LlamacppError: { code: "MODEL_LOAD_FAILED", message: "Failed to load the model" }',
    "LocalAI": "ERR [llama-cpp] Failed loading model, error: failed to load model with internal "
    "loader: could not load model: rpc error: code = Canceled desc = ",
    "Lemonade": "(LlamaCpp) Starting llama-server...\nFailed to load model 'x': llama-server "
    "failed to start.",
    "RamaLama": "ERROR - Failed to load model for ramalama run command",
    "llama-swap": "Error code: 500 - {'error': 'unspecific error: upstream command exited "
    "prematurely', 'src': 'llama-swap'}",
    "Ollama": "Error: 500 Internal Server Error: unable to load model: /root/.ollama/models/x",
    "text-generation-webui": "ERROR  Error loading the model with llama.cpp: failed to load model",
    "KoboldCpp": "Welcome to KoboldCpp - Version 1.116\nError: Could not load text model: x.gguf",
    "LLamaSharp": "LLama.Exceptions.LoadWeightsFailedException: Failed to load model 'x.gguf'",
    "node-llama-cpp": "Error: Failed to load model\n    at node-llama-cpp/dist/bindings",
    "a mobile app": "Context initialization failed: Error: Failed to load model.",
    "llama-cpp-python": "ValueError: Failed to load model from file: /models/x.gguf",
    "systemd": "x.service: Main process exited, code=exited, status=1/FAILURE",
    "a container": "server-1 exited with code 1",
}


def test_every_program_has_its_words() -> None:
    assert set(SAID) == {program.name for program in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_where_the_reason_stands_comes_first(program: object) -> None:
    name, where = program.name, program.where  # type: ignore[attr-defined]
    first = diagnose(SAID[name], numbers=False).findings[0]
    assert not first.reason_known
    assert first.remedies[: len(where)] == where


@pytest.mark.parametrize("name", SAID)
def test_that_it_failed_is_no_guess_though_the_reason_is_not_known(name: str) -> None:
    first = diagnose(SAID[name], numbers=False).findings[0]
    assert first.kind in ("model-refused", "engine-crash")
    assert first.confidence >= 0.6
    assert not first.memory_is_the_cause


def test_a_reason_takes_the_place_of_that_it_failed() -> None:
    log = SAID["Ollama"] + "\nllama_model_load: error loading model: missing tensor 'output_norm'\n"
    found = diagnose(log, numbers=False).findings
    assert found[0].kind == "missing-tensor"
    assert found[0].reason_known
    assert all(each.confidence < 0.6 for each in found[1:])


def test_who_started_an_engine_says_more_than_that_it_failed() -> None:
    assert why_failed(SAID["Ollama"].splitlines(), exit_code=1) == ()


def test_marks_of_programs_are_not_those_of_the_engine() -> None:
    """No log of llama.cpp itself looks like another program's."""
    logs = sorted((Path(__file__).parent / "logs").glob("*.log"))
    told = [path.read_text("utf-8") for path in logs]
    for program in PROGRAMS:
        assert not [text for text in told if re.search(program.marks, text)], program.name
