"""Tables: every cell is what the ledger says, and its edge is an edge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.catalogue import device_of, find
from kvwise.device import Device, Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.types import CACHE_TYPES
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.plan.candidate import slack_of
from kvwise.plan.table import NO_KERNEL, Cell, Entry, make_table, pairs_of, usual_contexts
from kvwise.plan.taken import Curve, Machine, alike, fits, slack
from kvwise.units import GIB, MIB

from .setup import gpu, model

START = replace(Launch.parse([]), fit=False)
KINDS = ("cuda", "vulkan", "metal", "generic")
FAMILIES = (
    "qwen3-8b",  # plain
    "gemma-3-4b",  # windows
    "deepseek-v2-lite",  # latent attention
    "falcon-h1-1.5b",  # states beside attention
    "qwen3-30b-a3b",  # experts
)


def card(name: str, os: str = "linux") -> Machine:
    return Machine((device_of(find(name), os=os),))


def left(name: str, launch: Launch, machine: Machine, n_ctx: int) -> int:
    """What the whole ledger leaves, asked directly."""
    asked = replace(launch, n_ctx=n_ctx)
    return slack_of(account(model(name), asked, machine.devices, host=machine.host))


# -- the edge ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_longest_context_fits_and_the_next_does_not(name: str, kind: str) -> None:
    size = model(name).header.tensor_bytes / GIB
    machines = [Machine((gpu(size * more + 1.4, kind=kind),)) for more in (1.05, 1.3, 2)]
    pairs = pairs_of(["f16,q8_0"])
    table = make_table([Entry(model(name), START)], machines, pairs, (4096,))
    ended_by_memory = 0
    for cell in table.cells:
        assert cell.refused is None
        best = cell.n_ctx_max
        assert best is not None
        launch = replace(START, type_k=cell.pair[0], type_v=cell.pair[1])
        machine = machines[cell.machine]
        assert left(name, launch, machine, best) >= 0
        if cell.limit == "memory":
            ended_by_memory += 1
            assert all(left(name, launch, machine, best + 256 * more) < 0 for more in (1, 2, 3))
        else:
            assert best == model(name).n_ctx_train // 256 * 256
    assert ended_by_memory


def test_cards_of_a_kind_share_a_curve_and_get_what_they_would_get_alone() -> None:
    names = ("RTX 3060 12GB", "RTX 4060 Ti 16GB", "RTX 4090", "GTX 1080", "RTX A4000")
    machines = [card(name) for name in names]
    entry = [Entry(model("qwen3-8b"), START)]
    pairs, contexts = pairs_of(["f16,q8_0"]), (4096, 32768)
    together = make_table(entry, machines, pairs, contexts)
    alone = [make_table(entry, [machine], pairs, contexts) for machine in machines]
    found = [replace(cell, machine=0) for cell in together.cells]
    assert found == [cell for table in alone for cell in table.cells]
    assert together.ledgers < sum(table.ledgers for table in alone)
    assert len({alike(machine) for machine in machines}) == 1
    assert alike(card("RX 7900 XTX")) != alike(card("RTX 4090"))


def test_shares_of_two_gpus_follow_their_free_memory() -> None:
    """Such machines are alike only if the same is free."""
    pair = (gpu(8), gpu(4, index=1))
    other = (gpu(8), gpu(5, index=1))
    assert alike(Machine(pair)) == alike(Machine(pair))
    assert alike(Machine(pair)) != alike(Machine(other))
    table = make_table(
        [Entry(model("qwen3-8b"), START)], [Machine(pair)], pairs_of(["f16"]), (4096,)
    )
    best = table.cells[0].n_ctx_max
    assert best is not None
    assert left("qwen3-8b", START, Machine(pair), best) >= 0
    assert left("qwen3-8b", START, Machine(pair), best + 256) < 0


def test_a_device_that_is_left_out_takes_nothing() -> None:
    machine = Machine((gpu(8), gpu(4, index=1)))
    launch = replace(START, devices=("CUDA0",))
    cell = make_table(
        [Entry(model("qwen3-8b"), launch)], [machine], pairs_of(["f16"]), (4096,)
    ).cells[0]
    alone = make_table(
        [Entry(model("qwen3-8b"), START)], [Machine((gpu(8),))], pairs_of(["f16"]), (4096,)
    ).cells[0]
    assert cell.n_ctx_max == alone.n_ctx_max


def test_no_buffer_is_larger_than_the_largest_block() -> None:
    """A probe can find less in one piece than is free: the weights must fit it."""
    whole, pieces = gpu(12), replace(gpu(12), max_block_bytes=3 * GIB)
    assert alike(Machine((whole,))) != alike(Machine((pieces,)))
    table = make_table(
        [Entry(model("qwen3-8b"), START), Entry(model("qwen3-0.6b"), START)],
        [Machine((whole,)), Machine((pieces,))],
        pairs_of(["f16"]),
        (4096,),
    )
    found = [cell.n_ctx_max for cell in table.cells]
    assert found[0]
    assert found[1] is None  # 4.7 GiB of weights are one allocation
    assert found[3]
    assert found[3] < (found[2] or 0)  # a cache is another one
    at = replace(START, n_ctx=found[3])
    assert account(model("qwen3-0.6b"), at, (pieces,)).fits
    assert not account(model("qwen3-0.6b"), replace(at, n_ctx=found[3] + 256), (pieces,)).fits


def test_every_context_is_the_ledger() -> None:
    machine = card("RTX 4060")
    table = make_table(
        [Entry(model("qwen3-8b"), START)],
        [machine],
        pairs_of(["f16", "q8_0", "q8_0/f16"]),
        (4096, 16384, 131072),
    )
    for cell in table.cells:
        launch = replace(START, type_k=cell.pair[0], type_v=cell.pair[1])
        for at in cell.at:
            ledger = account(model("qwen3-8b"), replace(launch, n_ctx=at.n_ctx), machine.devices)
            assert at.cache_bytes == ledger.lines[0].context_bytes
            assert at.share == at.cache_bytes / machine.total_bytes
            assert at.fits == (slack_of(ledger) >= 0)
            assert at.beyond_training == (at.n_ctx > 40960)
            assert at.gpu_bytes == ledger.lines[0].total_bytes
            assert at.left_bytes == slack_of(ledger)


def test_slots_of_their_own_get_whole_blocks_each() -> None:
    launch = replace(START, n_seq_max=3, kv_unified=False)
    machine = Machine((gpu(7),))
    table = make_table([Entry(model("qwen3-8b"), launch)], [machine], pairs_of(["f16"]), (4096,))
    cell = table.cells[0]
    assert cell.n_ctx_max is not None
    assert cell.n_ctx_seq_max == cell.n_ctx_max // 3
    assert cell.n_ctx_seq_max % 256 == 0


# -- what ends it --------------------------------------------------------------------------------


def test_past_training_only_memory_ends_it() -> None:
    entry, machine = [Entry(model("qwen3-0.6b"), START)], card("RTX 4090")
    usual = make_table(entry, [machine], pairs_of(["f16"]), (4096,)).cells[0]
    assert (usual.n_ctx_max, usual.limit) == (40960, "training")
    beyond = make_table(entry, [machine], pairs_of(["f16"]), (4096,), past_training=True).cells[0]
    assert beyond.limit == "memory"
    assert beyond.n_ctx_max is not None
    assert left("qwen3-0.6b", START, machine, beyond.n_ctx_max) >= 0
    assert left("qwen3-0.6b", START, machine, beyond.n_ctx_max + 256) < 0


def test_what_is_too_large_misses_by_so_much_and_needs_no_graph() -> None:
    table = make_table(
        [Entry(model("llama-3.3-70b"), START)], [card("RTX 4060")], pairs_of(["f16"]), (4096,)
    )
    cell = table.cells[0]
    assert (cell.n_ctx_max, cell.limit) == (None, "memory")
    assert cell.misses_bytes is not None
    assert cell.misses_bytes > 25 * GIB
    assert not cell.at[0].fits
    assert cell.at[0].gpu_bytes is None
    assert cell.at[0].cache_bytes == 1280 * MIB


def test_layers_left_on_the_host_and_all_of_them() -> None:
    launch = replace(START, n_gpu_layers=20)
    table = make_table(
        [Entry(model("qwen3-8b"), launch)], [card("RTX 4060")], pairs_of(["f16"]), (4096,)
    )
    whole = make_table(
        [Entry(model("qwen3-8b"), START)], [card("RTX 4060")], pairs_of(["f16"]), (4096,)
    )
    cell = table.cells[0]
    assert cell.n_ctx_max_all_layers == whole.cells[0].n_ctx_max
    assert cell.n_ctx_max is not None
    assert cell.n_ctx_max > (cell.n_ctx_max_all_layers or 0)
    experts = replace(START, n_cpu_moe=99)
    moe = make_table(
        [Entry(model("qwen3-30b-a3b"), experts)], [card("RTX 4060")], pairs_of(["f16"]), (4096,)
    ).cells[0]
    assert moe.n_ctx_max is not None
    assert moe.n_ctx_max_all_layers is None


@pytest.mark.parametrize("kind", ["cuda", "vulkan"])
@pytest.mark.parametrize("name", ["qwen3-8b", "gemma-3-4b", "falcon-h1-1.5b"])
def test_so_many_layers_fit_beside_a_context_and_not_one_more(name: str, kind: str) -> None:
    size = model(name).header.tensor_bytes / GIB
    machine = Machine((gpu(size * 0.8 + 0.6, kind=kind),))
    contexts = (4096, 16384, 65536)
    table = make_table(
        [Entry(model(name), START)], [machine], pairs_of(["f16,q8_0"]), contexts, layers=True
    )
    partial = 0
    for cell in table.cells:
        launch = replace(START, type_k=cell.pair[0], type_v=cell.pair[1])
        for at in cell.at:
            if at.fits:
                assert at.n_gpu_layers == table.entries[0].everything
                continue
            partial += 1
            assert at.n_gpu_layers is not None
            for more, holds in ((0, True), (1, False)):
                given = replace(launch, n_gpu_layers=at.n_gpu_layers + more)
                assert (left(name, given, machine, at.n_ctx) >= 0) is holds
    assert partial
    plain = make_table([Entry(model(name), START)], [machine], pairs_of(["f16,q8_0"]), contexts)
    assert all(at.n_gpu_layers is None for cell in plain.cells for at in cell.at)


def test_layers_are_not_asked_for_where_they_are_fixed_or_there_is_no_gpu() -> None:
    for launch, machine in ((replace(START, n_gpu_layers=20), card("RTX 4060")),
                            (START, Machine((), Host.of("10GiB")))):  # fmt: skip
        table = make_table(
            [Entry(model("qwen3-8b"), launch)], [machine], pairs_of(["f16"]), (32768,), layers=True
        )
        assert table.cells[0].at[0].n_gpu_layers is None


def test_memory_of_the_host_binds_where_it_is_known() -> None:
    entry = [Entry(model("qwen3-8b"), replace(START, n_gpu_layers=0))]
    small = Machine((), Host.of("10GiB"))
    table = make_table(entry, [small], pairs_of(["f16"]), (4096, 32768))
    cell = table.cells[0]
    assert [at.fits for at in cell.at] == [True, False]
    assert cell.at[0].share == 576 * MIB / (10 * GIB)
    assert cell.n_ctx_max is not None
    assert cell.n_ctx_max_all_layers is None
    assert small.usable_bytes == 10 * GIB


# -- types that cannot be had --------------------------------------------------------------------


def test_types_without_a_cuda_kernel_stand_in_the_table_with_the_reason() -> None:
    cuda, generic = card("RTX 4090"), Machine((Device.of("24GiB"),))
    table = make_table(
        [Entry(model("qwen3-8b"), START)], [cuda, generic], pairs_of(["all,q8_0/q4_0"]), (4096,)
    )

    def codes(place: int) -> set[str]:
        count = len(table.pairs)
        cells = [table.cell(0, place, number) for number in range(count)]
        return {"/".join(cell.pair) for cell in cells if cell.refused}

    def of(k: str, v: str) -> Cell:
        return next(cell for cell in table.cells if cell.pair == (k, v) and not cell.machine)

    without = {f"{each}/{each}" for each in ("q4_1", "q5_0", "q5_1", "iq4_nl")}
    assert codes(0) == {*without, "q8_0/q4_0"}
    assert codes(1) == set()
    refused = of("q5_1", "q5_1")
    assert refused.refused is not None
    assert refused.refused.code == NO_KERNEL
    assert refused.n_ctx_max is None
    assert refused.at[0].cache_bytes == 216 * MIB  # what it would take is still told
    assert of("q8_0", "q8_0").n_ctx_max == 40960


def test_types_that_do_not_divide_a_head_are_refused_as_the_engine_does() -> None:
    table = make_table(
        [Entry(model("phi-2"), START)], [card("RTX 4090")], pairs_of(["f16,q8_0"]), (2048,)
    )
    plain, quantized = table.cells
    assert plain.refused is None
    launch = replace(START, type_k="q8_0", type_v="q8_0", n_ctx=2048)
    with pytest.raises(Refused) as caught:
        account(model("phi-2"), launch, card("RTX 4090").devices)
    assert quantized.refused is not None
    assert quantized.refused.code == caught.value.code
    assert quantized.at[0].refused is not None


def test_a_latent_cache_has_one_type() -> None:
    table = make_table(
        [Entry(model("deepseek-v2-lite"), START)], [card("RTX 4090")],
        pairs_of(["q8_0/f16"]), (4096,),
    )  # fmt: skip
    assert table.cells[0].refused is not None
    assert table.cells[0].refused.code == "mla_k_v_types_differ"


# -- prompts -------------------------------------------------------------------------------------


def test_what_a_prompt_leaves() -> None:
    """requirements.md A5: a prompt of 3,982 tokens at -c 3584 leaves nothing."""
    table = make_table(
        [Entry(model("qwen3-0.6b"), START)], [card("RTX 4060")], pairs_of(["f16"]), (3584, 4096),
        prompt_tokens=3982,
    )  # fmt: skip
    cell = table.cells[0]
    assert [at.n_predict for at in cell.at] == [3584 - 3982, 114]
    assert cell.n_predict_max == 40960 - 3982
    without = make_table(
        [Entry(model("qwen3-0.6b"), START)], [card("RTX 4060")], pairs_of(["f16"]), (3584,)
    )
    assert without.cells[0].n_predict_max is None


# -- words ---------------------------------------------------------------------------------------


def test_types_as_people_write_them() -> None:
    assert pairs_of(["f16", "Q8_0/q4_0, f16"]) == (("f16", "f16"), ("q8_0", "q4_0"))
    assert pairs_of(["all"]) == tuple((each, each) for each in CACHE_TYPES)
    for wrong in ("q9_0", "", "/f16", "q8_0/q8_0/q8_0", "q4_K"):
        with pytest.raises(UsageError):
            pairs_of([wrong])


def test_usual_contexts_end_with_the_training() -> None:
    assert usual_contexts([model("qwen3-8b")]) == (4096, 8192, 16384, 32768)
    assert usual_contexts([model("phi-2")]) == (4096,)
    assert usual_contexts([model("llama-3.1-8b")])[-1] == 131072


def test_a_curve_asks_once() -> None:
    machine = card("RTX 4060")
    curve = Curve(model("qwen3-0.6b"), START, machine)
    first = curve.at(4096)
    assert curve.at(4096) is first
    assert curve.bare(4096) is first
    assert curve.asked == 1
    bare = curve.bare(8192)
    whole = curve.at(8192)
    assert curve.asked == 3
    assert (slack(bare, machine) or 0) > (slack(whole, machine) or 0)
    assert fits(whole, machine)
