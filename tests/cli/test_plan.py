"""`kvwise plan`: the document, the command to paste, and requests that cannot be met."""

from __future__ import annotations

import shlex

from kvwise.options import read

from .conftest import QWEN, ZOO, Kvwise

GPU = ("--gpu", "name=Card,total=8188MiB,free=7600MiB,kind=cuda,reserve=200MiB", "--ram", "32GiB")


def test_the_document_has_the_contracts_shape(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "--prompt-tokens", "3982", "-n", "500", "--json")
    document = done.json
    assert done.code == 0
    assert document["schema"] == "kvwise/plan/1"
    assert (document["goal"], document["prompt_tokens"]) == ("document", 3982)
    for choice in (document["choice"], *document["alternatives"]):
        assert {"launch", "ledger", "speed", "quality", "why"} <= set(choice)
        assert choice["ledger"]["schema"] == "kvwise/ledger/1"
        assert choice["ledger"]["fits"] is True
        assert set(choice["speed"]) >= {"prompt_tokens_per_s", "decode_tokens_per_s", "basis"}
        assert set(choice["quality"]) == {"class", "basis"}
        assert choice["launch"] == choice["ledger"]["launch"]
    launch = document["choice"]["launch"]
    assert document["predict_tokens_max"] == launch["n_ctx_seq"] - 3982 >= 500
    assert all(set(rung) == set(launch) for rung in document["ladder"])
    assert set(document["commands"]) == {"bash", "powershell", "cmd", "argv"}


def test_the_bash_command_asks_llama_cpp_for_the_plan(quick: Kvwise) -> None:
    document = quick("plan", QWEN, *GPU, "--json").json
    argv = shlex.split(document["commands"]["bash"])
    assert argv == document["commands"]["argv"]
    launch = read(argv[1:]).launch
    chosen = document["choice"]["launch"]
    assert (launch.n_ctx, launch.type_k, launch.n_seq_max) == (
        chosen["n_ctx"], chosen["type_k"], chosen["n_seq_max"]
    )  # fmt: skip


def test_flags_of_llama_cpp_are_kept(quick: Kvwise) -> None:
    words = ("plan", QWEN, *GPU, "-ub", "128", "-ctk", "q8_0", "-np", "2", "--json")
    document = quick(*words).json
    for each in [document["choice"]["launch"], *document["ladder"]]:
        assert (each["n_ubatch"], each["type_k"], each["n_seq_max"]) == (128, "q8_0", 2)


def test_flags_of_the_environment_are_kept_too(kvwise: Kvwise) -> None:
    done = kvwise("plan", QWEN, *GPU, "--json", env={"LLAMA_ARG_CTX_SIZE": "5120"})
    assert done.json["choice"]["launch"]["n_ctx"] == 5120


def test_what_cannot_be_met_is_exit_3_with_the_nearest(quick: Kvwise) -> None:
    words = ("plan", QWEN, *GPU, "-c", "3584", "--prompt-tokens", "3982", "-n", "114")
    done = quick(*words, "--json")
    assert done.code == 3
    assert done.json["schema"] == "kvwise/error/1"
    assert done.json["error"]["type"] == "Impossible"
    assert done.json["nearest"]["schema"] == "kvwise/plan/1"
    assert done.json["nearest"]["predict_tokens_max"] >= 114
    text = quick(*words)
    assert text.code == 3
    assert text.err.startswith("error: a prompt of 3,982 tokens does not fit a context of 3,584")
    assert "hint: " in text.err
    assert "llama-server" in text.out


def test_a_refusal_of_llama_cpp_comes_through(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "-fa", "off", "-ctv", "q8_0", "--json")
    assert (done.code, done.json["code"]) == (3, "v_quant_needs_flash_attn")


def test_several_gpus_and_none(quick: Kvwise) -> None:
    model = str(ZOO / "qwen3-32b.json.gz")
    two = quick(
        "plan", model, "--gpu", "RTX 4060", "--gpu", "RTX 3060 12GB", "--ram", "64GiB", "--json"
    )
    assert [each["host"] for each in two.json["choice"]["ledger"]["buffers"]] == [
        False,
        False,
        True,
    ]
    words = ("--cpu-only", "--ram", "16GiB", "--no-simulate")
    none = quick("plan", QWEN, *words, "--json").json
    assert [each["host"] for each in none["choice"]["ledger"]["buffers"]] == [True]
    assert none["choice"]["launch"]["gpu_layers"] == 0


def test_the_text_says_why_and_shows_the_shells(quick: Kvwise) -> None:
    done = quick("plan", QWEN, *GPU, "-v")
    assert "all 37 layers are on Card" in done.out
    for shell in ("bash:", "powershell:", "cmd:"):
        assert shell in done.out
    assert done.out.rstrip().splitlines()[-1].startswith("llama-server -m qwen3-8b.gguf -c ")
