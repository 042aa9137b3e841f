"""What `kvwise run` shows and keeps of a server that did not start: the engine's words decide."""

from __future__ import annotations

import pytest

from kvwise.diagnose import diagnose
from kvwise.diagnose.finding import HOST_RAM, POSSIBLE
from kvwise.diagnose.from_log import launch_of

START = """\
0.00.010.307 I cmn  common_param: device_info:
0.00.010.317 I cmn  common_param:   - CPU     : AMD EPYC (24105 MiB, 24105 MiB free)
0.00.037.394 I srv          init: loading model
0.00.037.452 I srv    load_model: loading model 'smollm2.gguf'
0.00.037.472 I cmn  common_init_: fitting params to device memory ...
"""
VOCABULARY = "0.02.706.444 I cmn  common_init_: added <|im_end|> logit bias = -inf\n"
REFUSED = """\
0.02.736.983 E ggml_aligned_malloc: insufficient memory (attempted to allocate 2880.00 MB)
0.02.736.984 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size \
3019898880
0.02.736.985 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CPU buffer of size \
3019898880
"""
CACHE = (
    "0.02.737.134 E llama_init_from_model: failed to initialize the context: failed to allocate "
    "buffer for kv cache\n"
)
END = """\
0.02.737.139 E cmn  common_init_: failed to create context with model 'smollm2.gguf'
0.02.738.440 E srv          init: exiting due to model loading error
"""
SAID = (
    "the KV cache does not fit; the engine said: ggml_aligned_malloc: insufficient memory "
    "(attempted to allocate 2880.00 MB)\n"
)
LEFT = (
    "only settings that you gave could still be made smaller: -c 131072 -> 98304: 382.5 MiB less "
    "in the host's memory; allow it with --may-change context\n"
)
OLD_LEFT = (  # as logs have it that were kept before
    "what is left was fixed by you: -c 131072 -> 98304: 382.5 MiB less in the host's memory; "
    "--may-change context would allow it\n"
)
SHOWN = f"kvwise: {SAID}kvwise: {LEFT}kvwise: ended with code 1\nkvwise: log: /home/me/a.log\n"
KEPT = (
    f"# kvwise 04:34:56 failed: {SAID}# kvwise 04:35:02 gave-up: {OLD_LEFT}"
    "# kvwise 04:35:02 ended: ended with code 1\n"
)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, ""])
@pytest.mark.parametrize("own", [SHOWN, KEPT, ""])
def test_a_short_log_of_a_cache_that_does_not_fit_blames_nothing_else(
    vocabulary: str, own: str
) -> None:
    found = diagnose(START + vocabulary + REFUSED + CACHE + END + own, numbers=False)
    said = [each.kind for each in found.blamed if each.confidence >= POSSIBLE]
    assert said == ["kv-alloc-oom"]
    assert found.blamed[0].memory_pool == HOST_RAM
    assert all("kvwise" not in line.text for line in found.blamed[0].evidence)
    assert found.outcome == "refused"


def test_memory_refused_while_it_really_fits_is_named_by_the_memory_that_was_asked() -> None:
    found = diagnose(START + REFUSED, numbers=False)
    assert (found.findings[0].kind, found.findings[0].memory_pool) == ("fit-crash", HOST_RAM)


@pytest.mark.parametrize("own", [SHOWN, KEPT])
def test_the_sentence_alone_is_known_by_its_part(own: str) -> None:
    assert [each.kind for each in diagnose(own, numbers=False).blamed] == ["kv-alloc-oom"]


@pytest.mark.parametrize(
    "said",
    [
        "# kvwise 04:35:02 gave-up: 3 starts failed: no more (--tries)",
        "# kvwise 04:35:02 ended: ended with code 1",
        "kvwise: ended with code 1",
        "kvwise: step down (types): -ctk f16 -> q8_0: 1,350.0 MiB less in the host's memory",
    ],
)
def test_how_a_run_went_on_is_no_cause(said: str) -> None:
    assert diagnose(said, numbers=False).blamed == ()


def test_a_sentence_that_names_no_part_leaves_it_to_the_quoted_line() -> None:
    quoted = REFUSED.splitlines()[2].partition(" E ")[2]
    for start in ("kvwise: ", "# kvwise 04:34:56 failed: "):
        line = f"{start}a buffer does not fit; the engine said: {quoted}"
        assert diagnose(line, numbers=False).blamed[0].memory_is_the_cause


def remedies(log: str) -> str:
    found = diagnose(log, numbers=False).findings[0]
    return "; ".join(" ".join(each.flags) for each in found.remedies)


def test_a_cache_that_lies_on_the_host_is_not_sent_there() -> None:
    assert (
        remedies(START + REFUSED + CACHE + END)
        == "ulimit -v; -c N; -ctk q8_0 -ctv q8_0 -fa on; -np 1"
    )


def test_with_a_gpu_that_is_short_the_host_is_a_remedy() -> None:
    listed = "0.00.010.316 I cmn  common_param:   - CUDA0   : NVIDIA L4 (22565 MiB, 900 MiB free)\n"
    card = REFUSED.splitlines()[2].replace("CPU buffer", "CUDA0 buffer") + "\n"
    assert "-nkvo" in remedies(START.replace("0.00.010.317", listed + "0.00.010.317") + card
                               + CACHE + END)  # fmt: skip


STEP = (
    "kvwise: step down (types): -ctk f16 -> q8_0, -ctv f16 -> q8_0: 1,350.0 MiB less in the "
    "host's memory\n"
)
STEP_ZH = "kvwise：降档（类型）：-ctk f16 -> q8_0, -ctv f16 -> q8_0：主机内存少用 1,350.0 MiB\n"
LAUNCH = (
    '# kvwise 04:34:57 python -m kvwise.engine.embedded {"model": "m.gguf", "launch": '
    '{"n_ctx": 131072, "type_k": "q8_0", "type_v": "q8_0", "draft_type_k": "f16"}}\n'
)
BUILD = "0.00.020.554 I srv          init: build_info: b0-unknown\n"


@pytest.mark.parametrize("how", [STEP, STEP_ZH, LAUNCH])
def test_a_type_that_kvwise_took_already_is_no_remedy(how: str) -> None:
    once = BUILD + START + REFUSED + CACHE + END
    first, second = diagnose(once + SHOWN + how + once, numbers=False).loads
    given = [
        [" ".join(remedy.flags) for remedy in each.findings[0].remedies] for each in (first, second)
    ]
    asked = [launch_of(each.case) for each in (first, second) if each.case]
    assert [each.type_k for each in asked] == ["f16", "q8_0"]
    limit = "ulimit -v"  # 24,105 MiB were free
    assert given == [
        [limit, "-c N", "-ctk q8_0 -ctv q8_0 -fa on", "-np 1"],
        [limit, "-c N", "-np 1"],
    ]


def test_one_slot_and_flash_attention_are_no_remedies_where_the_load_has_them() -> None:
    context = (
        "0.03.074.839 I llama_context: constructing llama_context\n"
        "0.03.074.842 I llama_context: n_seq_max             = 1\n"
        "0.03.074.844 I llama_context: n_ubatch              = 256\n"
        "0.03.074.845 I llama_context: flash_attn            = enabled\n"
    )
    failed = "0.03.1 E graph_reserve: failed to allocate compute buffers\n"
    assert "-np 1" not in remedies(START + context + REFUSED + CACHE + END)
    assert remedies(START + context + REFUSED + failed + END) == "ulimit -v; -c N"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("error: unknown option --as-given", "option-refused"),
        ("error: two models: a.gguf and b.gguf", "request-refused"),
    ],
)
def test_a_refusal_of_kvwise_gets_no_advice_of_another_one(said: str, kind: str) -> None:
    found = diagnose(said, numbers=False).findings
    assert kind in [each.kind for each in found]
    told = [one for each in found for one in each.remedies]
    assert told
    assert all("-sm layer" not in one.flags and "/embedding" not in str(one.text) for one in told)


STEPS = """\
kvwise: start 1: /bin/llama-server (b10605)
{load}kvwise: step down (reserve): -c 131072 -> 65536, -ub 512 -> 256: 720.0 MiB less
kvwise: start 2: /bin/llama-server (b10605)
{load}kvwise: step down (types): -ctk f16 -> q8_0, -ctv f16 -> q4_0: 338.6 MiB less
kvwise: start 3: /bin/llama-server (b10605)
{load}"""
STEPS_ZH = """\
kvwise：第 1 次启动：/bin/llama-server
{load}kvwise：降档（预留）：-c 131072 -> 65536, -ub 512 -> 256：主机内存少用 720.0 MiB
kvwise：第 2 次启动：/bin/llama-server
{load}kvwise：降档（类型）：-ctk f16 -> q8_0, -ctv f16 -> q4_0：主机内存少用 338.6 MiB
kvwise：第 3 次启动：/bin/llama-server
{load}"""


@pytest.mark.parametrize("text", [STEPS, STEPS_ZH])
def test_all_steps_down_are_in_effect_not_the_last_alone(text: str) -> None:
    loads = diagnose(text.format(load=START + REFUSED + CACHE + END), numbers=False).loads
    asked = [launch_of(each.case) for each in loads if each.case]
    told = [(each.n_ctx, each.n_ubatch, each.type_k, each.type_v) for each in asked]
    assert told[0][2:] == ("f16", "f16")
    assert told[1:] == [(65536, 256, "f16", "f16"), (65536, 256, "q8_0", "q4_0")]


@pytest.mark.parametrize(
    "again", ["kvwise: start 1: /bin/llama-server\n", "$ llama-server -m m.gguf -c 4096\n"]
)
def test_another_run_in_the_same_log_begins_anew(again: str) -> None:
    load = START + REFUSED + CACHE + END
    last = diagnose(STEPS.format(load=load) + again + load, numbers=False).loads[-1].case
    assert last is not None
    assert launch_of(last).type_k == "f16"
    assert launch_of(last).n_ctx in (0, 4096)


def test_what_the_engine_says_of_itself_is_above_what_it_was_begun_with() -> None:
    context = "llama_context: constructing llama_context\nllama_context: n_ctx         = 2048\n"
    log = STEPS.format(load=START + context + REFUSED + CACHE + END)
    last = diagnose(log, numbers=False).loads[-1].case
    assert last is not None
    assert launch_of(last).n_ctx == 2048
