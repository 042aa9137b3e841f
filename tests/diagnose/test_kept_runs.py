"""What `kvwise run` shows and keeps of a server that did not start: the engine's words decide."""

from __future__ import annotations

import pytest

from kvwise.diagnose import diagnose
from kvwise.diagnose.finding import HOST_RAM, POSSIBLE

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
    "what is left was fixed by you: -c 131072 -> 98304: 382.5 MiB less in the host's memory; "
    "--may-change context would allow it\n"
)
SHOWN = f"kvwise: {SAID}kvwise: {LEFT}kvwise: ended with code 1\n"
KEPT = (
    f"# kvwise 04:34:56 failed: {SAID}# kvwise 04:35:02 gave-up: {LEFT}"
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
