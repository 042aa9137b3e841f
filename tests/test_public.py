"""The one public door: sorted, complete, lazy, and the two meanings of `kvwise.plan`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvwise

ROOT = Path(__file__).parents[1]


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_all_is_sorted_and_everything_in_it_exists_and_is_documented() -> None:
    assert kvwise.__all__ == sorted(kvwise.__all__)
    for name in kvwise.__all__:
        value = getattr(kvwise, name)
        assert value.__doc__, name
        assert value.__name__ == name


def test_dir_names_what_is_public() -> None:
    assert set(kvwise.__all__) <= set(dir(kvwise))


def test_plan_is_the_function_whatever_was_imported_before() -> None:
    code = (
        "import kvwise.plan.goal, kvwise.plan.choose; import kvwise; print(callable(kvwise.plan))"
    )
    assert _python(code) == "True"
    assert (
        _python("import kvwise; from kvwise.plan.goal import Goal; print(Goal.__name__)") == "Goal"
    )


def test_diagnose_is_the_function_whatever_was_imported_before() -> None:
    code = "import kvwise.diagnose.rules, kvwise; print(callable(kvwise.diagnose))"
    assert _python(code) == "True"
    code = "from kvwise.diagnose import diagnose; import kvwise; print(kvwise.diagnose is diagnose)"
    assert _python(code) == "True"


def test_import_loads_nothing_of_the_rest() -> None:
    code = "import kvwise, sys; print([m for m in sys.modules if m.startswith('kvwise.')])"
    assert _python(code) == "['kvwise._interrupt', 'kvwise.diagnose', 'kvwise.plan']"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kvwise, "nothing")


def test_the_example_of_the_documentation() -> None:
    model = kvwise.open_model(str(ROOT / "tests/zoo/models/qwen3-8b.json.gz"))
    launch = kvwise.Launch.parse(["-c", "8192", "-ctk", "q8_0", "-ctv", "q8_0"])
    gpu = kvwise.Device.of("RTX 4060")
    ledger = kvwise.account(model, launch, [gpu])
    assert ledger.fits
    assert ledger.caches[0].nbytes == 8192 * 78_336
    made = kvwise.plan(model, [gpu], kvwise.Goal(prompt_tokens=3982))
    assert made.predict_tokens_max is not None
    found = kvwise.diagnose(["llama_init_from_model: V cache quantization requires flash_attn"])
    assert found.findings[0].kind == "fa-required"
    assert made.predict_tokens_max == made.choice.ledger.context.n_ctx_seq - 3982
    with pytest.raises(kvwise.Refused):
        kvwise.account(model, kvwise.Launch.parse(["-fa", "off", "-ctv", "q8_0"]), [gpu])
    assert isinstance(kvwise.devices(), list)
