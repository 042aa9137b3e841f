"""The options table: whole, consistent, and true to llama.cpp b10605."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from kvwise.errors import UsageError
from kvwise.launch import TOOLS, Launch
from kvwise.options import (
    OPTIONS,
    asked,
    change,
    read,
    spellings,
    split_argv,
    to_argv,
    uncounted,
)
from kvwise.options.kinds import ALL_LAYERS

SERVER, CLI, BENCH = TOOLS


def _split(text: str) -> list[str]:
    return text.split()


def _error(argv: list[str], tool: str = SERVER, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read(argv, tool=tool, environ=environ)
    return f"{caught.value} ({caught.value.hint})"


# --- the table ------------------------------------------------------------


def test_sizes_of_the_table() -> None:
    """As many flags as the tools' own --help prints (407 and 341), and kvwise's own six."""
    ours = {flag for option in OPTIONS if option.ours for flag in option.flags}
    assert len(ours) == 6
    for tool, flags in ((SERVER, 407), (CLI, 341)):
        known = {flag for flag, option in spellings(tool).items() if option.lacking < 10605}
        assert len(known - ours) == flags


@pytest.mark.parametrize("tool", TOOLS)
def test_no_flag_belongs_to_two_rows(tool: str) -> None:
    counted = Counter(flag for option in OPTIONS for flag in option.spellings(tool))
    assert [flag for flag, times in counted.items() if times > 1] == []


def test_no_variable_belongs_to_two_rows() -> None:
    counted = Counter(option.env for option in OPTIONS if option.env)
    assert [name for name, times in counted.items() if times > 1] == []


def test_flags_look_like_flags() -> None:
    for option in OPTIONS:
        for flag in (*option.flags, *option.negative, *option.bench):
            assert re.fullmatch(r"-[A-Za-z][A-Za-z-]*|--[a-z0-9][a-z0-9.-]+", flag), flag


def test_every_field_exists() -> None:
    known = set(Launch.__dataclass_fields__)
    for option in OPTIONS:
        names = {option.field, *(name for name, _ in (*option.on, *option.off))} - {""}
        assert {name for name in names if not name.startswith("_")} <= known, option.name


def test_every_setting_has_words() -> None:
    for option in OPTIONS:
        if not option.passed_on and not option.deprecated:
            assert option.removed or option.help, option.name
            assert option.memory or option.name in ("--tool", "--engine-build"), option.name


def test_rows_of_our_own_take_no_short_flag() -> None:
    for option in OPTIONS:
        if option.ours:
            assert all(flag.startswith("--") for flag in option.flags)


# --- what llama.cpp makes of them ------------------------------------------------------------


def test_the_server_has_four_slots_in_one_cache_unless_told() -> None:
    launch = Launch.parse([])
    assert (launch.n_seq_max, launch.kv_unified, launch.n_outputs_max) == (4, True, 4)
    launch = Launch.parse(["-np", "2"])
    assert (launch.n_seq_max, launch.kv_unified, launch.n_outputs_max) == (2, False, 2)
    launch = Launch.parse(["-np", "2", "-kvu"])
    assert (launch.n_seq_max, launch.kv_unified) == (2, True)
    # auto slots unify whatever -no-kvu says (tools/server/server.cpp)
    assert Launch.parse(["-no-kvu"]).kv_unified


def test_the_cli_runs_one_sequence_through_the_server() -> None:
    launch = Launch.parse([], tool=CLI)
    assert (launch.n_seq_max, launch.kv_unified, launch.n_outputs_max) == (1, False, 1)


def test_bench_has_its_own_defaults() -> None:
    launch = Launch.parse([], tool=BENCH)
    assert (launch.n_ctx, launch.n_batch, launch.n_ubatch) == (512, 2048, 512)
    assert (launch.n_seq_max, launch.n_outputs_max, launch.fit) == (1, 0, False)


@pytest.mark.parametrize(
    ("argv", "n_ctx"),
    [
        ("-p 1024", 1024),
        ("-p 64 -n 32", 64),
        ("-p 0 -n 32 -d 4096", 4128),
        ("-p 64 -n 0 -pg 512,128", 640),
        ("-p 128-1024*2", 1024),
        ("-p 100-300+150", 250),
        ("-p 512 -p 2048,16", 2048),
    ],
)
def test_the_context_of_bench_is_its_largest_test(argv: str, n_ctx: int) -> None:
    assert Launch.parse(argv.split(), tool=BENCH).n_ctx == n_ctx


def test_bench_spells_values_its_own_way() -> None:
    argv = [
        "-ts",
        "3/1",
        "-nkvo",
        "1",
        "-fa",
        "0",
        "-dev",
        "A/B",
        "-ot",
        "a=CPU;b=GPU",
        "-nopo",
        "1",
        "-embd",
        "1",
        "-mmp",
        "0",
        "-ngl",
        "7",
    ]
    launch = Launch.parse(argv, tool=BENCH)
    assert launch.tensor_split == (3.0, 1.0)
    assert not launch.offload_kqv and not launch.op_offload and launch.embeddings
    assert launch.flash_attn == "off"
    assert launch.devices == ("A", "B")
    assert launch.override_tensor == (("a", "CPU"), ("b", "GPU"))
    assert (launch.mmap, launch.n_gpu_layers) == (False, 7)


@pytest.mark.parametrize("argv", ["-ctk f16,q8_0", "-b 512 -b 1024", "-m a.gguf,b.gguf"])
def test_a_launch_of_bench_is_one_combination(argv: str) -> None:
    assert "give one value" in _error(argv.split(), BENCH)


def test_ways_to_say_layers() -> None:
    assert [Launch.parse(["-ngl", each]).n_gpu_layers for each in ("auto", "all", "0", "33")] == [
        -1,
        -2,
        0,
        33,
    ]


def test_experts_on_the_cpu() -> None:
    assert Launch.parse(["-cmoe"]).n_cpu_moe == ALL_LAYERS
    # each mention adds patterns, so the larger one wins
    assert Launch.parse(["-ncmoe", "8", "-ncmoe", "3"]).n_cpu_moe == 8


def test_overrides_add_up_in_order() -> None:
    launch = Launch.parse(["-ot", "x=CPU,y=CUDA0", "--override-tensor", "z=CPU"])
    assert [pattern for pattern, _ in launch.override_tensor] == ["x", "y", "z"]


def test_the_first_matching_pattern_wins() -> None:
    """Experts sent to the CPU before an -ot stay before it; after it they come after it."""
    late = Launch.parse(["-ot", "exps=CUDA0", "-ncmoe", "2"])
    assert late.override_tensor == (("exps", "CUDA0"),)
    early = Launch.parse(["-ncmoe", "2", "-ot", "exps=CUDA0"])
    assert [buffer for _, buffer in early.override_tensor] == ["CPU", "CPU", "CUDA0"]
    pattern = early.override_tensor[1][0]
    assert re.search(pattern, "blk.1.ffn_gate_exps.weight")
    assert not re.search(pattern, "blk.1.ffn_gate.weight")
    everywhere = Launch.parse(["-cmoe", "-ot", "exps=CUDA0"]).override_tensor[0]
    assert re.search(everywhere[0], "blk.77.ffn_up_chexps.weight")
    assert everywhere[1] == "CPU"


def test_embedding_server() -> None:
    launch = Launch.parse(["--embedding", "-b", "4096", "-ub", "1024"])
    assert (launch.n_batch, launch.n_ubatch, launch.n_outputs_max) == (1024, 1024, 1024)
    launch = Launch.parse(["--rerank"])
    assert (launch.embeddings, launch.pooling) == (True, "rank")


def test_speculation_needs_more_outputs_and_snapshots() -> None:
    launch = Launch.parse(["-np", "2", "--spec-type", "draft-mtp", "--spec-draft-n-max", "5"])
    assert (launch.n_outputs_max, launch.n_rs_seq, launch.load_mtp) == (12, 5, True)
    launch = Launch.parse(["-np", "1", "-md", "d.gguf", "--spec-type", "draft-simple"])
    assert (launch.n_outputs_max, launch.n_rs_seq, launch.load_mtp) == (4, 0, False)
    assert Launch.parse(["-np", "1", "-md", "d.gguf"]).n_outputs_max == 1
    assert Launch.parse(["-np", "1", "--spec-default"]).n_outputs_max == 65
    assert (
        Launch.parse(
            ["-np", "1", "--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "9"]
        ).n_outputs_max
        == 10
    )


def test_load_modes_old_and_new() -> None:
    for argv, mode, mmap in (
        (["-lm", "mlock"], "mlock", False),
        (["--mlock"], "mlock", False),
        (["--no-mmap"], "none", False),
        (["--mmap"], "mmap", True),
        (["-dio"], "dio", False),
        (["--no-mmap", "-lm", "mmap+mlock"], "mmap+mlock", True),
        ([], "auto", True),
    ):
        launch = Launch.parse(argv)
        assert (launch.load_mode, launch.mmap) == (mode, mmap), argv


def test_a_deprecated_flag_is_noted() -> None:
    reading = read(["--no-mmap"])
    assert "--load-mode" in str(reading.notes[0])
    assert read(["-c", "4096"]).notes == ()


def test_where_a_model_comes_from() -> None:
    for argv, model in (
        ("-m a.gguf", "a.gguf"),
        ("-hf o/r:Q8_0", "hf:o/r:Q8_0"),
        ("-hf o/r:Q8_0 -hff f.gguf", "hf:o/r:f.gguf"),
        ("-m a.gguf -hf o/r", "hf:o/r"),
        ("-mu https://h/f.gguf -m a.gguf", "https://h/f.gguf"),
        ("-dr gemma3", "docker:gemma3"),
    ):
        assert Launch.parse(argv.split()).model == model


def test_a_preset_sets_what_llama_cpp_sets() -> None:
    launch = Launch.parse(["--gpt-oss-20b-default"])
    assert launch.model == "hf:ggml-org/gpt-oss-20b-GGUF:gpt-oss-20b-mxfp4.gguf"
    assert (launch.n_ctx, launch.n_batch, launch.n_ubatch) == (262144, 32768, 2048)
    assert (launch.n_seq_max, launch.kv_unified) == (2, False)
    assert launch.extra[launch.extra.index("--port") + 1] == "8013"


# --- precedence ------------------------------------------------------------


def test_flags_beat_the_environment_which_beats_defaults() -> None:
    environ = {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_UBATCH": "256", "LLAMA_ARG_THREADS": "3"}
    reading = read(["-c", "8192", "-t", "8"], environ=environ)
    assert (reading.launch.n_ctx, reading.launch.n_ubatch) == (8192, 256)
    assert reading.launch.extra == ("-t", "8")
    assert reading.origins["n_ctx"] == "-c"
    assert reading.origins["n_ubatch"] == "LLAMA_ARG_UBATCH"
    assert "n_batch" not in reading.origins


def test_origins_go_by_field() -> None:
    origins = read(
        ["-m", "a.gguf", "-hf", "o/r"], environ={"LLAMA_ARG_SPEC_DRAFT_MODEL": "d"}
    ).origins
    assert origins == {"model": "-hf", "model_draft": "LLAMA_ARG_SPEC_DRAFT_MODEL"}
    assert read(["-n", "9"], tool=BENCH).origins == {"n_ctx": "-n"}


def test_switches_in_the_environment() -> None:
    assert Launch.parse([], environ={"LLAMA_ARG_KV_OFFLOAD": "0"}).offload_kqv is False
    assert Launch.parse([], environ={"LLAMA_ARG_NO_KV_OFFLOAD": "whatever"}).offload_kqv is False
    assert Launch.parse(["-kvo"], environ={"LLAMA_ARG_KV_OFFLOAD": "0"}).offload_kqv is True
    assert Launch.parse([], environ={"LLAMA_ARG_SWA_FULL": "1"}).swa_full is True
    # a flag without a negative form ignores everything but a yes
    assert Launch.parse([], environ={"LLAMA_ARG_SWA_FULL": "0"}).swa_full is False
    assert "LLAMA_ARG_KV_OFFLOAD" in _error([], environ={"LLAMA_ARG_KV_OFFLOAD": "maybe"})


def test_bench_reads_no_variables_and_no_environment_is_read_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Launch.parse([], tool=BENCH, environ={"LLAMA_ARG_BATCH": "64"}).n_batch == 2048
    monkeypatch.setenv("LLAMA_ARG_BATCH", "64")
    assert Launch.parse([]).n_batch == 2048


def test_secrets_stay_where_they_are() -> None:
    environ = {"HF_TOKEN": "hf_secret", "LLAMA_API_KEY": "sk-secret"}
    assert Launch.parse([], environ=environ) == Launch.parse([])


def test_our_own_words() -> None:
    argv = [
        "--tool",
        "llama-cli",
        "--engine-build",
        "9000",
        "--n-outputs-max",
        "0",
        "--n-rs-seq",
        "2",
        "--mtp-context",
    ]
    launch = Launch.parse(argv)
    assert (launch.tool, launch.build) == (CLI, "b9000")
    assert (launch.n_outputs_max, launch.n_rs_seq, launch.mtp) == (0, 2, True)


# --- mistakes ------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "tool", "says"),
    [
        ("--ctx-sise 4096", SERVER, "did you mean --ctx-size?"),
        ("--draft-max 8", SERVER, "--spec-draft-n-max"),
        ("-kvu", CLI, "llama-server has it"),
        ("-c 4096", BENCH, "-p or -n, and -d"),
        ("-ctk q6_K", SERVER, "q8_0"),
        ("-ctk f32", BENCH, "f16"),
        ("--ctx-size=4096", SERVER, "write --ctx-size 4096"),
        ("-c", SERVER, "needs a value"),
        ("-c -1", SERVER, "-c"),
        ("-c 99999999999", SERVER, "-c"),
        ("-b 0", SERVER, "-b"),
        ("-np 0", SERVER, "0 slots"),
        ("-fa maybe", SERVER, "on, off or auto"),
        ("-sm rows", SERVER, "none, layer, row, tensor"),
        ("-ts 1,x", SERVER, "proportions"),
        ("-ts nan", SERVER, "no number"),
        ("-ot exps", SERVER, "PATTERN=BUFFER"),
        ("-ngl many", SERVER, "auto or all"),
        ("--spec-type draft", SERVER, "draft-simple"),
        ("model.gguf", SERVER, "options start with -"),
        ("-nkvo on", BENCH, "0 nor 1"),
        ("-p 0 -n 0", BENCH, "nothing to run"),
        ("-p 5-9+0", BENCH, "never ends"),
        ("--tool llama-embed", SERVER, "llama-server"),
        ("--engine-build newest", SERVER, "b10605"),
    ],
)
def test_mistakes_are_named(argv: str, tool: str, says: str) -> None:
    assert says in _error(argv.split(), tool)


def test_a_removed_variable_is_named() -> None:
    assert "--spec-draft-n-max" in _error([], environ={"LLAMA_ARG_DRAFT_MAX": "8"})


# --- helpers of a face ------------------------------------------------------------


def test_argv_is_sorted_by_owner() -> None:
    argv = [
        "--gpu",
        "6GiB",
        "-ngl",
        "9",
        "--json",
        "-c",
        "32k",
        "-nkvo",
        "--prompt",
        "p.txt",
        "m.gguf",
        "--",
        "--no-mmap",
    ]
    engine, rest = split_argv(argv, own=("--prompt", "--gpu"))
    assert engine == ["-ngl", "9", "-c", "32k", "-nkvo", "--no-mmap"]
    assert rest == ["--gpu", "6GiB", "--json", "--prompt", "p.txt", "m.gguf"]


def test_values_of_our_own_flags_are_not_taken_for_options() -> None:
    engine, rest = split_argv(["--tool", BENCH, "-nkvo", "1", "-p", "64"])
    assert engine == ["--tool", BENCH, "-nkvo", "1", "-p", "64"]
    assert rest == []


def test_what_nobody_counts_is_named() -> None:
    words = ["--control-vector", "a.gguf", "-t", "4", "--cache-ram", "100", "--no-host"]
    notes = [str(note) for note in uncounted(Launch.parse(words))]
    assert len(notes) == 2
    assert any("--control-vector" in note for note in notes)


def test_values_that_are_only_passed_on() -> None:
    words = ["--lora", "a,b", "-cram", "7", "--lora-scaled", "c:0.5,d:2", "--cache-ram", "9"]
    launch = Launch.parse([*words, "-otd", "x=CPU,y=CPU", "--alias", "-cram"])
    assert asked.adapters(launch) == ("a", "b", "c", "d")
    assert asked.number(launch, "--cache-ram", 1) == 9
    assert asked.number(launch, "-ctxcp", 32) == 32
    assert asked.draft_overrides(launch) == (("x", "CPU"), ("y", "CPU"))
    assert asked.has(Launch.parse(["--no-mmproj-offload"]), "--no-mmproj-offload")
    assert not asked.has(launch, "--no-mmproj-offload")


# --- builds -----------------------------------------------------------------------------


def test_an_old_build_has_old_words() -> None:
    launch = Launch.parse(["--draft-max", "8", "--no-mmap"], build="b8763")
    assert (launch.draft_n_max, launch.load_mode) == (8, "none")
    assert launch.to_argv() == ["--draft-max", "8", "--no-mmap"]
    assert replace(launch, build="b10605").to_argv() == [
        "--spec-draft-n-max",
        "8",
        "-lm",
        "none",
    ]


def test_an_old_build_lacks_new_words() -> None:
    with pytest.raises(UsageError, match="b7152 has no --fit"):
        read(["--fit", "off"], build="b7152")
    assert Launch.parse([], build="b7152").fit is False
    assert Launch.parse(["--tool", BENCH, "--engine-build", "9000", "-mmp", "0"]).to_argv() == [
        "-mmp",
        "0",
    ]


def test_a_word_that_may_be_too_new_is_noted() -> None:
    assert "b10605" in str(read(["-lm", "none"], build="b10000").notes[0])
    assert read(["-lm", "none"], build="b11549").notes == ()


def test_b11549_has_words_of_its_own() -> None:
    with pytest.raises(UsageError, match="b10605 has no -ncffn"):
        read(["-ncffn", "2"])
    launch = Launch.parse(["-ncffn", "2"], build="b11549")
    assert launch.override_tensor == (
        (r"blk\.0\.ffn_(up|down|gate)\.", "CPU"),
        (r"blk\.1\.ffn_(up|down|gate)\.", "CPU"),
    )
    slots = ["-np", "3", "--kv-unified-per-slot", "2000"]
    assert Launch.parse(slots, build="b11549").n_ctx == 6000
    assert Launch.parse([*slots, "-c", "0"], build="b11549").n_ctx == 0
    with pytest.raises(UsageError, match="removed") as caught:
        read(["--no-mmap"], build="b11549")
    assert str(caught.value.hint) == "use --load-mode mmap or none"
    assert Launch.parse(["--no-mmap"], build="b11000").load_mode == "none"


def test_a_variable_that_the_build_does_not_read_changes_nothing() -> None:
    reading = read([], environ={"LLAMA_ARG_MMAP": "0"}, build="b11549")
    assert reading.launch == Launch.parse([], build="b11549")
    assert str(reading.notes[0]) == "llama.cpp b11549 does not read LLAMA_ARG_MMAP"
    assert read([], environ={"LLAMA_ARG_N_CPU_FFN": "2"}).launch.override_tensor == ()


@pytest.mark.parametrize("tool", [SERVER, CLI])
def test_a_changed_launch_for_embeddings_is_what_its_command_line_gives(tool: str) -> None:
    """The server lowers the batch to the micro-batch (tools/server/server.cpp)."""
    start = read([], tool=tool).launch
    for n_ubatch in (128, 512, 4096):
        launch = change(start, embeddings=True, n_ubatch=n_ubatch, n_batch=max(2048, n_ubatch))
        assert launch.n_batch == launch.n_outputs_max == n_ubatch
        if tool == SERVER:  # llama-cli has no flag for it
            assert read(to_argv(launch), tool=tool).launch == launch


def test_a_remote_server_is_named_before_what_names_its_devices() -> None:
    """llama.cpp looks -dev and -ot up as it reads them."""
    line = ["-dev", "RPC0", "-ot", "ffn_up=RPC0[1.2.3.4:5]", "-t", "8", "--rpc", "1.2.3.4:5"]
    launch = read(line).launch
    words = to_argv(launch)
    assert words.index("--rpc") < min(words.index("-dev"), words.index("-ot"))
    assert words[words.index("--rpc") + 1] == "1.2.3.4:5"
    assert read(words).launch == replace(launch, extra=read(words).launch.extra)
    assert sorted(read(words).launch.extra) == sorted(launch.extra)
