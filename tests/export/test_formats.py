"""What the targets write, read by parsers that are not ours, and merged into files of others."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import compose_spec
import lmstudio
import mslex
import pytest
import yaml
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from lmstudio._kv_config import load_config_to_kv_config_stack

from export_settings import LINES, NASTY, settings
from kvwise.errors import SourceError, UsageError
from kvwise.export import (
    docker_compose,
    koboldcpp,
    llama_cpp_python,
    llama_cpp_python_code,
    llama_swap,
    lm_studio,
    localai,
    ollama,
    ollama_env,
    systemd,
    text_generation_webui,
)
from kvwise.export.settings import Settings, spoken
from kvwise.units import MIB


def argv(asked: Settings) -> list[str]:
    return [word for each in spoken(asked) for word in each.typed]


# -- llama-swap ---------------------------------------------------------------


@hypothesis_settings(deadline=None, max_examples=40)
@given(path=LINES)
def test_llama_swap_splits_its_command_into_every_word(path: str) -> None:
    asked = settings(path, "-c", "8192")
    try:
        text = llama_swap.write(asked, None).text
    except UsageError:
        assert "${" in path or path.endswith("\\")
        return
    command = yaml.safe_load(text)["models"]["m"]["cmd"]
    expected = ["llama-server", "--host", "127.0.0.1", "--port", "${PORT}", *argv(asked)]
    assert shlex.split(command) == expected


def test_llama_swap_quotes_windows_paths_as_windows_reads_them() -> None:
    asked = settings("C:\\My Models\\a b.gguf", "-c", "8192")
    command = yaml.safe_load(llama_swap.write(asked, None).text)["models"]["m"]["cmd"]
    words = mslex.split(command.replace("\n", " "), like_cmd=False)
    assert words[5:] == argv(asked)


SWAP = """\
# my models
healthCheckTimeout: 60   # seconds

models:
  # the small one
  "small":
    cmd: llama-server --port ${PORT} -m /srv/small.gguf
    ttl: 300  # unload
  m:
    cmd: |
      llama-server --port ${PORT}
      -m /srv/old.gguf -c 512
    aliases:
    - gpt-4o   # for editors
    ttl: 60
groups: {a: {members: [m]}}
"""


def test_llama_swap_keeps_everything_else() -> None:
    new = llama_swap.write(settings("/srv/new.gguf", "-c", "8192"), SWAP).text
    for line in SWAP.splitlines():
        if "/srv/old.gguf" not in line and line.strip() != "llama-server --port ${PORT}":
            assert line in new.splitlines(), line
    assert "old.gguf" not in new
    models = yaml.safe_load(new)["models"]
    assert models["m"]["aliases"] == ["gpt-4o"]
    assert models["small"]["ttl"] == 300


def test_llama_swap_says_what_each_device_must_hold() -> None:
    asked = settings("/srv/m.gguf", "-c", "8192")
    sizes = (("CUDA0", 7 * MIB + 1), ("CPU", 3 * MIB))
    old = llama_swap.write(replace(asked, memory=(("CUDA1", MIB),)), SWAP).text
    new = yaml.safe_load(llama_swap.write(replace(asked, memory=sizes), old).text)
    assert new["models"]["m"]["metadata"]["memory_mib"] == {"CUDA0": 8, "CPU": 3}
    assert "metadata" not in new["models"]["small"]


# -- docker compose -----------------------------------------------------------


@hypothesis_settings(deadline=None, max_examples=40)
@given(path=LINES)
def test_compose_files_follow_the_specification(path: str) -> None:
    asked = settings(path, "-c", "8192", "-ot", "a$b=CPU")
    text = docker_compose.write(asked, None).text
    filled = text.replace(docker_compose._IMAGE, "llama:server").replace("$$", "$")
    parsed = compose_spec.PyCompose.from_yaml(filled)
    parsed.validate()
    assert parsed.service_names() == ["m"]
    service = yaml.safe_load(text)["services"]["m"]
    words = [word.replace("$$", "$") for word in service["command"]]
    expected = argv(asked)
    at = expected.index("--model") + 1
    folder, _, name = path.rpartition("/")
    assert words == [*expected[:at], f"/models/{name}", *expected[at + 1 :]]
    assert service["volumes"][0]["source"].replace("$$", "$") == (folder or "/")
    assert all(isinstance(word, str) for word in service["command"])


def test_compose_lets_the_container_fetch_an_address() -> None:
    asked = settings("/a.gguf", "-c", "8192")
    asked = replace(asked, launch=replace(asked.launch, model="hf:owner/repo:Q4_K_M"))
    service = yaml.safe_load(docker_compose.write(asked, None).text)["services"]["m"]
    assert service["command"][:2] == ["--hf-repo", "owner/repo:Q4_K_M"]
    assert "volumes" not in service


COMPOSE = """\
# home server
services:
  m:
    image: my/llama:latest
    environment:
      LLAMA_ARG_CTX_SIZE: "4096"   # old way
      TZ: Europe/Berlin            # stays
    volumes:
      - /srv/old:/models:ro
      - /srv/cache:/cache
    ports: ["8080:8080"]
  web:
    image: open-webui  # the page
"""


def test_compose_keeps_everything_else() -> None:
    new = docker_compose.write(settings("/srv/new/a.gguf", "-c", "8192"), COMPOSE).text
    service = yaml.safe_load(new)["services"]["m"]
    assert service["image"] == "my/llama:latest"
    assert service["environment"] == {"TZ": "Europe/Berlin"}
    assert service["volumes"][1] == "/srv/cache:/cache"
    assert service["volumes"][0]["source"] == "/srv/new"
    for kept in ("# home server", "# stays", "# the page"):
        assert kept in new


# -- systemd ------------------------------------------------------------------


@hypothesis_settings(deadline=None, max_examples=60)
@given(path=LINES)
def test_units_read_back(path: str) -> None:
    asked = settings(path, "-c", "8192", "-ot", "a$b%i=CPU")
    found = systemd.read(systemd.write(asked, None).text)
    assert found[0].words == tuple(argv(asked))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("path", NASTY)
def test_systemd_itself_takes_the_unit(path: str, tmp_path: Path) -> None:
    asked = replace(settings(path, "-c", "8192"), program="/bin/true")
    unit = tmp_path / "llama.service"
    unit.write_text(systemd.write(asked, None).text, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--generators=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "llama.service" in line]
    assert ours == []


UNIT = """\
[Unit]
Description=mine ; not a comment
# after the disks
After=local-fs.target

[Service]
User=llama
ExecStart=/usr/bin/llama-server \\
  -m /srv/old.gguf \\
  # an old habit
  -c 512
Restart=always

[Install]
WantedBy=multi-user.target
"""


def test_units_keep_everything_else() -> None:
    new = systemd.write(settings("/srv/new.gguf", "-c", "8192"), UNIT).text
    kept = [line for line in UNIT.splitlines() if "old" not in line and "-c 512" not in line]
    assert [line for line in kept if line not in new.splitlines()] == [
        "ExecStart=/usr/bin/llama-server \\"
    ]
    assert new.index("User=llama") < new.index("ExecStart=") < new.index("Restart=always")
    assert new.count("ExecStart=") == 1


def test_flags_that_change_no_byte_stay_in_commands() -> None:
    old = "--jinja --temp 0.6 -c 512 -ctk q4_0 --frob 7 --no-mmap"
    asked = settings("/srv/new.gguf", "-c", "8192", "--temp", "0.9")
    swap = f"models:\n  m: {{cmd: 'llama-server --port ${{PORT}} {old}'}}\n"
    compose = f"services:\n  m: {{image: llama, command: {old}}}\n"
    unit = f"[Service]\nExecStart=/bin/llama-server {old}\n"
    for write, text, read in (
        (llama_swap.write, swap, llama_swap.read),
        (docker_compose.write, compose, docker_compose.read),
        (systemd.write, unit, systemd.read),
    ):
        once = write(asked, text).text
        words = read(once)[0].words
        assert words[words.index("--jinja") + 1 :] == ("--frob", "7")
        assert words[words.index("--temp") + 1] == "0.9"
        assert words.count("--temp") == 1
        assert "q4_0" not in words
        assert "--no-mmap" not in words
        assert write(asked, once).text == once


# -- text-generation-webui ----------------------------------------------------

CONFIG_USER = """\
.*(llama).*:   # everything of that family
  instruction_template: Llama-v3
a.gguf$:
  loader: llama.cpp
  n_gpu_layers: 20
  ctx_size: 2048   # by hand
  extra_flags: --jinja
  custom_stopping_strings: '"x"'
"""


def test_text_generation_webui_keeps_everything_else() -> None:
    new = text_generation_webui.write(settings("/m/a.gguf", "-c", "8192"), CONFIG_USER).text
    document = yaml.safe_load(new)
    assert document[".*(llama).*"] == {"instruction_template": "Llama-v3"}
    model = document["a.gguf$"]
    assert (model["ctx_size"], model["gpu_layers"]) == (8192, -1)
    assert "n_gpu_layers" not in model
    assert model["custom_stopping_strings"] == '"x"'
    assert model["extra_flags"].split()[-1] == "--jinja"  # changes no byte: it stays
    assert "# everything of that family" in new
    assert "# by hand" in new


@hypothesis_settings(deadline=None)
@given(name=LINES)
@example(name="a[[b]].gguf")
def test_text_generation_webui_finds_the_file_again(name: str) -> None:
    """Its keys are regular expressions, matched from the start of the lower-cased name."""
    asked = settings(name, "-c", "8192")
    document = yaml.safe_load(text_generation_webui.write(asked, None).text)
    (key,) = document
    assert re.match(key.lower(), asked.file_name.lower())


def test_text_generation_webui_says_the_rest_as_flags() -> None:
    words = ("-c", "8192", "-ctk", "q8_0", "-ctv", "q5_1", "-ncmoe", "7", "--swa-full", "-ngl", "9")
    written = text_generation_webui.write(settings("/m/a b.gguf", *words), None)
    model = yaml.safe_load(written.text)["a b.gguf$"]
    assert model["cache_type"] == "q8_0"
    extra = shlex.split(model["extra_flags"])
    assert extra[:4] == ["--cache-type-k", "q8_0", "--cache-type-v", "q5_1"]
    assert extra[4:] == ["--kv-unified", "--n-cpu-moe", "7", "--swa-full"] or {
        "--n-cpu-moe", "7", "--swa-full"} <= set(extra)  # fmt: skip
    assert written.left_out == ()
    assert written.values["gpu_layers"] == 9


# -- LocalAI ------------------------------------------------------------------


def test_localai_quotes_what_yaml_would_take_for_a_truth() -> None:
    text = localai.write(settings("/m/a.gguf", "-c", "8192", "-fa", "on"), None).text
    document = yaml.safe_load(text)  # YAML 1.1, as stricter readers are
    assert document["flash_attention"] == "on"
    assert document["parameters"]["model"] == "a.gguf"
    assert "fit_params:true" in document["options"]


def test_localai_keeps_other_options() -> None:
    old = "name: x\noptions:\n- cache_ram:-1 # off\n- parallel:9\ntemplate: {chat: y}\n"
    new = localai.write(settings("/m/a.gguf", "-np", "2"), old).text
    document = yaml.safe_load(new)
    assert document["name"] == "x"
    assert document["options"][0] == "cache_ram:-1"
    assert [each for each in document["options"] if "parallel" in each] == ["parallel:2"]
    assert "# off" in new


# -- JSON ---------------------------------------------------------------------


def test_koboldcpp_leaves_its_cells_and_other_keys() -> None:
    old = json.dumps({"port_param": 5002, "usevulkan": [0], "contextsize": 2048})
    text = koboldcpp.write(settings("/m/a.gguf", "-c", "8192", "-ub", "300"), old).text
    document = json.loads(text)
    assert document["contextsize"] == 8192 - 128
    assert document["batchsize"] == 256
    assert (document["port_param"], document["usevulkan"]) == (5002, [0])
    assert "usecuda" not in document
    assert "\n" not in text.strip()  # as it was


def test_koboldcpp_takes_the_smaller_type_and_says_so() -> None:
    asked = settings("/m/a.gguf", "-ctk", "q8_0", "-ctv", "q5_1", "-fa", "on")
    written = koboldcpp.write(asked, None)
    assert json.loads(written.text)["quantkv"] == "q5_1"
    assert ("--cache-type-k", "q8_0") in [each.words for each in written.left_out]


def test_lm_studio_changes_only_its_fields() -> None:
    old = json.dumps({"preset": "p", "operation": {"fields": [{"key": "a", "value": 1}]},
                      "load": {"fields": [{"key": "llm.load.contextLength", "value": 1},
                                          {"key": "llm.load.seed", "value": 7}]}})  # fmt: skip
    document = json.loads(lm_studio.write(settings("/m/a.gguf", "-c", "8192"), old).text)
    fields = {each["key"]: each["value"] for each in document["load"]["fields"]}
    assert fields["llm.load.contextLength"] == 8192
    assert fields["llm.load.seed"] == 7
    assert document["preset"] == "p"
    assert document["operation"]["fields"] == [{"key": "a", "value": 1}]


def test_lm_studio_says_what_a_share_is() -> None:
    written = lm_studio.write(settings("/m/a.gguf", "-ngl", "30", "-ctk", "bf16"), None)
    fields = {each["key"]: each["value"] for each in json.loads(written.text)["load"]["fields"]}
    assert fields["llm.load.llama.acceleration.offloadRatio"] == round(30 / 37, 4)
    assert written.notes
    assert [each.words for each in written.left_out] == [("--cache-type-k", "bf16")]


def test_lm_studios_own_package_writes_the_same() -> None:
    """The SDK of its makers turns a load configuration into the pairs that stand in the file."""
    asked = settings("/m/a.gguf", "-c", "8192", "-ctk", "q8_0", "-ctv", "q5_1", "-fa", "on")
    ours = {each["key"]: each["value"] for each in
            json.loads(lm_studio.write(asked, None).text)["load"]["fields"]}  # fmt: skip
    config = lmstudio.LlmLoadModelConfig(
        context_length=8192,
        flash_attention=True,
        eval_batch_size=2048,
        try_mmap=True,
        keep_model_in_memory=False,
        offload_kv_cache_to_gpu=True,
        llama_k_cache_quantization_type="q8_0",
        llama_v_cache_quantization_type="q5_1",
    )
    stack = load_config_to_kv_config_stack(config, lmstudio.LlmLoadModelConfig).to_dict()
    theirs = {each["key"]: each["value"] for layer in stack["layers"]
              for each in layer["config"]["fields"]}  # fmt: skip
    assert len(theirs) == 8
    assert theirs == {key: ours[key] for key in theirs}


def test_llama_cpp_python_counts_types_as_ggml_does() -> None:
    asked = settings("/m/a.gguf", "-ctk", "q8_0", "-ctv", "iq4_nl", "-np", "4", "-c", "8192")
    written = llama_cpp_python.write(asked, None)
    model = json.loads(written.text)["models"][0]
    assert (model["type_k"], model["type_v"]) == (8, 20)
    assert model["use_mlock"] is False
    assert model["logits_all"] is False
    assert ("--parallel", "4") in [each.words for each in written.left_out]


@hypothesis_settings(deadline=None)
@given(path=LINES)
def test_python_code_is_python(path: str) -> None:
    text = llama_cpp_python_code.write(settings(path, "-c", "8192"), None).text
    call = ast.parse(text).body[1]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    values = {each.arg: ast.literal_eval(each.value) for each in call.value.keywords}
    assert values["model_path"] == path
    assert values["n_ctx"] == 8192


# -- Ollama -------------------------------------------------------------------

MODELFILE = '''\
# mine
FROM ./old.gguf
TEMPLATE """{{ .Prompt }}
PARAMETER num_ctx 1
"""
parameter num_ctx 2048
PARAMETER stop "<|im_end|>"
SYSTEM """
You are "terse".
"""
'''


def test_a_modelfile_keeps_everything_else() -> None:
    asked = settings("/srv/new.gguf", "-c", "8192", "-np", "1", "-ngl", "30")
    new = ollama.write(asked, MODELFILE).text
    for line in MODELFILE.splitlines():
        if line not in ("FROM ./old.gguf", "parameter num_ctx 2048"):
            assert line in new.splitlines(), line
    assert "FROM /srv/new.gguf" in new.splitlines()
    assert new.splitlines().count("PARAMETER num_ctx 8192") == 1
    assert "num_ctx 2048" not in new
    assert ollama.read(new)[0].words[:4] == ("-m", "/srv/new.gguf", "-c", "8192")


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        (("-ctk", "q8_0", "-ctv", "q8_0"), "OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1"),
        (("-ctk", "q8_0"), "LLAMA_ARG_CACHE_TYPE_K=q8_0 LLAMA_ARG_CACHE_TYPE_V=f16"),
        (("-fa", "on"), "OLLAMA_FLASH_ATTENTION=1"),
        ((), None),
    ],
)
def test_a_modelfile_says_what_its_context_rests_on(
    flags: tuple[str, ...], variables: str | None
) -> None:
    """Cache types and flash attention are the service's: without them the plan may not fit."""
    notes = ollama.write(settings("/m/a.gguf", "-c", "8192", "-np", "1", *flags), None).notes
    assert len(notes) == (variables is not None)
    if variables is not None:
        said = str(notes[0])
        assert said.startswith("num_ctx 8,192 was planned with ")
        assert variables in said
        assert "may not fit" in said
        assert "ollama-env" in said


def test_ollama_names_models_of_its_store_and_of_the_hub() -> None:
    asked = settings("/srv/blobs/sha256-0", "-c", "8192", "-np", "1")
    assert ollama.write(replace(asked, source="ollama:qwen3:8b"), None).text.startswith(
        "FROM qwen3:8b\n"
    )
    hub = settings("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M".replace("hf:", "/"), "-c", "1")
    hub = replace(hub, launch=replace(hub.launch, model="hf:Qwen/Qwen3-8B-GGUF:Q4_K_M"))
    assert ollama.write(hub, None).text.startswith("FROM hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M\n")


def test_ollama_variables_are_merged_by_name() -> None:
    old = "# mine\nOLLAMA_HOST=0.0.0.0\nexport OLLAMA_KV_CACHE_TYPE=f16\n"
    old += "LLAMA_ARG_CACHE_TYPE_K=q4_0\n"
    asked = settings("/m/a.gguf", "-c", "8192", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0")
    lines = ollama_env.write(asked, old).text.splitlines()
    assert lines[:2] == ["# mine", "OLLAMA_HOST=0.0.0.0"]
    assert "OLLAMA_KV_CACHE_TYPE=q8_0" in lines
    assert "OLLAMA_CONTEXT_LENGTH=4096" in lines
    assert not any(line.startswith("LLAMA_ARG_CACHE_TYPE") for line in lines)
    mixed = settings("/m/a.gguf", "-np", "1", "-ctk", "q8_0", "-ctv", "q5_1")
    lines = ollama_env.write(mixed, "\n".join(lines)).text.splitlines()
    assert "LLAMA_ARG_CACHE_TYPE_V=q5_1" in lines
    assert not any(line.startswith("OLLAMA_KV_CACHE_TYPE") for line in lines)


def test_what_is_no_such_file_is_named_by_line() -> None:
    with pytest.raises(SourceError, match="line 2 is no NAME=value"):
        ollama_env.write(settings("/m/a.gguf"), "A=1\nnot this\n")
    with pytest.raises(SourceError, match="line 1 is no command"):
        ollama.write(settings("/m/a.gguf"), "FROMAGE x\n")
