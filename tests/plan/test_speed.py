"""Speed: what a token costs is counted exactly; what is not known stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.device import Device, Host
from kvwise.gguf.types import by_name
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import HOST
from kvwise.plan.speed import Measured, Range, Speed, estimate
from kvwise.plan.speed.work import Work, switches, work

from .setup import gpu, model

CARD = Device.of("RTX 4060", os="linux")
ROOMY = replace(CARD, total_bytes=1 << 40, free_bytes=1 << 40)
GIVEN = Host.of("total=64GiB,bandwidth=60GB/s,cores=8")


def ledger(name: str, words: str, *devices: Device) -> Ledger:
    return account(model(name), Launch.parse(words.split()), devices, compute_mode="none")


def on(found: tuple[Work, ...], device: int) -> Work:
    return next(each for each in found if each.device == device)


# -- bytes and operations ------------------------------------------------------


def test_a_token_reads_every_weight_once_but_the_embeddings() -> None:
    made = ledger("qwen3-8b", "-c 4096 -ngl 99", ROOMY)
    found = work(made, 1)
    whole = sum(tensor.nbytes for tensor in made.model.header.tensors)
    embeddings = made.model.header.by_name["token_embd.weight"].nbytes
    assert on(found, 0).weights == whole - embeddings
    assert on(found, HOST).read_bytes == 0
    assert on(found, 0).matrix_flops + on(found, 0).output_flops == 2 * sum(
        tensor.elements
        for tensor in made.model.header.tensors
        if len(tensor.shape) > 1 and tensor.name != "token_embd.weight"
    )


def test_a_tied_output_is_read_whole() -> None:
    for layers, device in ((99, 0), (10, 0), (0, HOST)):
        found = work(ledger("llama-3.2-1b", f"-c 4096 -ngl {layers}", ROOMY), 1)
        assert on(found, device).output_flops == 2 * 2048 * 128256
    alone = ledger("llama-3.2-1b", "-c 4096")
    assert on(work(alone, 1), HOST).weights == alone.model.header.tensor_bytes


def test_of_the_experts_only_those_in_use_are_read() -> None:
    made = ledger("qwen3-30b-a3b", "-c 4096 -ngl 99", ROOMY)
    part = on(work(made, 1), 0)
    experts = sum(t.nbytes for t in made.model.header.tensors if "_exps." in t.name)
    assert part.expert_bytes == experts
    assert part.all_weights - part.weights == pytest.approx(experts * (1 - 8 / 128), rel=1e-6)


def test_experts_on_the_host_are_read_there() -> None:
    made = ledger("qwen3-30b-a3b", "-c 4096 -ngl 99 -ncmoe 10", ROOMY)
    host = on(work(made, 1), HOST)
    layers = {f"blk.{layer}." for layer in range(10)}
    experts = sum(
        t.nbytes
        for t in made.model.header.tensors
        if "_exps." in t.name and any(t.name.startswith(layer) for layer in layers)
    )
    assert host.weights == pytest.approx(experts * 8 / 128, rel=1e-6)
    assert host.cache == 0
    assert switches(made) == 2 * 10


@pytest.mark.parametrize(("types", "row"), [("f16 f16", 4096), ("q8_0 q8_0", 2176)])
def test_the_cache_is_read_up_to_the_depth(types: str, row: int) -> None:
    k, v = types.split()
    made = ledger("qwen3-8b", f"-c 8192 -ngl 99 -fa on -ctk {k} -ctv {v}", ROOMY)
    shallow, deep = (on(work(made, depth), 0) for depth in (1000, 3000))
    assert deep.cache - shallow.cache == 36 * row * 2000
    assert deep.weights == shallow.weights
    assert deep.attention_flops == 3 * shallow.attention_flops == 36 * 4 * 32 * 128 * 3000


def test_a_window_is_read_no_further() -> None:
    made = ledger("gemma-3-4b", "-c 32768 -ngl 99", ROOMY)
    full = [layer for layer in range(34) if not made.model.is_swa(layer)]
    half = by_name("f16")
    assert half is not None
    row = half.row_bytes(made.model.n_embd_k_gqa(0) + made.model.n_embd_v_gqa(0))
    shallow, deep = (on(work(made, depth), 0) for depth in (8192, 16384))
    assert deep.cache - shallow.cache == len(full) * row * 8192


def test_a_state_costs_the_same_at_any_depth() -> None:
    made = ledger("mamba-130m", "-c 4096 -ngl 99 -np 1", ROOMY)
    state = sum(cache.r_bytes + cache.s_bytes for cache in made.caches)
    assert {on(work(made, depth), 0).cache for depth in (1, 4000)} == {2 * state}


def test_a_cache_on_the_host_is_read_there() -> None:
    made = ledger("qwen3-8b", "-c 4096 -ngl 99 -nkvo", ROOMY)
    found = work(made, 1000)
    assert on(found, 0).cache == 0
    assert on(found, HOST).cache == 36 * 4096 * 1000
    assert on(found, HOST).attention_flops > 0
    assert switches(made) == 2 * 36


def test_layers_split_over_two_gpus_share_the_bytes() -> None:
    two = (ROOMY, replace(ROOMY, index=1))
    made = ledger("qwen3-8b", "-c 4096 -ngl 99", *two)
    whole = on(work(ledger("qwen3-8b", "-c 4096 -ngl 99", ROOMY), 100), 0)
    found = work(made, 100)
    assert on(found, 0).read_bytes + on(found, 1).read_bytes == whole.read_bytes
    assert switches(made) == 1


# -- tokens per second -----------------------------------------------------------


def decode(speed: Speed) -> Range:
    assert speed.decode is not None
    return speed.decode


def test_no_launch_is_faster_than_its_memory() -> None:
    made = ledger("qwen3-8b", "-c 8192 -ngl 99", ROOMY)
    speed = estimate(made, 4096)
    assert speed.basis == speed.prompt_basis == "roofline"
    assert decode(speed).low < decode(speed).high < 272e9 / speed.read_bytes_gpu
    assert decode(speed).low > 0.4 * 272e9 / speed.read_bytes_gpu


def test_what_is_not_known_is_not_said() -> None:
    speed = estimate(ledger("qwen3-8b", "-c 4096 -ngl 99", gpu(100)), 1000)
    assert speed.decode is None and speed.prompt is None
    assert speed.basis == speed.prompt_basis == "unknown"
    assert speed.read_bytes_gpu > 0
    given = replace(gpu(100), bandwidth_bytes_per_s=272 * 10**9)  # but not its arithmetic
    half = estimate(ledger("qwen3-8b", "-c 4096 -ngl 99", given), 1000)
    assert half.decode is not None and half.prompt is None


def test_without_a_gpu_the_memory_of_the_host_counts() -> None:
    made = ledger("qwen3-8b", "-c 4096")
    wide, narrow = estimate(made, 1000), estimate(made, 1000, host=GIVEN)
    assert decode(narrow).high / decode(narrow).low < decode(wide).high / decode(wide).low
    assert wide.prompt is None  # nobody said how many cores there are
    assert narrow.prompt is not None
    assert decode(narrow).high < 60e9 / narrow.read_bytes_host


def test_layers_on_the_host_make_a_token_slower_and_a_deeper_one_too() -> None:
    middles = [
        decode(estimate(ledger("qwen3-8b", f"-c 8192 -ngl {layers}", ROOMY), depth)).middle
        for layers, depth in ((99, 0), (99, 8000), (30, 8000), (10, 8000), (0, 8000))
    ]
    assert middles == sorted(middles, reverse=True)


def test_a_prompt_streams_what_lies_on_the_host_over_the_bus() -> None:
    made = ledger("qwen3-8b", "-c 8192 -ngl 0", CARD)
    kept = ledger("qwen3-8b", "-c 8192 -ngl 0 --no-op-offload", CARD)
    streamed, computed = (estimate(each, 2048, host=GIVEN).prompt for each in (made, kept))
    assert streamed is not None and computed is not None
    bus = 8 * 1.969e9  # PCIe 4.0 x8
    host = on(work(made, 1), HOST)
    assert streamed.high < 512 / (host.all_weights / bus)
    assert streamed.middle != computed.middle


@pytest.mark.parametrize(("smaller", "larger"), [(64, 256), (256, 512)])
def test_a_larger_micro_batch_reads_a_prompt_faster(smaller: int, larger: int) -> None:
    found = [
        estimate(ledger("qwen3-8b", f"-c 8192 -ngl 99 -ub {size}", ROOMY), 4096).prompt
        for size in (smaller, larger)
    ]
    assert found[0] is not None and found[1] is not None
    assert found[0].middle < found[1].middle


def test_attention_that_leaves_the_gpu_is_slow_and_says_so() -> None:
    turing = replace(Device.of("RTX 2080 Ti", os="linux"), total_bytes=1 << 40, free_bytes=1 << 40)
    mixed = estimate(ledger("qwen3-8b", "-c 8192 -ngl 99 -ctv q4_0", turing), 4096, host=GIVEN)
    alike = estimate(
        ledger("qwen3-8b", "-c 8192 -ngl 99 -ctk q4_0 -ctv q4_0", turing), 4096, host=GIVEN
    )
    assert any("no fast attention" in str(each.why) for each in mixed.penalties)
    assert not any("no fast attention" in str(each.why) for each in alike.penalties)
    assert mixed.prompt is not None and alike.prompt is not None
    assert mixed.prompt.high < 0.54 * alike.prompt.high
    assert decode(mixed).middle < decode(alike).middle


def test_an_encoder_generates_nothing() -> None:
    speed = estimate(ledger("bge-small-en-v1.5", "-c 512 -ngl 99 --embedding", ROOMY), 512)
    assert speed.decode is None
    assert speed.prompt is not None


# -- what was measured here ---------------------------------------------------------


def test_a_measurement_of_this_very_setting_stands() -> None:
    made = ledger("qwen3-8b", "-c 8192 -ngl 99", ROOMY)
    result = Measured.of(made, 4096, decode_tokens_per_s=41.0, prompt_tokens_per_s=1500.0)
    speed = estimate(made, 4096, results=[result])
    assert speed.basis == speed.prompt_basis == "measured"
    assert decode(speed).low < 41.0 < decode(speed).high
    assert decode(speed).high / decode(speed).low < 1.2


def test_a_measurement_corrects_other_settings_on_the_same_card_only() -> None:
    small = ledger("llama-3.2-1b", "-c 8192 -ngl 99", ROOMY)
    made = ledger("qwen3-8b", "-c 8192 -ngl 99", ROOMY)
    plain = estimate(made, 4096)
    slow = 0.6 * 272e9 / sum(each.read_bytes for each in work(small, 4096))
    speed = estimate(made, 4096, results=[Measured.of(small, 4096, decode_tokens_per_s=slow)])
    assert speed.basis == "corrected"
    assert decode(speed).middle < decode(plain).middle
    assert speed.prompt == plain.prompt
    other = replace(Measured.of(small, 4096, decode_tokens_per_s=slow), devices=("another",))
    assert estimate(made, 4096, results=[other]).decode == plain.decode


def test_measurements_with_the_same_cache_types_count_first() -> None:
    made = ledger("qwen3-8b", "-c 8192 -ngl 99 -fa on -ctk q8_0 -ctv q8_0", ROOMY)
    other = ledger("qwen3-8b", "-c 8192 -ngl 99", ROOMY)
    results = [
        Measured.of(made, 4096, decode_tokens_per_s=38.0),
        Measured.of(other, 4096, decode_tokens_per_s=20.0),
    ]
    found = decode(estimate(made, 4096, results=results))
    assert found.low < 38.0 < found.high
    assert found.low > 30
