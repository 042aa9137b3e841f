"""One interface over the embedded engine (and a llama-server, where KVWISE_TEST_ENGINE names one).

The traps of an engine, and where each is handled and tested:

| trap | handled in | test |
| --- | --- | --- |
| a draft model alone is loaded and not used | settings.check | test_settings: draft |
| a vocabulary that does not fit the draft is not fatal | failures `draft_vocab`, Loaded.speculation | test_speculation_that_is_not_on_is_seen |
| a dead RPC endpoint is not fatal; `offloaded` lies | Server.missing_devices, verify | test_a_dead_rpc_server_is_noticed |
| host "free" is total, cgroups are not seen | verify.run._check_host, Limits.memory_floor_bytes | test_verify: no memory; test_process: runs out |
| a context of 2e9 is killed without a word | settings.MAX_CTX | test_settings: context |
| the embedded engine takes i32 and dies of SIGSEGV | settings.check | test_settings: types; test_an_unchecked_type_is_a_crash_of_the_child_only |
| `/health` 200 of another server | Server._check_owner, port 0 | test_an_address_of_another_process_is_refused, test_a_taken_port |
| no -np means 4 slots, unified; embedded: one, not unified | settings: both said aloud | test_slots_are_as_asked |
| environment LLAMA_ARG_* changes a run | process.clean_environment | test_process; test_slots_are_as_asked |
| memory lines need verbosity 4 | settings.VERBOSITY | test_everything_that_is_measured_is_in_the_log |
| `--fit` changes what was left unset | settings: fit off | same |
| compute grows with -ub; embedding needs b = ub | Launch (options), said aloud | test_embeddings |
| instructions that the processor lacks: SIGILL without text | outcome | test_process: endings |
| the kernel follows oom_score_adj | launcher | test_process: oom score |
| -9 with the log ending at a KV line = out of memory | outcome | test_process: a kill carries |
| every refusal of the embedded engine is the same exception | outcome: first known failure | test_refusals_say_why |
| load errors appear twice with fit on | Collector | test_log: counts once |
| 1 token is generated even for n_predict 0 | Server.complete (documented) | test_complete |
| the end of the context is no error, only `truncated` | Completion.truncated | test_complete |
| predicted too long is 400 | RequestRefused | test_a_prompt_longer_than_the_context |
"""  # noqa: E501

from __future__ import annotations

import http.server
import os
import socket
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kvwise.engine import server as server_module
from kvwise.engine.find import Engine, find
from kvwise.engine.outcome import Ending, EngineEnded
from kvwise.engine.process import Child, Limits
from kvwise.engine.server import RequestRefused, Server, asked_devices, listens
from kvwise.engine.settings import Run
from kvwise.launch import Launch
from models import gemma3, smollm2

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

ENGINES = ["embedded", *filter(None, [os.environ.get("KVWISE_TEST_ENGINE")])]


@pytest.fixture(params=ENGINES, scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "embedded":
        pytest.importorskip("xllamacpp")
    return find(request.param)


def launch(*words: str) -> Launch:
    return Launch.parse(["-c", "512", "-np", "1", *words])


def start(model: Path, asked: Launch, engine: Engine, **run: object) -> Server:
    return Server.start(model, asked, engine=engine, run=Run(threads=1, **run))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[Server]:
    with start(smollm2(), launch(), engine) as running:
        yield running


def test_everything_that_is_measured_is_in_the_log(server: Server) -> None:
    loaded = server.loaded
    assert loaded.main is not None
    assert loaded.model is not None
    assert set(loaded.model.weights) == {"CPU_Mapped"}
    assert loaded.main.caches
    assert loaded.main.compute
    assert loaded.main.output
    assert loaded.main.facts["n_ctx"] == "512"
    assert loaded.main.flash_attn is True
    assert loaded.fit_projection is None
    assert not loaded.devices  # no GPU: whatever the line about offloaded layers says
    assert loaded.speculation == ""


def test_the_address_is_ours(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    assert listens(server.child.pid, port) is True
    with Child([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        assert listens(other.pid, port) is False
    assert server.url.startswith("http://127.0.0.1:")


def test_tokenize(server: Server) -> None:
    assert server.tokenize("Hello world") == [19556, 905]
    assert server.tokenize("") == []
    assert len(server.tokenize("<|im_start|>")) == 1
    assert len(server.tokenize("<|im_start|>", parse_special=False)) > 1


def test_complete(server: Server) -> None:
    first = server.complete("Once upon a time", 6)
    assert first.tokens == 6
    assert first.prompt_tokens == 4
    assert first.text == server.complete("Once upon a time", 6).text
    assert first.prompt_per_s
    assert first.decode_per_s
    assert first.drafted is None
    assert server.complete("Once", 0).tokens == 1
    assert server.complete(server.tokenize("Once upon a time"), 6).text == first.text
    wall = server.complete(list(range(100, 600)), 64)
    assert wall.truncated
    assert wall.tokens < 64


def test_a_prompt_longer_than_the_context(server: Server) -> None:
    with pytest.raises(RequestRefused) as caught:
        server.complete(list(range(100, 700)), 1)
    assert caught.value.code == 400
    assert caught.value.type == "exceed_context_size_error"
    with pytest.raises(RequestRefused) as caught:
        server.complete([10**8], 1)
    assert "invalid tokens" in caught.value.message


def test_what_this_server_does_not_offer_is_refused(server: Server) -> None:
    with pytest.raises(RequestRefused) as caught:
        server.embed(["x"])
    assert caught.value.code == 501
    with pytest.raises(RequestRefused) as caught:
        server.get("/no/such/path")
    assert caught.value.code == 404


def test_props_and_slots(server: Server) -> None:
    props = server.props()
    assert props["total_slots"] == 1
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert [slot["n_ctx"] for slot in server.slots()] == [512]


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["-c", "1024", "-np", "4"], ("256", "false")),
        (["-c", "1024", "-np", "4", "-kvu"], ("1024", "true")),
        (["-c", "1024"], ("1024", "true")),
    ],
)
def test_slots_are_as_asked(
    engine: Engine, words: list[str], facts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "2")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "4096")
    with start(smollm2(), Launch.parse(words), engine, warmup=False) as server:
        main = server.loaded.main
        assert main is not None
        assert (main.facts["n_ctx_seq"], main.facts["kv_unified"]) == facts
        assert len(server.slots()) == 4


def test_embeddings(engine: Engine) -> None:
    asked = launch("--embeddings", "--pooling", "mean", "-b", "512", "-ub", "256")
    with start(smollm2(), asked, engine) as server:
        one, two = server.embed(["a cat sat", "a dog stood"])
        assert len(one) == len(two) == 576
        assert one != two
        assert abs(sum(value * value for value in one) - 1) < 1e-3
        main = server.loaded.main
        assert main is not None
        assert main.facts["n_batch"] == main.facts["n_ubatch"] == "256"


def test_stop_is_clean_and_leaves_the_breakdown_in_the_log(engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    server = Server.start(smollm2(), launch(), engine=engine, run=Run(threads=1), log=log)
    outcome = server.stop()
    assert (outcome.ending, outcome.code, outcome.clean) == (Ending.STOPPED, 0, True)
    assert server.loaded.breakdown
    assert "KV buffer size" in log.read_text()
    assert not psutil.pid_exists(outcome.pid)


def test_an_engine_that_dies_under_a_request_says_how(engine: Engine) -> None:
    with start(smollm2(), launch(), engine) as server:
        psutil.Process(server.child.pid).kill()
        with pytest.raises(EngineEnded) as caught:
            server.complete("x", 1)
        assert caught.value.outcome.ending is Ending.KILLED
        assert caught.value.outcome.ready


REFUSALS = [
    (["-fa", "off", "-ctv", "q8_0"], "v_quant_needs_flash_attn", "requires flash_attn"),
    (["-c", "10000000"], "buffer_alloc", "failed to allocate"),
]


@pytest.mark.parametrize(("words", "code", "said"), REFUSALS)
def test_refusals_say_why(engine: Engine, words: list[str], code: str, said: str) -> None:
    limits = Limits(silence_s=60, address_space_bytes=8 << 30)
    with pytest.raises(EngineEnded) as caught:
        Server.start(smollm2(), launch(*words), engine=engine, limits=limits, run=Run(threads=1))
    outcome = caught.value.outcome
    assert outcome.ending is Ending.REFUSED
    assert code in outcome.failures
    assert said in " ".join(outcome.tail)


BAD_FILES = {
    "missing.gguf": (None, "file_open"),
    "empty.gguf": (b"", "header_cut"),
    "text.gguf": (b"hello, this is no model at all", "not_gguf"),
    "cut.gguf": ("head", "header_cut"),
    "short.gguf": ("most", "data_cut"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_told_apart(engine: Engine, name: str, tmp_path: Path) -> None:
    content, code = BAD_FILES[name]
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        with smollm2().open("rb") as model:
            path.write_bytes(model.read(100_000 if content == "head" else 40_000_000))
    with pytest.raises(EngineEnded) as caught:
        start(path, launch(), engine)
    assert caught.value.outcome.ending is Ending.REFUSED
    assert code in caught.value.outcome.failures


def test_an_unchecked_type_is_a_crash_of_the_child_only(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = find("embedded")
    monkeypatch.setattr("kvwise.engine.settings.check", lambda _launch: None)
    with pytest.raises(EngineEnded) as caught:
        start(smollm2(), replace(launch(), type_k="i32"), engine)
    assert caught.value.outcome.ending is Ending.SEGMENTATION_FAULT


def test_speculation_that_is_not_on_is_seen(engine: Engine) -> None:
    words = ["-md", str(smollm2()), "--spec-type", "draft-simple"]
    with start(gemma3(), launch(*words), engine, warmup=False) as server:
        assert server.loaded.speculation in (None, "")
        assert server.loaded.failure("draft_vocab") is not None
        assert server.slots()[0]["speculative"] is False
        assert server.complete("x", 2).tokens == 2
        assert [model.draft for model in server.loaded.models] == [False, True]


def test_speculation_that_is_on(engine: Engine) -> None:
    words = ["-md", str(smollm2()), "--spec-type", "draft-simple", "--spec-draft-n-max", "4"]
    with start(smollm2(), launch(*words), engine, warmup=False) as server:
        assert server.loaded.speculation == "draft-simple"
        assert server.slots()[0]["speculative"] is True
        drafted = server.complete("1 2 3 4 5 6 7", 16).drafted
        assert drafted is not None
        assert drafted[1] > 0
        assert [context.draft for context in server.loaded.contexts] == [False, True]


def test_devices_that_were_asked_for_and_are_not_used_are_named() -> None:
    asked = Launch.parse(["--rpc", "127.0.0.1:1,127.0.0.1:2", "-dev", "CUDA0,RPC0"])
    assert asked_devices(asked) == ("CUDA0", "RPC0", "127.0.0.1:1", "127.0.0.1:2")
    assert asked_devices(Launch.parse(["-dev", "none"])) == ()


def test_a_dead_rpc_server_is_noticed(engine: Engine) -> None:
    if engine.kind == "embedded":
        pytest.skip("the embedded engine has no RPC backend")
    with start(smollm2(), launch("--rpc", "127.0.0.1:1"), engine, warmup=False) as server:
        assert server.loaded.model is not None
        assert server.loaded.model.offloaded == (31, 31)  # so it says
        assert server.missing_devices() == ("127.0.0.1:1",)
        assert server.loaded.failure("rpc_connect") is not None


def test_a_taken_port(engine: Engine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineEnded) as caught:
            start(smollm2(), launch(), engine, port=port)
    outcome = caught.value.outcome
    assert (outcome.ending, outcome.port) == (Ending.PORT_TAKEN, port)


class _Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')

    def log_message(self, *args: object) -> None:
        """Quiet."""


def test_an_address_of_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's server answers 200 on the address that our child claims."""
    other = http.server.HTTPServer(("127.0.0.1", 0), _Ok)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        script = f"""
            import sys, time
            print("srv init: listening on http://127.0.0.1:{other.server_port}", file=sys.stderr,
                  flush=True)
            time.sleep(60)
            """
        argv = [sys.executable, "-c", textwrap.dedent(script)]
        monkeypatch.setattr(server_module, "command", lambda *_args: argv)
        with pytest.raises(EngineEnded) as caught:
            Server.start("x.gguf", launch(), engine=Engine("binary", "x"))
    finally:
        other.shutdown()
        other.server_close()
    outcome = caught.value.outcome
    assert (outcome.ending, outcome.port) == (Ending.PORT_TAKEN, other.server_port)


def test_a_server_that_never_answers_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(server_module, "command", lambda *_args: argv)
    with pytest.raises(EngineEnded) as caught:
        Server.start("x", launch(), engine=Engine("binary", "x"), limits=Limits(silence_s=0.5))
    assert caught.value.outcome.ending is Ending.HUNG


def test_no_orphan_when_kvwise_is_killed_with_a_model_loaded(engine: Engine) -> None:
    script = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from kvwise.engine.find import find
        from kvwise.engine.server import Server
        from kvwise.launch import Launch
        server = Server.start({str(smollm2())!r}, Launch.parse(["-c", "256", "-np", "1"]),
                              engine=find({engine.path or "embedded"!r}))
        print(server.child.pid, flush=True)
        import time; time.sleep(300)
        """
    with Child([sys.executable, "-c", textwrap.dedent(script)]) as parent:
        assert parent.wait_until(lambda: not parent.answers.empty(), 60)
        pid = int(parent.answers.get() or 0)
        assert psutil.Process(pid).is_running()
        psutil.Process(parent.pid).kill()
        parent.wait(10)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
