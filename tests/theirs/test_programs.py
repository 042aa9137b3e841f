"""Command lines of all programs, and files of all kinds, as llama-server's flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from export_settings import settings
from kvwise.errors import KvwiseError, SourceError, UsageError
from kvwise.export import names, target
from kvwise.launch import Launch
from kvwise.options import read
from kvwise.theirs import kind_of, of_file, of_text
from kvwise.theirs.repair import repair


def launch(line: str) -> Launch:
    found = of_text(line).found
    return read(found.words, tool=found.tool, environ=found.environ).launch


def test_llama_cpps_own_tools() -> None:
    assert launch("sudo nice -n 5 ./llama-server -m a.gguf -c 4096").n_ctx == 4096
    assert launch("llama-cli -m a.gguf -c 2048").tool == "llama-cli"
    assert launch("llama-bench -m a.gguf -p 512 -n 0 -ctk q8_0").type_k == "q8_0"
    assert launch("taskset -c 0-7 numactl --interleave=all llama-server -m x -c 1").model == "x"
    assert launch("-m a.gguf -c 512").n_ctx == 512


def test_koboldcpp_allocates_128_more() -> None:
    line = (
        "python koboldcpp.py a.gguf --contextsize 8192 --gpulayers 30 --usecublas normal 0 lowvram"
    )
    got = launch(line + " --blasbatchsize 1024 --quantkv 2 --flashattention")
    assert (got.model, got.n_ctx, got.n_gpu_layers) == ("a.gguf", 8448, 30)
    assert (got.n_batch, got.n_ubatch) == (1024, 1024)
    assert (got.type_k, got.type_v, got.offload_kqv) == ("q4_0", "q4_0", False)
    bare = launch("koboldcpp-linux-x64 --model a.gguf")
    assert (bare.n_ctx, bare.n_ubatch, bare.load_mode) == (16640, 512, "none")
    with pytest.raises(SourceError, match=r"stand in my\.kcpps"):
        of_text("koboldcpp --config my.kcpps")


def test_ollama_says_all_in_variables() -> None:
    line = ("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 OLLAMA_FLASH_ATTENTION=1 "
            "OLLAMA_KV_CACHE_TYPE=q8_0 ollama run qwen3:8b")  # fmt: skip
    got = launch(line)
    assert (got.model, got.n_ctx, got.n_seq_max) == ("ollama:qwen3:8b", 16384, 2)
    assert (got.type_k, got.flash_attn, got.n_ubatch) == ("q8_0", "on", 512)
    assert of_text("ollama run x").found.unread  # the context is Ollama's own choice


def test_ollamas_runner_has_flags() -> None:
    got = launch("ollama runner --ollama-engine --model /blobs/sha256-0 --ctx-size 8192 "
                 "--batch-size 512 --n-gpu-layers 25 --no-mmap --parallel 2 --port 1")  # fmt: skip
    assert (got.model, got.n_ctx, got.n_seq_max, got.n_ubatch) == ("/blobs/sha256-0", 8192, 2, 512)


def test_variables_in_what_changes_no_byte_do_not_matter() -> None:
    made = repair(["--port", "$PORT", "-c", "1024"], "llama-server", Launch().build)
    assert made.words == ("-c", "1024")
    assert [str(note) for note in made.notes] == ["left out: --port $PORT"]


def test_docker_maps_its_folders() -> None:
    line = ("docker run --rm -it -v /srv/models:/models:ro --gpus all -p 8080:8080 "
            "-e LLAMA_ARG_CTX_SIZE=4096 --mount type=bind,source=/data,target=/d "
            "llama.cpp:server-cuda -m /models/x/a.gguf --mmproj /d/p.gguf")  # fmt: skip
    found = of_text(line).found
    got = launch(line)
    assert (got.model, got.mmproj, got.n_ctx) == ("/srv/models/x/a.gguf", "/data/p.gguf", 4096)
    assert found.model_there == "/models/x/a.gguf"
    assert found.wrapper[-1] == "llama.cpp:server-cuda"
    full = launch("docker run -v /m:/m img:full --server -m /m/a.gguf -c 1024")
    assert full.n_ctx == 1024


def test_python_server() -> None:
    got = launch(
        "python3 -m llama_cpp.server --model a.gguf --n_ctx 4096 --n_gpu_layers -1 --type_k 8"
    )
    assert (got.model, got.n_ctx, got.type_k, got.n_gpu_layers) == ("a.gguf", 4096, "q8_0", -2)


@pytest.mark.parametrize("line", ["", "ls -la", "echo llama-server -m x", "python train.py", "git"])
def test_other_programs_are_not_guessed_at(line: str) -> None:
    with pytest.raises(UsageError, match="starts no program"):
        of_text(line)


def test_old_flags_are_brought_up_to_date() -> None:
    words = ["-fa", "--draft-max", "8", "--ctx_size=4096", "-ngl", "9", "--no-such", "7", "-c"]
    made = repair(words, "llama-server", Launch().build)
    got = read(made.words).launch
    assert (got.flash_attn, got.draft_n_max, got.n_ctx, got.n_gpu_layers) == ("on", 8, 4096, 9)
    said = [str(note) for note in made.notes]
    assert any("--draft-max is --spec-draft-n-max now" in note for note in said)
    assert any("no option --no-such" in note for note in said)
    assert any("-c needs a value" in note for note in said)


OLD_WORDS = ("-c", "-fa", "--draft-max", "-ngl=9", "--ctx-size=1", "-ctk", "on", "8")


@hypothesis_settings(deadline=None)
@given(words=st.lists(st.one_of(st.text(max_size=8), st.sampled_from(OLD_WORDS)), max_size=8))
def test_whatever_is_repaired_is_known(words: list[str]) -> None:
    made = repair(words, "llama-server", Launch().build)
    try:
        read(made.words)
    except UsageError as error:  # a value of a known flag, never the flag
        assert ":" in str(error) or "twice" in str(error) or "-np" in str(error)


ODD = ("[", "{}", "null", "- ", "\n", ": ", '"', "&a", "*a", "!!int x", "\t", "-1", "1e999")
READERS = [name for name in names() if hasattr(target(name), "read")]


@pytest.mark.parametrize("name", READERS)
def test_a_file_is_known_by_what_is_in_it(name: str) -> None:
    file = "Modelfile" if name == "ollama" else target(name).FILE
    text = target(name).write(settings("/srv/a.gguf", "-c", "8192", "-np", "1"), None).text
    assert kind_of(file, text) == name
    given_ = of_file(file, text)
    assert given_.kind == name
    assert read(given_.found.words).launch.n_ctx == 8192


@pytest.mark.parametrize("name", READERS)
@hypothesis_settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_readers_take_any_text_or_refuse_it(name: str, data: st.DataObject) -> None:
    """Whole files with pieces cut out, doubled or replaced."""
    text = target(name).write(settings("/srv/a.gguf", "-c", "8192"), None).text
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    piece = data.draw(st.one_of(st.text(max_size=6), st.sampled_from(ODD)))
    try:
        for each in target(name).read(text[:begin] + piece + text[end:]):
            repair(each.words, each.tool, Launch().build)
    except KvwiseError as error:
        assert str(error)


@pytest.mark.parametrize("name", ["llama-swap", "docker-compose", "localai",
                                  "text-generation-webui"])  # fmt: skip
def test_aliases_do_not_fill_the_memory(name: str) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 12)]
    with pytest.raises(SourceError, match="nested too deeply"):
        target(name).read("\n".join([*rows, "models: {m: {cmd: x}}", "services: {}"]))
    deep = "a: " + "[" * 5000 + "]" * 5000
    with pytest.raises(SourceError):
        target(name).read(deep)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ollama", 'FROM x\nSYSTEM """\n' + "x\n" * 500_000),
        ("systemd", "[Service]\nExecStart=" + "x" * 1_000_000),
        ("systemd", "[Service]\nExecStart=/bin/a \\\n" + "b \\\n" * 200_000),
        ("llama-server", "[a]\n" + "c = 1\n" * 200_000 + "x"),
        ("koboldcpp", "[" * 1_000_000),
    ],
)
def test_large_files_end_soon(name: str, text: str) -> None:
    with pytest.raises(SourceError):
        target(name).read(text)


def test_files_with_several_models_want_a_name() -> None:
    text = "[a]\nmodel = /a.gguf\nc = 1024\n[b]\nmodel = /b.gguf\nc = 2048\n"
    with pytest.raises(UsageError) as caught:
        of_file("x.ini", text)
    assert "a, b" in str(caught.value.hint)
    assert of_file("x.ini", text, "b").found.words[-1] == "2048"
    with pytest.raises(UsageError):
        of_file("x.ini", text, "c")
    with pytest.raises(SourceError, match="no settings file that is known"):
        of_file("x.txt", "hello\n")


def test_a_share_of_layers_is_kept_as_a_share() -> None:
    text = target("lm-studio").write(settings("/a.gguf", "-ngl", "20"), None).text
    assert of_file("a.gguf.json", text).found.share == round(20 / 37, 4)
