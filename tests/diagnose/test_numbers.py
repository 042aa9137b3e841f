"""What failed, what it asked, what we compute, what would fit; and claims that cannot be true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kvwise
from kvwise.diagnose import Diagnosis, diagnose
from kvwise.diagnose.claims import claims_of
from kvwise.diagnose.document import diagnosis_json
from kvwise.diagnose.from_log import model_of
from kvwise.engine.loaded import ModelLoad
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.units import MIB

ROOT = Path(__file__).parents[1]
LOGS = Path(__file__).parent / "logs"
ZOO = sorted((ROOT / "zoo/models").glob("*.json.gz"))
FACTS = """
print_info: arch             = qwen3
print_info: n_ctx_train      = 40960
print_info: n_embd           = 4096
print_info: n_layer          = 36
print_info: n_head           = 32
print_info: n_head_kv        = 8
print_info: n_embd_head_k    = 128
print_info: n_embd_head_v    = 128
print_info: n_embd_k_gqa     = 1024
print_info: n_embd_v_gqa     = 1024
print_info: n_ff             = 12288
print_info: n_vocab          = 151936
"""
START = """
build: 10605 (abcdef) with GNU 12.2.0
llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 4060) - 7600 MiB free
"""
CONTEXT = """
load_tensors: offloaded 37/37 layers to GPU
load_tensors:        CUDA0 model buffer size =  4455.34 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 40960
llama_context: n_ctx_seq     = 40960
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = auto
"""
NO_CACHE = """
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5760.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 6039797760
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
"""  # noqa: E501
FULL = START + FACTS + CONTEXT + NO_CACHE


@pytest.fixture(scope="module")
def qwen() -> Model:
    return kvwise.open_model(str(ROOT / "zoo/models/qwen3-8b.json.gz"))


def test_from_the_log_alone() -> None:
    found = diagnose(FULL)
    refusal, numbers = found.refusal, found.numbers
    assert refusal is not None
    assert (refusal.buffer, refusal.part) == ("CUDA0", "kv")
    assert refusal.asked_bytes == 5760 * MIB
    assert refusal.free_bytes == 7600 * MIB
    assert refusal.taken_bytes is not None
    assert round(refusal.taken_bytes / MIB, 2) == 4455.34
    assert refusal.computed_bytes == 5760 * MIB  # 36 layers x 8 heads x 128 x 2 sides x 2 bytes
    assert numbers is not None
    assert numbers.basis == "log"
    saved = {option.flags: option.context_bytes for option in numbers.options}
    assert saved["-ctk", "q8_0", "-ctv", "q8_0"] == 5760 * MIB * 17 // 32
    assert saved["-c", "20480"] == 2880 * MIB
    assert numbers.plan is None  # the weights are not known


def test_with_the_model_a_plan_fits(qwen: Model) -> None:
    found = diagnose(FULL, model=qwen)
    numbers = found.numbers
    assert numbers is not None
    assert numbers.basis == "file"
    assert [row.name for row in numbers.rows] == ["CUDA0"]
    assert numbers.rows[0].agrees  # 4455.34 MiB of weights
    assert numbers.plan is not None
    assert numbers.plan.choice.ledger.fits
    argv = numbers.plan.argv
    assert argv[argv.index("-m") + 1] == "qwen3-8b.gguf"  # the header alone, a JSON, loads nowhere
    launch = Launch.parse(argv[1:])
    devices = numbers.plan.choice.ledger.devices
    assert devices[0].free_bytes == 7600 * MIB
    assert account(qwen, launch, devices).fits
    assert not account(qwen, Launch.parse(["-c", "40960", "-np", "1"]), devices).fits


def test_what_the_caller_says_wins(qwen: Model) -> None:
    launch = Launch.parse(["-c", "4096", "-np", "1"])
    device = kvwise.Device.of("RTX 4090")
    found = diagnose(FULL, model=qwen, launch=launch, devices=[device])
    assert found.numbers is not None
    ledger = found.numbers.ledger
    assert ledger is not None
    assert ledger.context.n_ctx == 4096
    assert ledger.devices[0].name == device.name


def test_a_setting_of_the_caller_leaves_the_others_as_the_log_has_them(qwen: Model) -> None:
    asked = "$ llama-server -m qwen.gguf -c 40960 -ctk q8_0 -ctv q8_0 -np 2\n"
    numbers = diagnose(asked + FULL.replace("f16", "q8_0"), model=qwen).numbers
    other = diagnose(asked + FULL.replace("f16", "q8_0"), model=qwen,
                     settings={"n_ctx": 8192}).numbers  # fmt: skip
    assert numbers is not None
    assert other is not None
    assert (other.launch.n_ctx, numbers.launch.n_ctx) == (8192, 40960)
    assert other.launch == replace(numbers.launch, n_ctx=8192)
    assert other.launch.type_k == "q8_0"
    assert other.plan is not None
    assert other.plan.choice.ledger.context.n_ctx == 8192  # what was named stays


def test_an_asked_context_is_kept_if_it_can_be(qwen: Model) -> None:
    asked = "$ llama-server -m qwen.gguf -c 40960 -ngl 99\n"
    numbers = diagnose(asked + FULL, model=qwen).numbers
    assert numbers is not None
    assert numbers.plan is not None
    assert numbers.plan.choice.ledger.context.n_ctx == 40960
    assert numbers.plan.choice.ledger.fits


def test_real_loads_agree_with_the_ledger() -> None:
    """Logs of SmolLM2 and Gemma 3 without their files: caches are recomputed to the byte."""
    for path in sorted(LOGS.glob("healthy*.log")):
        found = diagnose(path)
        assert found.claims == ()
        assert found.numbers is not None
        caches = [row for row in found.numbers.rows if row.kind in ("cache", "context")]
        assert caches
        assert all(row.agrees for row in caches), path.stem


def test_a_refused_setting_is_refused_by_our_rules_too() -> None:
    found = diagnose(LOGS / "v-needs-flash-b10605.log")
    assert found.numbers is not None
    assert found.numbers.ledger is None or found.numbers.note is None


def facts_of(model: Model) -> dict[str, str]:
    """What a log prints of a header: scalars, and arrays that fit into 40 characters."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)

    facts = {key: text(value) for key, value in model.header.metadata.items()
             if isinstance(value, bool | int | float | str | tuple)}  # fmt: skip
    facts = {key: value for key, value in facts.items() if len(value) <= 40}
    facts["arch"] = model.architecture
    for name in ("n_head", "n_head_kv", "n_embd", "n_swa", "n_ff"):
        value = getattr(model, name, None)
        if isinstance(value, tuple) and value:
            facts[name] = str(value[0]) if len(set(value)) == 1 else text(value)
        elif value is not None:
            facts[name] = text(value)
    facts["n_vocab"] = str(model.n_vocab)
    return facts


@pytest.mark.parametrize("path", ZOO[::5], ids=lambda path: path.name.split(".json")[0])
def test_caches_from_what_a_log_prints_are_right_or_unknown(path: Path) -> None:
    model = kvwise.open_model(str(path))
    told = model_of(ModelLoad(facts=facts_of(model)))
    if told is None:
        return
    launch = Launch.parse(["-c", "8192", "-np", "1"])
    try:
        ours = account(model, launch, [], compute_mode="none")
        theirs = account(told, launch, [], compute_mode="none")
    except kvwise.KvwiseError:
        return
    assert [cache.nbytes for cache in theirs.caches] == [cache.nbytes for cache in ours.caches]


def test_most_models_can_be_read_from_a_log() -> None:
    models = [kvwise.open_model(str(path)) for path in ZOO[::8]]
    told = [model_of(ModelLoad(facts=facts_of(model))) for model in models]
    assert sum(each is not None for each in told) >= 0.8 * len(told)


def test_a_log_that_says_too_little_gives_no_model() -> None:
    assert model_of(None) is None
    assert model_of(ModelLoad()) is None
    assert model_of(ModelLoad(facts={"arch": "qwen3", "n_layer": "36"})) is None
    assert model_of(ModelLoad(facts={"arch": "nonesuch", "n_layer": "3"})) is None


LINE = "llama_kv_cache: size = {} MiB (  4096 cells,  36 layers,  1/1 seqs), K (f16): {} MiB, V (f16): {} MiB\n"  # noqa: E501


def test_an_impossible_size_is_pointed_out() -> None:
    found = diagnose(FACTS + LINE.format("576.00", "288.00", "288.00"))
    assert found.claims == ()
    found = diagnose(FACTS + LINE.format("288.00", "144.00", "144.00"))
    first, second = found.claims
    assert (first.what, first.printed_bytes, first.computed_bytes) == (
        "main K", 144 * MIB, 288 * MIB,
    )  # fmt: skip
    assert second.what == "main V"
    assert (first.layers, first.cells, first.width, first.type) == (36, 4096, 1024, "f16")


def test_public_hyperparameters_give_public_sizes() -> None:
    """No claim of a public log is called impossible when its own hyperparameters are printed."""
    from engine.render import log_of

    reports = json.loads((ROOT / "reports/allocations.dev.json").read_text())
    checked = 0
    for report in reports:
        if report["hparams_source"] != "log":
            continue
        facts = [f"print_info: {name} = {value}" for name, value in report["hparams"].items()]
        found = diagnose([*facts, *log_of(report, "new")], numbers=False)
        assert found.case is not None
        assert claims_of(found.case) == (), report["id"]
        checked += 1
    assert checked >= 10


# -- the document ----------------------------------------------------------------------------------

FIELDS = {"schema", "build", "model", "outcome", "findings", "measured"}
FINDING = {"kind", "memory_is_the_cause", "memory_pool", "confidence", "evidence", "cause",
           "remedies"}  # fmt: skip


def check_document(found: Diagnosis) -> None:
    document = json.loads(json.dumps(diagnosis_json(found)))
    assert document.keys() >= FIELDS
    assert document["schema"] == "kvwise/diagnosis/1"
    assert document["outcome"] in {"ok", "refused", "crashed", "killed", "hung", "slow", "unknown"}
    for finding in document["findings"]:
        assert finding.keys() >= FINDING
        assert finding["memory_pool"] in {None, "vram", "host-ram", "unified"}
        assert all(line.keys() == {"line", "text"} for line in finding["evidence"])
        assert all(remedy.keys() == {"text", "flags"} for remedy in finding["remedies"])
    confidences = [finding["confidence"] for finding in document["findings"]]
    assert confidences == sorted(confidences, reverse=True)
    measured = document["measured"]
    assert measured.keys() == {"model_mib", "kv", "rs", "compute_mib", "output_mib"}


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log"))[::6], ids=lambda path: path.stem)
def test_documents(path: Path) -> None:
    check_document(diagnose(path))


def test_the_document_of_everything_at_once(qwen: Model) -> None:
    check_document(diagnose(FULL + LINE.format("1.00", "0.50", "0.50"), model=qwen))


def test_measured_is_what_the_public_reports_say() -> None:
    from engine.render import log_of

    for report in json.loads((ROOT / "reports/allocations.dev.json").read_text()):
        found = diagnosis_json(diagnose(log_of(report, "new"), numbers=False))["measured"]
        said = report["measured"]
        assert {k: round(v, 2) for k, v in found["model_mib"].items()} == {
            k: round(v, 2) for k, v in said["model_mib"].items()
        }
        if any(cache["cache"] == "mtp-draft" for cache in said["kv"]):
            continue  # its second cache is the draft's
        if report["id"] == "qwen3-small-cuda-20k-q8kv":
            continue  # two contexts in one process
        assert [c["size_mib"] for c in found["kv"]] == [c["size_mib"] for c in said["kv"]]
        assert [c["cells"] for c in found["kv"]] == [c["cells"] for c in said["kv"]]
        assert [c["size_mib"] for c in found["rs"]] == [c["size_mib"] for c in said.get("rs", [])]


def test_a_plan_stays_below_what_the_host_refused_and_stands_at_its_load() -> None:
    """A short log of a machine without GPU: nothing else says how little there was."""
    model = kvwise.open_model(str(ROOT / "zoo/models/smollm2-135m.json.gz"))
    launch = Launch(n_ctx=131072, n_seq_max=16, n_outputs_max=16)
    size = 2880 * MIB
    load = (
        "srv init: build_info: b0-unknown\n"
        "srv load_model: loading model 'm.gguf'\n"
        f"E alloc_tensor_range: failed to allocate CPU buffer of size {size}\n"
        "E llama_init_from_model: failed to initialize the context: failed to allocate buffer for "
        "kv cache\n"
        "E common_init_: failed to create context with model 'm.gguf'\n"
    )
    found = diagnose(load * 2, model=model, launch=launch)
    assert found.numbers is not None
    assert found.numbers.plan is not None
    ledger = found.numbers.plan.choice.ledger
    assert ledger.fits
    assert sum(line.context_bytes for line in ledger.lines) < size
    assert all(option.context_bytes < size for option in found.numbers.options)
    assert [each.numbers is found.numbers for each in found.loads] == [False, True]


@pytest.mark.parametrize("n_ctx", [40960, 32768, 1280])
def test_the_size_of_a_refused_cache_tells_the_length(n_ctx: int) -> None:
    log = (START + FACTS + NO_CACHE).replace("6039797760", str(36 * 1024 * 2 * 2 * n_ctx))
    numbers = diagnose(log).numbers
    assert numbers
    assert numbers.launch.n_ctx == n_ctx
    assert f"{n_ctx:,}" in str(numbers.note)


@pytest.mark.parametrize(
    "log",
    [
        (START + FACTS + NO_CACHE).replace("6039797760", "6039900000"),  # of no length
        START + FACTS + CONTEXT + NO_CACHE,  # it says the length itself
        START + FACTS + NO_CACHE.replace("failed to allocate buffer for kv cache", "failed"),
    ],
)
def test_other_sizes_tell_no_length(log: str) -> None:
    numbers = diagnose(log).numbers
    assert numbers
    assert "that was refused" not in str(numbers.note)


def test_the_types_that_are_named_decide_which_length_it_is() -> None:
    log = START + FACTS + NO_CACHE
    found = diagnose(log, settings={"type_k": "q8_0", "type_v": "q8_0", "flash_attn": "on"})
    assert found.numbers
    assert found.numbers.launch.n_ctx == 0  # no whole length takes this much in q8_0
