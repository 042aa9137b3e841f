"""All targets: nothing is dropped in silence, what is there stays, and the same again changes
nothing."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from export_settings import LAUNCHES, LINES, NASTY, settings, tensors_in_one
from kvwise.errors import KvwiseError, UsageError
from kvwise.export import Written, names, target
from kvwise.export.settings import fields_of, plain_name
from kvwise.launch import Launch
from kvwise.options import read
from kvwise.options.table import find

ALL = {name: target(name) for name in names() if not hasattr(target(name), "SCRIPT")}
READERS = {name: each for name, each in ALL.items() if hasattr(each, "read")}
NOT_SAID = {"model", "build", "tool", "n_outputs_max", "extra", "mmap"}


def test_the_targets_are_the_files_of_the_folder() -> None:
    assert {"bash", "powershell", "cmd", "llama-server", "llama-swap", "ollama", "ollama-env",
            "lm-studio", "text-generation-webui", "text-generation-webui-hook", "koboldcpp",
            "llama-cpp-python", "localai", "docker-compose", "systemd"} <= set(names())  # fmt: skip
    for each in map(target, names()):
        assert each.ABOUT
        assert each.FILE
        assert "{" not in each.PLACE.format(file="f", name="n", model="m")


def test_an_unknown_target_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        target("lamaswap")
    assert "llama-swap" in str(caught.value.hint)
    for hidden in ("files", "settings", "_yaml", "found", "../x"):
        with pytest.raises(UsageError):
            target(hidden)


def test_a_broken_target_is_not_taken_for_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kvwise.export.bash", None)
    with pytest.raises(ImportError):
        target("bash")


def left_fields(written: Written) -> set[str]:
    """Launch fields that a target says it left out."""
    found: set[str] = set()
    for each in written.left_out:
        found |= fields_of(find(each.words[0], "llama-server"))
        assert str(each.why)
    return found


@pytest.mark.parametrize("name", READERS)
@hypothesis_settings(deadline=None, max_examples=40)
@given(launch=LAUNCHES)
def test_what_is_not_left_out_is_read_back(name: str, launch: Launch) -> None:
    """`read` is checked by others' parsers elsewhere; here it shows that nothing went missing."""
    asked = settings(launch)
    written = ALL[name].write(asked, None)
    found = READERS[name].read(written.text)
    assert len(found) == 1
    back = read(found[0].words, environ=found[0].environ).launch
    if name == "llama-server":  # where options have no order
        back, launch = tensors_in_one(back), tensors_in_one(launch)
    left = left_fields(written)
    for field in launch.as_dict():
        wanted, got = getattr(launch, field), getattr(back, field)
        if field in NOT_SAID or field in left or wanted == got:
            continue
        assert (field, got) in said_otherwise(name, launch, back), (field, wanted, got)


def said_otherwise(name: str, launch: Launch, back: Launch) -> list[tuple[str, object]]:
    """What targets say in their own way: resolved values instead of 0, -1 or auto."""
    asked = settings(launch)
    flash = "on" if asked.flash else "off"
    same = [("n_ctx", asked.n_ctx), ("n_gpu_layers", asked.gpu_layers), ("flash_attn", flash),
            ("kv_unified", launch.n_seq_max > 1 and launch.kv_unified)]  # fmt: skip
    if launch.n_gpu_layers < 0:
        same += [("n_gpu_layers", -2), ("n_gpu_layers", -1), ("fit", back.fit)]
    if 1 in (launch.n_seq_max, back.n_seq_max):
        same.append(("kv_unified", back.kv_unified))
    if asked.gpu_layers == asked.layers:
        same.append(("n_gpu_layers", -2))
    if name in ("koboldcpp", "ollama"):  # one batch for both, named among what is left out
        same += [("n_batch", back.n_ubatch), ("n_ubatch", back.n_ubatch)]
    if name == "koboldcpp":
        same.append(("n_ctx", max(512, -(-(min(asked.n_ctx - 128, 262144) + 128) // 256) * 256)))
        same.append(("fit", back.fit))
        same.append(("n_cpu_moe", min(launch.n_cpu_moe, 999)))
    if name == "ollama":
        automatic = launch.n_seq_max == 4 and launch.kv_unified
        same.append(("n_ctx", asked.n_ctx // (1 if automatic else launch.n_seq_max)))
        same.append(("n_seq_max", 1 if automatic else back.n_seq_max))
        same.append(("fit", back.fit))
    if name in ("llama-cpp-python", "text-generation-webui", "lm-studio", "localai"):
        same.append(("fit", back.fit))
    if name == "lm-studio":
        same.append(("n_gpu_layers", -1))  # a share, in `Found.share`
    if launch.load_mode in (
        "dio",
        "none",
        "mlock",
        "mmap",
        "auto",
    ):  # mmap yes or no, lock yes or no
        same.append(("load_mode", back.load_mode))
    return same


@pytest.mark.parametrize("name", ALL)
@hypothesis_settings(deadline=None, max_examples=20)
@given(launch=LAUNCHES)
def test_the_same_again_changes_nothing(name: str, launch: Launch) -> None:
    asked = settings(launch)
    once = ALL[name].write(asked, None)
    assert ALL[name].write(asked, once.text) == once


@pytest.mark.parametrize("name", ALL)
@hypothesis_settings(deadline=None, max_examples=25)
@given(path=LINES)
def test_any_path_is_written_or_refused(name: str, path: str) -> None:
    each: ModuleType = ALL[name]
    try:
        written = each.write(settings(path, "-c", "4096"), None)
    except UsageError:
        return
    if name in READERS and name not in ("lm-studio", "text-generation-webui"):
        model = read(READERS[name].read(written.text)[0].words).launch.model
        assert model.rpartition("/")[2] == path.rpartition("/")[2]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("path", NASTY)
def test_nasty_paths_are_written_or_refused_with_a_sentence(name: str, path: str) -> None:
    try:
        ALL[name].write(settings(path, "-c", "4096"), None)
    except UsageError as error:
        assert "{" not in str(error) or "${" in str(error)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("old", ["\0\0", "][", "{", "- a\n- b\n", "[x\n", "'", "a: b: c", "<html>"])
def test_a_file_of_another_kind_is_refused_or_kept(name: str, old: str) -> None:
    try:
        written = ALL[name].write(settings("/a.gguf", "-c", "4096"), old)
    except KvwiseError as error:
        assert str(error)
        return
    assert old.strip() in written.text


SEVERAL = ("docker-compose", "llama-cpp-python", "llama-server", "llama-swap",
           "text-generation-webui")  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_two_models_live_in_one_file(name: str) -> None:
    """Where a file holds several models, the second leaves the first alone."""
    first = ALL[name].write(settings("/a.gguf", "-c", "4096", name="a"), None).text
    both = ALL[name].write(settings("/b.gguf", "-c", "8192", name="b"), first).text
    found = READERS[name].read(both)
    contexts = [read(each.words).launch.n_ctx for each in found]
    assert contexts == [4096, 8192]
    again = ALL[name].write(settings("/a.gguf", "-c", "2048", name="a"), both).text
    assert [read(each.words).launch.n_ctx for each in READERS[name].read(again)] == [2048, 8192]


def test_names_are_plain() -> None:
    assert plain_name("Qwen3 8B (Q4_K_M)") == "qwen3-8b-q4_k_m"
    assert plain_name("模型 1") == "模型-1"
    assert plain_name("][:;#") == "model"


@pytest.mark.parametrize("name", ["docker-compose", "llama-swap", "localai"])
@pytest.mark.parametrize("old", [None, "a: 1\n"])
def test_without_the_yaml_package_it_says_what_to_install(
    name: str, old: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.split(".")[0] == "ruamel"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ruamel", None)
    with pytest.raises(KvwiseError) as caught:
        ALL[name].write(settings(Launch(model="m.gguf")), old)
    assert "kvwise[export]" in str(caught.value.hint)


ODD_ENDS = "# page one\f page two\u2028 line\x1c end\x85 of it\rand on\n"


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("llama-server", "[x]\n"),
        ("ollama", "FROM x\n"),
        ("ollama-env", "A=1\n"),
        ("systemd", "[Service]\n"),
    ],
)
def test_what_is_no_line_end_there_stays_as_it_is(name: str, head: str) -> None:
    written = ALL[name].write(settings(Launch(model="m.gguf")), head + ODD_ENDS)
    assert ODD_ENDS in written.text
