"""The real engine under `kvwise run`: it steps down for real, serves, and leaves nothing behind.

The embedded engine runs on any machine. A llama-server that loads onto a virtual device needs
llama.cpp's own tools (oracle.tools), one with Vulkan needs KVWISE_TEST_VULKAN (its path) and a
Vulkan driver; a software one will do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from guard.running import Running, free_port, gone
from guard.test_same_plan import settings
from kvwise.cli._main import run as kvwise_main
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.units import GIB, MIB
from models import smollm2
from oracle.tools import MARKS, folder

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]
LOAD_S = 180.0
EMBEDDED = ("--engine", "embedded")
TOKENS = 131_072
KIB_LIMIT = 2_900_000
"""Less than the cache of that many tokens takes in f16 alone (2,949,120 KiB), so it is the cache
that is refused on any machine; in q8_0 (1,566,720 KiB) all else has 1.3 GiB of address space."""


def quick() -> tuple[str, ...]:
    """Flags that load fast, and a port that no other test takes."""
    return ("-np", "1", "-t", "1", "--no-warmup", "--port", str(free_port()))


def ask(url: str, prompt: str, n_predict: int, key: str = "") -> dict[str, object]:
    body = json.dumps({"prompt": prompt, "n_predict": n_predict, "temperature": 0}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + "/completion", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=LOAD_S) as answer:
        return dict(json.load(answer))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS as Linux enforces it")
def test_a_host_without_enough_memory_gets_smaller_settings() -> None:
    line = ("-m", str(smollm2()), "-c", str(TOKENS), "-fit", "off", *quick())
    with Running(*EMBEDDED, *line, before=f"ulimit -v {KIB_LIMIT}") as running:
        ready = running.until("ready", LOAD_S)
        assert ask(ready["url"], "Once", 2)["tokens_predicted"] == 2
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    (failed,), (step,) = running.named("failed"), running.named("step")
    assert failed["cause"] == "kv-alloc-oom"
    assert failed["asked_bytes"] == 30 * 2 * 3 * 64 * 2 * TOKENS  # layers, K V, heads, width, f16
    assert step["changes"] == {"-ctk": ["f16", "q8_0"], "-ctv": ["f16", "q8_0"]}
    assert step["frees_bytes"] == failed["asked_bytes"] * 15 // 32  # q8_0 is 17/32 of f16
    assert gone(ready["pid"])


def test_from_a_model_to_a_server_with_one_command() -> None:
    with Running(*EMBEDDED, str(smollm2()), "--api-key", "k", *quick()) as running:
        ready = running.until("ready", LOAD_S)
        assert ready["launch"]["n_ctx"] == 8192  # all that the model was trained for
        assert ask(ready["url"], "The", 2, "k")["tokens_predicted"] == 2
        refused = ask_refused(ready["url"])
        assert refused == 401
        os.kill(ready["pid"], signal.SIGKILL)
        assert running.wait() == 137
    assert running.named("died")[0]["cause"] == "killed"


def ask_refused(url: str) -> int:
    try:
        ask(url, "The", 1, "wrong")
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def test_an_answer_that_is_cut_off_and_a_prompt_too_long_are_told() -> None:
    with Running(*EMBEDDED, "-m", str(smollm2()), "-c", "256", *quick()) as running:
        ready = running.until("ready", LOAD_S)
        assert ask(ready["url"], "word " * 250, 40)["truncated"]
        with pytest.raises(urllib.error.HTTPError):
            ask(ready["url"], "word " * 400, 1)
        kinds = {running.until("request", 30)["kind"], running.until("request", 30)["kind"]}
        running.send(signal.SIGINT)
        assert running.wait() == 0
    assert kinds == {"truncated", "refused"}


def test_no_orphan_of_the_real_engine_when_kvwise_is_killed_while_it_serves() -> None:
    with Running(*EMBEDDED, "-m", str(smollm2()), "-c", "512", *quick()) as running:
        ready = running.until("ready", LOAD_S)
        running.process.kill()
        assert gone(ready["pid"])


def test_a_missing_model_is_told_at_once(tmp_path: Path) -> None:
    with Running(*EMBEDDED, "-m", str(tmp_path / "none.gguf")) as running:
        assert running.wait() == 1
    assert not running.named("start")


def used(plan: dict[str, Any]) -> list[str]:
    """The buffers on GPUs of a plan's choice."""
    return [each["buffer"] for each in plan["choice"]["ledger"]["buffers"] if not each["host"]]


class TestVirtual:
    """A real llama-server on a GPU that is not here and has a limit for one block."""

    pytestmark = MARKS

    def run(self, block: int, *words: str) -> tuple[Running, VirtualDevices]:
        card = VirtualGPU(6 * GIB, 5 * GIB, largest_block_bytes=block)
        with VirtualDevices([card], (5,)) as server:
            line = (*words, "--rpc", server.endpoint, "-dev", "RPC0", *quick())
            with Running("--engine", str(folder() / "llama-server"), *line) as running:
                running.until("ready", LOAD_S)
                running.send(signal.SIGTERM)
                assert running.wait() == 0
            return running, server

    def test_a_fragmented_card(self) -> None:
        running, server = self.run(120 * MIB, str(smollm2()))
        assert [event["cause"] for event in running.named("failed")] == ["kv-alloc-oom"]
        (step,) = running.named("step")
        assert step["knobs"] == ["types"]  # the plan's first rung that makes the cache smaller
        granted = [one.size for one in server.allocations if one.granted]
        refused = [one.size for one in server.allocations if not one.granted]
        assert refused == [180 * MIB]
        assert max(granted) < 120 * MIB

    def test_a_card_that_takes_not_even_the_weights(self) -> None:
        running, server = self.run(60 * MIB, str(smollm2()))
        causes = [event["cause"] for event in running.named("failed")]
        assert causes[0] == "weights-oom"
        changed = {flag for step in running.named("step") for flag in step["changes"]}
        assert "-ngl" in changed  # nothing else makes the weights on a card smaller
        assert len(causes) == len(running.named("step")) <= 6
        assert all(one.size <= 60 * MIB for one in server.allocations if one.granted)

    def test_a_cache_of_fixed_types_gets_shorter_as_the_plan_says(self) -> None:
        types = ("-ctk", "f16", "-ctv", "f16", "-ub", "512")
        running, server = self.run(120 * MIB, str(smollm2()), *types)
        steps = running.named("step")
        assert steps
        assert {flag for step in steps for flag in step["changes"]} == {"-c"}
        assert all(step["knobs"] == ["context"] for step in steps)
        granted = [one.size for one in server.allocations if one.granted]
        assert max(granted) < 120 * MIB
        ready = running.named("ready")[0]["launch"]
        assert 4096 <= ready["n_ctx"] < 8192
        assert (ready["type_k"], ready["n_ubatch"]) == ("f16", 512)

    def test_a_compute_buffer_that_is_refused_takes_a_smaller_micro_batch(self) -> None:
        """Without flash attention it holds all scores: 8,192 cells for each token of -ub."""
        line = ("-m", str(smollm2()), "-c", "8192", "-ngl", "99", "-fit", "off", "-fa", "off",
                "-b", "2048", "-ub", "2048", "--may-change", "ubatch")  # fmt: skip
        running, server = self.run(200 * MIB, *line)
        assert {each["cause"] for each in running.named("failed")} == {"compute-oom"}
        steps = running.named("step")
        assert all(step["knobs"] == ["ubatch"] for step in steps)
        assert running.named("ready")[0]["launch"]["n_ubatch"] < 2048
        assert max(one.size for one in server.allocations if one.granted) < 200 * MIB

    def test_what_llama_cpp_was_to_fit_is_planned_anew(self) -> None:
        running, _ = self.run(120 * MIB, "-m", str(smollm2()))
        steps = running.named("step")
        assert steps[0]["knobs"] == ["reserve"]
        assert running.named("failed")[0]["cause"] == "kv-alloc-oom"

    def test_a_newcomer_with_a_card_of_six_gigabytes(self) -> None:
        """One command from the file to a server; the virtual card computes nothing, but answers."""
        with VirtualDevices([VirtualGPU(6 * GIB, 5 * GIB)], (5,)) as server:
            line = (str(smollm2()), "--rpc", server.endpoint, "-dev", "RPC0", *quick())
            with Running("--engine", str(folder() / "llama-server"), *line) as running:
                ready = running.until("ready", LOAD_S)
                body = json.dumps({"prompt": "Once", "max_tokens": 2}).encode()
                request = urllib.request.Request(
                    ready["openai_url"] + "/completions", data=body,
                    headers={"content-type": "application/json"},
                )  # fmt: skip
                with urllib.request.urlopen(request, timeout=LOAD_S) as answer:
                    assert json.load(answer)["usage"]["completion_tokens"] == 2
                running.send(signal.SIGTERM)
                assert running.wait() == 0
            assert not running.named("step")
            assert ready["settings"].endswith("31 of 31 layers on GPUs")
            assert sum(one.size for one in server.allocations if one.granted) < 5 * GIB

    @pytest.mark.parametrize("cards", [1, 2])
    def test_plan_and_run_see_the_same_cards_behind_rpc(
        self, capsys: pytest.CaptureFixture[str], cards: int
    ) -> None:
        each = VirtualGPU(2 * GIB, 200 * MIB)
        with VirtualDevices([each] * cards, (5,)) as server:
            line = (str(smollm2()), "--rpc", server.endpoint, "--reserve", "0MiB", "--json",
                    "--engine", str(folder() / "llama-server"))  # fmt: skip
            assert kvwise_main(["plan", *line, "--no-simulate"]) == 0
            plan = json.loads(capsys.readouterr().out)
            assert kvwise_main(["run", *line, "--dry-run"]) == 0
            run = json.loads(capsys.readouterr().out)
        assert all(name.startswith("RPC") for name in used(plan))
        assert settings(run["commands"][0]) == settings(plan["commands"]["argv"])
        shown = [settings(rung["argv"]) for rung in plan["ladder"]]
        assert shown
        assert [settings(step["argv"]) for step in run["ladder"]][: len(shown)] == shown

    def test_two_cards_share_a_layer(self) -> None:
        """A pattern names a remote card as the engine does, behind the `--rpc` that it needs."""
        with VirtualDevices([VirtualGPU(130 * MIB, 130 * MIB)] * 2, (5,)) as server:
            wanted = ("--goal", "max-context", "--never-offload", "--min-quality", "lossless")
            line = (str(smollm2()), "--rpc", server.endpoint, *wanted, "-ub", "512",
                    "--reserve", "0", *quick())  # fmt: skip
            with Running("--engine", str(folder() / "llama-server"), *line) as running:
                running.until("ready", LOAD_S)
                running.send(signal.SIGTERM)
                assert running.wait() == 0
            assert not running.named("step")
            argv = running.named("start")[0]["argv"]
            assert argv[argv.index("-ot") + 1].endswith(f"=RPC0[{server.endpoint}]")
            taken = [sum(one.size for one in server.allocations if one.granted and one.device == n)
                     for n in (0, 1)]  # fmt: skip
            assert all(120 * MIB < size <= 130 * MIB for size in taken)

    def test_a_whole_command_keeps_what_was_fixed(self) -> None:
        line = ("-m", str(smollm2()), "-c", "8192", "-ngl", "99", "-fit", "off")
        running, _ = self.run(120 * MIB, *line)
        (step,) = running.named("step")
        assert step["changes"] == {"-ctk": ["f16", "q8_0"], "-ctv": ["f16", "q8_0"]}
        argv = running.named("start")[-1]["argv"]
        assert argv[1:9] == ["-m", str(smollm2()), "-c", "8192", "-ngl", "99", "-fit", "off"]


@pytest.mark.slow
def test_a_vulkan_device_that_refuses() -> None:
    program = os.environ.get("KVWISE_TEST_VULKAN")
    if not program:
        pytest.skip("KVWISE_TEST_VULKAN names no llama-server with Vulkan")
    card = "name=llvmpipe,total=2GiB,free=2GiB,kind=vulkan"
    line = (
        "-m",
        str(smollm2()),
        "-c",
        "65536",
        "-ngl",
        "99",
        "-fit",
        "off",
        "--gpu",
        card,
        *quick(),
    )
    env = {"GGML_VK_VISIBLE_DEVICES": "0"}
    with Running("--engine", program, *line, before="ulimit -v 2700000", env=env) as running:
        running.until("ready", LOAD_S)
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    (failed,) = running.named("failed")
    assert failed["cause"] == "kv-alloc-oom"
    assert failed["buffer"] == "Vulkan0"
    assert running.named("step")[0]["changes"]["-ctk"] == ["f16", "q8_0"]
