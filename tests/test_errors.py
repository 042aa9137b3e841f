"""The error tree: exit codes, sentences, hints."""

from __future__ import annotations

import re

import pytest

from kvwise import errors
from kvwise.errors import DoesNotFit, Interrupted, KvwiseError, Refused, UsageError


def _tree() -> list[type[KvwiseError]]:
    found = [KvwiseError]
    for kind in found:
        found += kind.__subclasses__()
    return found


@pytest.mark.parametrize(
    ("kind", "code"), [(KvwiseError, 1), (UsageError, 2), (DoesNotFit, 3), (Interrupted, 130)]
)
def test_exit_codes(kind: type[KvwiseError], code: int) -> None:
    assert kind("x").exit_code == code


def test_every_class_of_the_module_is_drawn_in_its_tree() -> None:
    drawn = set(re.findall(r"[|`]- (\w+)", errors.__doc__ or "")) | {"KvwiseError"}
    here = {kind.__name__ for kind in _tree() if kind.__module__ == errors.__name__}
    assert here == drawn


def test_a_sentence_with_fields_and_a_hint() -> None:
    error = UsageError("{flag} is unknown", flag="-x", near="-c", hint="did you mean {near}?")
    assert str(error) == "-x is unknown"
    assert str(error.hint) == "did you mean -c?"
    assert error.kind == "UsageError"


def test_no_hint_is_none() -> None:
    assert UsageError("x").hint is None


def test_a_refusal_has_a_code() -> None:
    refusal = Refused("mla_k_v_types_differ", "K is {k}, V is {v}", k="f16", v="q8_0")
    assert (refusal.code, refusal.exit_code, str(refusal)) == (
        "mla_k_v_types_differ",
        3,
        "K is f16, V is q8_0",
    )


def test_braces_in_values_do_no_harm() -> None:
    assert str(UsageError("{text!r} is odd", text="{0}{x")) == "'{0}{x' is odd"
