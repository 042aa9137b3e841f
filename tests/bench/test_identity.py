"""What makes another sweep of it, so that nothing that was measured is taken up."""

from __future__ import annotations

from kvwise.bench import identity
from kvwise.bench.cases import Case
from kvwise.bench.ruled import DOES_NOT_FIT, Means, Ruled
from kvwise.bench.run import Sweep
from kvwise.device import Host
from kvwise.engine.find import Engine
from kvwise.launch import Launch
from kvwise.text import phrase


def sweep(code: str = "", **fields: object) -> Sweep:
    skipped = phrase("it needs more") if code else None
    case = Case(0, Launch(**fields))  # type: ignore[arg-type]
    ruled = Ruled(case, "server", (), skipped=skipped, code=code)
    means = Means(Engine("embedded"), None, (), Host(), 1, 2)
    return Sweep((), (ruled,), means, 5, 2, False, None)


def test_less_free_memory_is_no_other_sweep() -> None:
    assert identity.about(sweep(DOES_NOT_FIT)) == identity.about(sweep())


def test_another_setting_or_refusal_is() -> None:
    found = [sweep(), sweep(n_ubatch=128), sweep("v_quant_needs_flash_attn")]
    assert len({str(identity.about(each)) for each in found}) == 3
