"""A launch, said aloud to each engine; what would crash an engine is refused before."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.engine.embedded import parameters
from kvwise.engine.find import Engine
from kvwise.engine.pretend import Pretend, WouldRun
from kvwise.engine.settings import MAX_CTX, Run, check, embedded_spec, server_argv
from kvwise.errors import UsageError
from kvwise.gguf.types import BY_NAME, CACHE_TYPES
from kvwise.launch import Launch

SERVER = Engine("binary", "/x/llama-server")


def argv(*words: str, engine: Engine = SERVER, run: Run | None = None) -> list[str]:
    return server_argv(engine, "m.gguf", Launch.parse(list(words)), run or Run())


def value(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1, words
    return words[words.index(flag) + 1]


def test_a_measured_start_says_everything() -> None:
    words = argv()
    expected = {
        "-m": "m.gguf", "-fit": "off", "-np": "4", "-b": "2048", "-ub": "512", "-fa": "auto",
        "-ctk": "f16", "-ctv": "f16", "--host": "127.0.0.1", "--port": "0", "-lv": "4",
        "--cache-ram": "0",
    }  # fmt: skip
    for flag, text in expected.items():
        assert value(words, flag) == text
    assert "-kvu" in words
    assert "-c" not in words  # 0 is the model's own


def test_what_is_asked_is_said_once() -> None:
    words = argv("-c", "4096", "-np", "2", "-ctk", "q8_0", "-ub", "256", "-fa", "on", "--swa-full")
    assert value(words, "-c") == "4096"
    assert value(words, "-np") == "2"
    assert value(words, "-ctk") == "q8_0"
    assert value(words, "-ub") == "256"
    assert value(words, "-fa") == "on"
    assert words.count("--swa-full") == 1
    assert "-kvu" not in words


def test_a_start_that_is_not_measured_may_fit() -> None:
    words = argv("-c", "4096", run=Run(exact=False, port=8080, threads=3, warmup=False))
    assert "off" not in words
    assert "--cache-ram" not in words
    assert (value(words, "--port"), value(words, "-t")) == ("8080", "3")
    assert "--no-warmup" in words


def test_the_user_s_threads_win() -> None:
    assert value(argv("-t", "7", run=Run(threads=2)), "-t") == "7"
    spec = embedded_spec("m", Launch.parse(["-t", "7"]), Run(threads=2))
    assert spec["threads"] == 7


def test_the_line_reads_back_as_the_same_launch() -> None:
    asked = Launch.parse(["-c", "4096", "-ngl", "20", "-ot", "exps=CPU", "-nkvo", "-lm", "none"])
    words = server_argv(SERVER, "m.gguf", asked, Run())
    heard = Launch.parse(words[1:])
    assert replace(heard, extra=(), model="", fit=True) == replace(asked, model="")


OLD = Engine("binary", "/x/old", "b5000", flags=frozenset(
    ["-m", "-c", "-np", "-b", "-ub", "-fa", "-ctk", "-ctv", "--host", "--port", "-ngl",
     "--no-mmap", "--mlock", "-t", "--no-warmup"]
))  # fmt: skip


def test_old_builds_are_told_in_their_own_words() -> None:
    words = argv("-c", "4096", "-lm", "none", engine=OLD)
    assert "--no-mmap" in words
    assert not {"-lm", "--load-mode", "-fit", "-lv", "-kvu", "--cache-ram"}.intersection(words)
    assert value(words, "-ctk") == "f16"
    assert argv("-lm", "mmap+mlock", engine=OLD).count("--mlock") == 1


def test_a_flag_that_the_build_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"b5000\) does not know --swa-full"):
        argv("--swa-full", engine=OLD)


@pytest.mark.parametrize("kind", sorted(set(BY_NAME) - set(CACHE_TYPES)))
@pytest.mark.parametrize("field", ["type_k", "type_v", "draft_type_k", "draft_type_v"])
def test_types_that_would_crash_an_engine_are_refused(kind: str, field: str) -> None:
    with pytest.raises(UsageError, match="no cache type"):
        check(replace(Launch(), **{field: kind}))


@pytest.mark.parametrize("kind", CACHE_TYPES)
def test_the_known_types_pass(kind: str) -> None:
    check(replace(Launch(), type_k=kind, type_v=kind))


def test_contexts_that_no_engine_survives_are_refused() -> None:
    check(replace(Launch(), n_ctx=MAX_CTX))
    for bad in ({"n_ctx": 2_000_000_000}, {"n_ctx": -1}, {"n_seq_max": 0}, {"n_batch": 0}):
        with pytest.raises(UsageError):
            check(replace(Launch(), **bad))


def test_a_draft_that_would_be_loaded_and_not_used_is_refused() -> None:
    with pytest.raises(UsageError, match="never used"):
        check(Launch(model_draft="d.gguf"))
    check(Launch(model_draft="d.gguf", spec_types=("draft-simple",)))


def test_the_embedded_engine_says_what_it_cannot_do() -> None:
    for bad in (Launch(devices=("CUDA1",)), Launch(extra=("--rope-scale", "2"))):
        with pytest.raises(UsageError, match="embedded engine cannot"):
            embedded_spec("m", bad, Run())
    spec = embedded_spec("m", Launch(extra=("-t", "3", "--no-warmup")), Run())
    assert (spec["threads"], spec["warmup"]) == (3, False)


types = st.sampled_from(CACHE_TYPES)


@given(
    st.builds(
        Launch, n_ctx=st.integers(0, MAX_CTX), n_batch=st.integers(1, 1 << 20),
        n_ubatch=st.integers(1, 1 << 20), n_seq_max=st.integers(1, 256), kv_unified=st.booleans(),
        flash_attn=st.sampled_from(["auto", "on", "off"]), type_k=types, type_v=types,
        n_gpu_layers=st.integers(-2, 200), split_mode=st.sampled_from(["layer", "none", "row"]),
        main_gpu=st.integers(0, 7), offload_kqv=st.booleans(), op_offload=st.booleans(),
        swa_full=st.booleans(), repack=st.booleans(), embeddings=st.booleans(),
        pooling=st.sampled_from(["", "mean", "cls", "last", "none", "rank"]),
        tensor_split=st.lists(st.integers(0, 9).map(float), max_size=4).map(tuple),
        n_cpu_moe=st.integers(0, 3),
        override_tensor=st.lists(
            st.tuples(st.sampled_from(["exps", "ffn_.*"]), st.just("CPU")), max_size=2
        ).map(tuple),
        load_mode=st.sampled_from(["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]),
    )
)  # fmt: skip
def test_every_setting_reaches_the_embedded_engine(launch: Launch) -> None:
    pytest.importorskip("xllamacpp")
    spec = json.loads(json.dumps(embedded_spec("m.gguf", launch, Run(port=81, threads=2))))
    p = parameters(spec)
    assert (p.model.path, p.port, p.cpuparams.n_threads) == ("m.gguf", 81, 2)
    assert (p.n_ctx, p.n_batch, p.n_ubatch) == (launch.n_ctx, launch.n_batch, launch.n_ubatch)
    assert (p.n_parallel, p.kv_unified) == (launch.n_seq_max, launch.kv_unified)
    assert p.cache_type_k.name == "GGML_TYPE_" + launch.type_k.upper()
    assert p.cache_type_v.name == "GGML_TYPE_" + launch.type_v.upper()
    assert p.flash_attn_type.value == {"auto": -1, "off": 0, "on": 1}[launch.flash_attn]
    assert (p.swa_full, p.embedding) == (launch.swa_full, launch.embeddings)
    assert p.no_kv_offload is not launch.offload_kqv
    assert p.no_op_offload is not launch.op_offload
    assert p.no_extra_bufts is not launch.repack
    assert p.n_gpu_layers == (launch.n_gpu_layers if launch.n_gpu_layers >= 0 else 999)
    assert tuple(p.tensor_split[: len(launch.tensor_split)]) == launch.tensor_split
    assert (p.fit_params, p.cache_ram_mib, p.verbosity) == (False, 0, 4)
    mode = p.load_mode.name.removeprefix("LLAMA_LOAD_MODE_")
    wanted = {"mmap+mlock": "MMAP_MLOCK", "dio": "DIRECT_IO"}.get(launch.load_mode)
    assert mode == (wanted or launch.load_mode.upper())


def test_what_would_be_run_can_be_pasted() -> None:
    pretend = Pretend(SERVER)
    would = pretend.start("my model.gguf", Launch.parse(["-c", "512"]))
    assert shlex.split(str(would)) == list(would.argv)
    assert would.argv[:3] == ("/x/llama-server", "-m", "my model.gguf")
    assert pretend.tool(["llama-bench", "-o", "jsonl"]) == WouldRun(("llama-bench", "-o", "jsonl"))
    assert [json.loads(line)[0] for line in pretend.as_json().splitlines()] == [
        "/x/llama-server",
        "llama-bench",
    ]
    embedded = Pretend(Engine("embedded")).start("m.gguf", Launch.parse([]))
    assert embedded.argv[1:3] == ("-m", "kvwise.engine.embedded")
    with pytest.raises(UsageError):
        pretend.start("m.gguf", Launch(type_k="i32"))
