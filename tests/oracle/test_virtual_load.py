"""A real llama-server loads onto GPUs that are not here: it succeeds, and fails, as on a card."""

from __future__ import annotations

import psutil
import pytest

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine.loaded import Loaded
from kvwise.engine.noalloc import Run, on_virtual, run
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.units import GIB, MIB
from models import smollm2
from oracle.tools import MARKS, folder

pytestmark = [*MARKS, pytest.mark.engine, pytest.mark.xdist_group("engine")]
LAUNCH = Launch(n_ctx=8192, n_outputs_max=1, fit=False)
FLAGS = ("-c", "8192", "-np", "1", "-no-kvu", "-fit", "off", "-ngl", "99", "-lv", "4")


def load(server: VirtualDevices, *more: str) -> Run:
    """Start a llama-server on the virtual GPUs; it is stopped when it is ready."""
    argv = [str(folder() / "llama-server"), "-m", str(smollm2()), *on_virtual(server), *FLAGS]
    argv += ["--host", "127.0.0.1", "--port", "0", "--cache-ram", "0", *more]

    def ready(loaded: Loaded) -> bool:
        return loaded.ready

    return run(argv, limit_s=60, enough=ready)


def test_what_it_allocates_is_the_ledger_to_the_byte() -> None:
    gpu = Device("card", "generic", 6 * GIB, 5 * GIB)
    ledger = account(describe(open_header(str(smollm2()))), LAUNCH, [gpu])
    line = ledger.lines[0]
    with VirtualDevices([VirtualGPU.of(gpu)]) as server:
        assert load(server).loaded.ready  # with its warm-up run
        sizes = [one.size for one in server.allocations if one.granted]
    assert sizes == [line.weights_bytes, line.context_bytes, line.compute_bytes]


def test_two_gpus_get_what_the_ledger_says() -> None:
    gpus = [Device("a", "generic", 6 * GIB, 5 * GIB), Device("b", "generic", 12 * GIB, 11 * GIB, 1)]
    ledger = account(describe(open_header(str(smollm2()))), LAUNCH, gpus)
    with VirtualDevices(map(VirtualGPU.of, gpus)) as server:
        assert load(server).loaded.ready
        held = [(one.device, one.size) for one in server.allocations]
    for number, line in enumerate(ledger.lines[:-1]):
        own = [size for device, size in held if device == number]
        assert own == [line.weights_bytes, line.context_bytes, line.compute_bytes]


@pytest.mark.parametrize(
    ("block", "part", "granted"),
    [(40 * MIB, "weights_alloc", 0), (100 * MIB, "kv_alloc", 1), (181 * MIB, None, 3)],
)
def test_a_fragmented_card_fails_although_enough_is_free(
    block: int, part: str | None, granted: int
) -> None:
    card = VirtualGPU(6 * GIB, 5 * GIB, "cuda", largest_block_bytes=block)
    with VirtualDevices([card]) as server:
        got = load(server)
        allocations = server.allocations
    assert sum(one.granted for one in allocations) == granted
    if part is None:
        assert got.loaded.ready
        return
    assert got.outcome.code == 1
    refused = next(one for one in allocations if not one.granted)
    failure = got.loaded.failure("buffer_alloc")
    assert failure is not None
    assert int(failure.fields["bytes"]) == refused.size > block
    assert got.loaded.failure(part) is not None
    assert sum(one.size for one in allocations if one.granted) + refused.size < card.free_bytes


def test_a_card_that_is_full_fails_where_the_ledger_says() -> None:
    gpu = Device("card", "generic", 6 * GIB, 5 * GIB)
    line = account(describe(open_header(str(smollm2()))), LAUNCH, [gpu]).lines[0]
    for missing in (0, 1):
        card = VirtualGPU(6 * GIB, line.total_bytes - line.overhead_bytes - missing)
        with VirtualDevices([card]) as server:
            assert load(server, "--no-warmup").loaded.ready is (missing == 0)


def test_nothing_is_left_behind() -> None:
    with VirtualDevices([VirtualGPU(6 * GIB, 5 * GIB)]) as server:
        got = load(server)
        port = int(server.endpoint.rpartition(":")[2])
    assert not psutil.pid_exists(got.outcome.pid)
    mine = psutil.Process().net_connections(kind="tcp")
    assert all(one.laddr.port != port or one.status != "LISTEN" for one in mine)
