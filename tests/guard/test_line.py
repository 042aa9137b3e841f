"""The engine's command line, its address, and the flags of the embedded engine."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from kvwise.engine.find import Engine
from kvwise.errors import UsageError
from kvwise.guard.embedded_flags import attributes
from kvwise.guard.health import reachable
from kvwise.guard.line import Given, Listen, listen_of, without_secrets
from kvwise.guard.port import PortTaken, another, settle
from kvwise.launch import Launch
from kvwise.options import read

BINARY = Engine("binary", "/opt/llama-server")


def given(*words: str, planned: bool = False, engine: Engine = BINARY) -> Given:
    reading = read(words)
    fixed = set(reading.origins) - {"model"}
    return Given(engine, words, (), "m.gguf", reading.launch, fixed, planned)


def test_a_step_adds_its_words_and_the_last_one_counts() -> None:
    mine = given("-m", "m.gguf", "-c", "8192", "-ub", "1024", "-lv", "3")
    listen = Listen(chosen=False)
    assert mine.argv(mine.base, listen)[1:] == list(mine.words)
    down = replace(mine.base, n_ctx=4096, n_ubatch=512)
    more = mine.argv(down, listen)[1 + len(mine.words) :]
    assert more == ["-c", "4096", "-ub", "512"]
    heard = read(mine.argv(down, listen)[1:]).launch
    assert (heard.n_ctx, heard.n_ubatch) == (4096, 512)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_ctx": 4096, "type_k": "q8_0", "type_v": "q8_0"},
        {"n_gpu_layers": 12, "n_cpu_moe": 4, "offload_kqv": False},
        {"n_seq_max": 3, "kv_unified": True, "fit": False},
        {"tensor_split": (14.0, 23.0), "devices": ("CUDA0", "CUDA2")},
        {"override_tensor": ((r"blk\.(1|2)\.ffn_(up|gate)_exps", "CPU"),)},
        {"draft_gpu_layers": 0, "draft_type_k": "q8_0", "draft_type_v": "q8_0"},
    ],
)
def test_what_is_planned_is_said_aloud_and_read_back(changes: dict[str, object]) -> None:
    mine = given("-m", "m.gguf", planned=True)
    launch = replace(mine.base, **changes)  # type: ignore[arg-type]
    heard = read(mine.argv(launch, Listen())[1:]).launch
    for name in ("n_ctx", "n_batch", "n_ubatch", "type_k", "n_seq_max", "kv_unified", *changes):
        assert getattr(heard, name) == getattr(launch, name), name


def test_a_word_that_the_plan_added_is_said_and_the_users_own_once() -> None:
    mine = given("-m", "m.gguf", "--jinja", planned=True)
    launch = replace(mine.base, extra=(*mine.base.extra, "--no-mmproj-offload"))
    argv = mine.argv(launch, Listen())
    assert (argv.count("--jinja"), argv.count("--no-mmproj-offload")) == (1, 1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), Listen()),
        (("--port", "9000"), Listen(port=9000, chosen=False)),
        (("--host", "0.0.0.0"), Listen(host="0.0.0.0")),  # noqa: S104
        (("--api-prefix", "/x/"), Listen(prefix="/x")),
        (("--ssl-key-file", "k", "--ssl-cert-file", "c"), Listen(secure=True)),
        (("--reuse-port",), Listen(shares=True)),
    ],
)
def test_the_address(words: tuple[str, ...], expected: Listen) -> None:
    assert listen_of(read(words).launch, ()) == expected


def test_the_address_as_this_machine_reaches_it() -> None:
    assert reachable(Listen(host="0.0.0.0", port=1)) == "http://127.0.0.1:1"  # noqa: S104
    assert reachable(Listen(host="::", port=1)) == "http://[::1]:1"
    assert reachable(Listen(port=1, secure=True, prefix="/x")) == "https://127.0.0.1:1/x"
    assert listen_of(read(("--host", "/tmp/a.sock")).launch, ()).socket


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match="process"):
            settle(Listen(port=port, chosen=False))
        assert settle(Listen(port=port)).port not in (0, port)
        assert settle(Listen(port=port, chosen=False, shares=True)).port == port
    assert settle(Listen(port=0, chosen=False)).port == 0
    assert another(Listen()).port


def test_secrets_do_not_show() -> None:
    line = ["llama-server", "--api-key", "s3cret", "-hft", "hf_x", "-c", "1"]
    assert without_secrets(line) == ["llama-server", "--api-key", "...", "-hft", "...", "-c", "1"]
    spec = json.dumps({"more": {"api_keys": ["s3cret"]}})
    assert "s3cret" not in " ".join(without_secrets(["python", "-m", "x", spec]))


def test_flags_of_the_embedded_engine(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\n\ntwo\n")
    words = ["--host", "h", "--port", "1", "--api-key", "a,b", "--api-key-file", str(keys),
             "--alias", "x", "--metrics", "--no-slots", "--temp", "0.5", "-t", "2", "--no-warmup",
             "--timeout", "9", "-n", "64", "-cb", "--jinja"]  # fmt: skip
    more, rest = attributes(read(words).launch)
    assert rest == ("-t", "2", "--no-warmup")
    assert more["api_keys"] == ["a", "b", "one", "two"]
    assert (more["endpoint_metrics"], more["endpoint_slots"]) == (True, False)
    assert (more["sampling.temp"], more["n_predict"], more["timeout_read"]) == (0.5, 64, 9)
    assert more["model_alias"] == ["x"]


def test_what_the_embedded_engine_cannot_be_given_is_refused() -> None:
    with pytest.raises(UsageError):
        attributes(read(["--grammar", "x"]).launch)
    with pytest.raises(UsageError):
        attributes(Launch(), ("--shiny",))


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_every_attribute_exists_in_the_embedded_engine() -> None:
    x = pytest.importorskip("xllamacpp")
    from kvwise.guard import embedded_flags

    parameters = x.CommonParams()
    names = [name for name, _ in embedded_flags._VALUES.values()]
    for name in (*names, *embedded_flags._SWITCHES.values(), "api_keys", "model_alias"):
        owner = parameters
        for part in name.split("."):
            assert hasattr(owner, part), name
            owner = getattr(owner, part)
