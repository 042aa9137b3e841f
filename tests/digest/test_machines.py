"""More than one engine: servers of the user's, and a Ray cluster of two nodes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.launch import Launch
from models import minilm, smollm2

from .test_command import _argv, _chunks, _rows, _run, _write

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]


@contextmanager
def _server(model: Path) -> Iterator[Server]:
    launch = Launch(n_ctx=64, n_batch=64, n_ubatch=64, embeddings=True, pooling="mean", fit=False)
    server = Server.start(model, launch, run=Run(threads=1))
    try:
        yield server
    finally:
        server.close()


def _urls(*servers: Server) -> tuple[str, str]:
    return "--servers", ",".join(server.url for server in servers)


def test_a_server_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 250)
    with ExitStack() as stack:
        one, two = (stack.enter_context(_server(minilm())) for _ in range(2))
        argv = [*_argv(document, out, *_urls(one, two)), "--json"]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        while _chunks(out) < 6 and child.poll() is None:
            time.sleep(0.02)
        assert child.poll() is None
        two.child.kill()
        told, _ = child.communicate(timeout=200)
        assert child.returncode == 0
        run = json.loads(told)["run"]
        assert run["embedded"] + run["kept"] == len(_rows(out))
        _run(document, tmp_path / "whole", *_urls(one))
    assert _rows(out) == _rows(tmp_path / "whole")
    assert _rows(out)[-1][1] == document.stat().st_size


def test_servers_that_do_not_go_together(tmp_path: Path) -> None:
    document = tmp_path / "doc.txt"
    _write(document, 5)
    with _server(minilm()) as right, _server(smollm2()) as wrong:
        for urls, code, word in (
            (_urls(wrong), 2, "another model"),
            (_urls(right, wrong), 2, "different vectors"),
            (("--servers", "http://127.0.0.1:9"), 1, "does not answer"),
            (("--servers", "no url"), 1, "does not answer"),
        ):
            argv = _argv(document, tmp_path / "out", *urls)
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
            assert word in done.stderr


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 3000)  # it is killed long before the end
    with _server(minilm()) as server:
        first = subprocess.Popen(
            _argv(document, out, *_urls(server)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not _chunks(out) and first.poll() is None:
            time.sleep(0.02)
        argv = _argv(document, out, *_urls(server))
        second = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert first.poll() is None
        first.kill()
        first.wait()
    assert second.returncode == 2
    assert "another process" in second.stderr


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_node_of_a_ray_cluster_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 400)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        argv = [*_argv(document, out, "--on", f"ray:{cluster.address}"), "--json"]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ})
        while _chunks(out) < 10 and child.poll() is None:
            time.sleep(0.05)
        assert child.poll() is None
        cluster.remove_node(node)
        told, _ = child.communicate(timeout=900)
    finally:
        cluster.shutdown()
    assert child.returncode == 0
    run = json.loads(told)["run"]
    rows = _rows(out)
    assert run["embedded"] + run["kept"] == len(rows)
    assert rows[-1][1] == document.stat().st_size
    _run(document, tmp_path / "whole")
    assert rows == _rows(tmp_path / "whole")
