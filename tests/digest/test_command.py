"""`kvwise digest` as a user runs it: the real engine, a real embedding model, real kills."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise.digest.engines import bytes_to_floats
from kvwise.digest.pool import cosine
from kvwise.digest.shelf import Shelf
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.launch import Launch
from kvwise.results import load
from kvwise.store import Store
from models import minilm, smollm2

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

_SENTENCES = (
    "The lighthouse keeper counted forty ships before noon.",
    "Bread needs flour, water, salt and time.",
    "Mount Elgin is 2,310 metres high and has snow until June.",
    "The committee postponed the vote on the new bridge.",
    "Copper conducts heat better than iron does.",
    "Her grandmother kept bees behind the old mill.",
    "The train to Karlsby leaves at six in the morning.",
    "A violin has four strings tuned in fifths.",
)


def _write(path: Path, sentences: int, seed: int = 0) -> None:
    dice = random.Random(seed)
    path.write_text("".join(f"{number}. {dice.choice(_SENTENCES)} " for number in range(sentences)))


def _argv(document: Path, out: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "kvwise", "digest", str(document), "--embed-model", str(minilm()),
        "--out", str(out), "--chunk-tokens", "64", "-t", "1", *more,
    ]  # fmt: skip


def _run(document: Path, out: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        [*_argv(document, out, *more), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _rows(out: Path) -> list[tuple[int, int, int, str]]:
    with Shelf(out) as shelf:
        return [(row.start, row.end, row.tokens, row.vector) for row in shelf.chunks()]


def _chunks(out: Path) -> int:
    """How many are on the disk now, seen from outside."""
    try:
        with sqlite3.connect(f"file:{out / 'digest.db'}?mode=ro", uri=True) as db:
            return int(db.execute("SELECT count(*) FROM chunk").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_vectors_are_the_engines_own(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 40)
    answer = _run(document, out, "--overlap", "10")
    assert answer["schema"] == "kvwise/digest/1"
    assert answer["pooling"] == {"mode": "mean", "chosen_by": "the model"}
    data = document.read_bytes()
    launch = Launch(n_ctx=64, n_batch=64, n_ubatch=64, embeddings=True, pooling="mean", fit=False)
    with (
        Shelf(out) as shelf,
        Server.start(minilm(), launch, run=Run(threads=1)) as server,
    ):
        rows = list(shelf.chunks())
        assert rows[0].start == 0
        assert rows[-1].end == len(data)
        for row in rows:
            text = data[row.start : row.end].decode()
            ids = server.tokenize(text, add_special=True, parse_special=False)
            assert row.tokens == len(ids) <= 64
            (own,) = server.embed([ids])
            assert cosine(own, bytes_to_floats(shelf.vector(row.vector))) >= 0.9999


def test_files_are_read_by_other_libraries(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    parquet = pytest.importorskip("pyarrow.parquet")
    document, out = tmp_path / "doc.md", tmp_path / "out"
    _write(document, 30)
    text = document.read_text()
    document.write_text(f"# One\n\n{text}\n\n# Two\n\n{text}\n")
    _run(document, out)
    vectors = numpy.load(out / "vectors.npy")
    table = parquet.read_table(out / "chunks.parquet").to_pylist()
    assert vectors.shape == (len(table), 384)
    assert {row["section"] for row in table} == {"One", "Two"}
    assert numpy.allclose([row["vector"] for row in table], vectors)
    assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    pooled = json.loads((out / "digest.json").read_text())["documents"][0]["pooled"]
    weights = numpy.array([row["tokens"] for row in table])[:, None]
    mean = (vectors * weights).sum(axis=0)
    assert numpy.allclose(pooled["token_mean"], mean / numpy.linalg.norm(mean), atol=1e-5)


def test_a_folder_knows_how_it_was_made(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 30)
    first = _run(document, out, "--overlap", "10", "--chunk-prefix", "x: ")

    def told(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "kvwise", "digest", *words, "--out", str(out), "--json"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return json.loads(done.stdout)

    again = told("--search", "the train", "--top", "2")
    assert again["made_with"] == first["made_with"]
    assert len(again["search"]["hits"]) == 2
    assert "pooled" not in again["documents"][0]
    assert "pooled" in told(str(document), "--vectors")["documents"][0]
    refused = told(str(document), "--chunk-tokens", "32")["error"]
    assert refused["type"] == "UsageError"
    assert "tokens of a chunk 64 -> 32" in refused["message"]
    assert "overlap" not in refused["message"]


def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 5)
    assert _run(document, out, "--dry-run")["chunks"] >= 1
    assert not out.exists()


def test_search_finds_the_right_place(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    needle = "The password of the vault is written under the blue vase in the kitchen. "
    _write(document, 60)
    text = document.read_text()
    document.write_text(text[:2000] + " " + needle + text[2000:])
    answer = _run(document, out, "--search", "Where is the password?", "--top", "1")
    (hit,) = answer["search"]["hits"]
    assert "blue vase" in hit["text"]
    assert document.read_bytes()[hit["start"] : hit["end"]].decode() == hit["text"]


def test_a_generator_answers_within_its_budget(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 60)
    answer = _run(
        document, out, "--model", str(smollm2()), "--ask", "When does the train leave?",
        "--top", "8", "--budget", "512", "--answer-tokens", "330",
    )["answer"]  # fmt: skip
    assert answer["prompt_tokens"] + 330 <= answer["context"] == 512
    assert answer["answer"]
    kinds = ("passages", "left_out", "left_out_same")
    assert sum(len(answer[kind]) for kind in kinds) == 8
    assert answer["left_out"]  # and it says so


def _killed(argv: Sequence[str], out: Path, more: int) -> None:
    """Start, and kill -9 when `more` chunks were added."""
    before = _chunks(out)
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None and _chunks(out) < before + more:
        time.sleep(0.01)
    engines = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
    child.kill()
    child.wait()
    _gone, alive = psutil.wait_procs(engines, timeout=20)
    assert not alive  # no engine is left behind


def test_a_file_that_has_changed_is_told_whatever_is_asked(tmp_path: Path) -> None:
    docs, out = tmp_path / "docs", tmp_path / "out"
    text, page = docs / "a.txt", docs / "b.html"
    docs.mkdir()
    text.write_text("Bread needs flour, water, salt and time. ")
    page.write_text("<p>The train to Karlsby leaves at six in the morning.</p>")
    folder = _run(docs, out)
    assert len(folder["documents"]) == 2
    labels = ("--classify", "food,travel")
    ours = [sys.executable, "-m", "kvwise", "digest", "--out", str(out), "-t", "1", "--json"]

    def ask(*words: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run([*ours, *words], capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    page.write_text("<p>Another text.</p>")  # its text is kept in the folder
    code, found = ask("--search", "train")
    assert (code, found["outdated"], len(found["search"]["hits"])) == (0, ["docs/b.html"], 2)
    text.write_text("Longer: bread needs flour, water, salt and time. ")  # read where it lies
    code, found = ask(*labels)
    assert (code, found["outdated"]) == (0, ["docs/a.txt", "docs/b.html"])  # by vectors alone
    writer = ("--model", str(smollm2()))
    for words in (("--search", "bread"), (*labels, *writer), ("--task", "summarize", *writer)):
        code, found = ask(*words)
        assert code == 1
        assert "has changed since its chunks were made" in found["error"]["message"]
    code, found = ask(str(docs), *labels)
    assert (code, found["outdated"]) == (0, [])


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, kills: int) -> None:
    document = tmp_path / "doc.txt"
    _write(document, 30 + 25 * kills, seed=kills)
    dice, out = random.Random(kills), tmp_path / "out"
    for _ in range(kills):
        _killed(_argv(document, out), out, dice.randint(1, 4))
    kept = _rows(out)
    last = _run(document, out)
    assert last["run"]["kept"] >= len(kept)
    assert last["run"]["embedded"] + last["run"]["kept"] == len(_rows(out))
    _run(document, tmp_path / "whole")
    assert _rows(out) == _rows(tmp_path / "whole")


def test_ctrl_c_leaves_a_state_to_go_on_from(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 200)
    child = subprocess.Popen(_argv(document, out), stderr=subprocess.PIPE, text=True)
    while _chunks(out) < 3 and child.poll() is None:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "the same command goes on" in told
    assert "Traceback" not in told
    asked = [each for each in _argv(document, out, "--search", "door") if each != str(document)]
    searched = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "doc.txt is not finished" in searched.stderr
    assert _run(document, out)["run"]["kept"] >= 3
    searched = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "not finished" not in searched.stderr


def test_an_engine_that_cannot_load_says_why(tmp_path: Path) -> None:
    document, model = tmp_path / "doc.txt", tmp_path / "model.gguf"
    _write(document, 10)
    data = minilm().read_bytes()
    at = data.index(b"tokenizer.ggml.model") + len(b"tokenizer.ggml.model") + 12
    model.write_bytes(data[:at] + b"zert" + data[at + 4 :])
    argv = _argv(document, tmp_path / "out", "--embed-model", str(model))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "does not know the model's tokenizer" in done.stderr
    assert "Traceback" not in done.stderr
    assert "zert" in (tmp_path / "out" / "engine.log").read_text()


def test_an_engine_that_is_always_killed_says_why(tmp_path: Path) -> None:
    document, out = tmp_path / "doc.txt", tmp_path / "out"
    _write(document, 300)
    child = subprocess.Popen(_argv(document, out), stderr=subprocess.PIPE, text=True)
    above, killed = psutil.Process(child.pid), set[int]()
    while child.poll() is None:
        for each in above.children(recursive=True):
            if _chunks(out) and each.pid not in killed:
                killed.add(each.pid)
                each.kill()
        time.sleep(0.05)
    _, told = child.communicate()
    assert child.returncode == 1
    assert "the system ended the process" in told
    assert "Traceback" not in told
    assert len(killed) == 3  # it was started again twice
    assert _run(document, out)["run"]["kept"] >= 1


def test_the_second_run_knows_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "home"))
    document = tmp_path / "doc.txt"
    _write(document, 50)
    told = []
    for name in ("first", "second"):
        done = subprocess.run(
            _argv(document, tmp_path / name), capture_output=True, text=True, check=True
        )
        told.append(next(line for line in done.stderr.splitlines() if "to embed" in line))
    chunks = len(_rows(tmp_path / "first"))
    assert f"about {chunks} chunks of at most 64 tokens" in told[0]
    assert "measured here before" not in told[0]
    with Store() as store:
        first, _second = load(store, kind="embedding")
    undisturbed = not first.samples[0].flags  # else it is kept, and no forecast stands on it
    assert ("measured here before" in told[1]) is undisturbed
    assert first.unit == "tokens/s"
    assert first.test["n_prompt"] == 64


def test_an_encoding_that_is_none_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    document, out = tmp_path / "a.txt", tmp_path / "out"
    document.write_text("Words.")
    done = subprocess.run(_argv(document, out, "--encoding", "klingon"), capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: --encoding klingon: no such encoding\n")
    assert not out.exists()


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    document = tmp_path / "doc.txt"
    document.write_text("Some text.")

    def told(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "kvwise", "digest", *words],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    model = str(minilm())
    assert told(str(document))[0] == 2
    assert told("nowhere.txt", "--embed-model", model)[0] == 1
    assert told(str(document), "--embed-model", model, "--chunk-tokens", "513")[0] == 2
    assert told(str(document), "--embed-model", model, "--pooling", "rank")[0] == 2
    assert told(str(document), "--embed-model", model, "--on", "dask")[0] == 2
    assert told("--out", str(tmp_path), "--search", " ")[0] == 2
    code, words = told("--out", str(tmp_path))
    assert code == 2
    assert "nothing to do" in words
    code, words = told(str(document), "--embed-model", model, "--ask", "What?")
    assert code == 2
    assert "--model" in words


def test_a_generator_that_is_none_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    _write(tmp_path / "a.txt", 30)
    words = ["--ask", "How many ships?", "--model", str(minilm())]
    done = subprocess.run(
        [*_argv(tmp_path / "a.txt", tmp_path / "out", *words)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "cannot generate" in done.stderr
    assert not (tmp_path / "out").exists()
