"""Presets of llama-server's router: our reader and, where it is here, llama-server itself."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from export_settings import LAUNCHES, LINES, settings, tensors_in_one
from kvwise.errors import SourceError, UsageError
from kvwise.export import llama_server
from kvwise.export.settings import spoken
from kvwise.launch import Launch
from kvwise.options import read
from oracle import tools

OLD = """\
; my presets
version = 1

[*]
threads = 8   # everywhere

[one]
model = /srv/one.gguf
c = 2048 ; short
no-mmap = true
load-on-startup = false
; about two
[two]
m = /srv/two.gguf
"""


def test_other_models_and_comments_stay() -> None:
    asked = settings("/srv/new.gguf", "-c", "8192", "-nkvo", name="one")
    new = llama_server.write(asked, OLD).text
    lines = new.splitlines()
    for line in OLD.splitlines():
        if line not in ("model = /srv/one.gguf", "c = 2048 ; short"):
            assert line in lines, line
    assert "c = 8192 ; short" in lines  # the key and the comment that stood there
    assert lines.index("kv-offload = false") < lines.index("; about two")
    assert "load-on-startup = false" in lines


def test_older_words_for_the_same_give_way() -> None:
    asked = settings("/srv/new.gguf", "-lm", "mlock", name="one")
    new = llama_server.write(asked, OLD).text
    assert "no-mmap" not in new
    assert "load-mode = mlock" in new


def test_a_negated_key_keeps_its_sense() -> None:
    old = "[m]\nno-kv-offload = false\n"
    assert "no-kv-offload = true" in llama_server.write(settings("/a", "-nkvo"), old).text
    assert llama_server.read("[m]\nno-kv-offload = true\n")[0].words == ("-nkvo",)


@pytest.mark.parametrize("path", ["/srv/a;b.gguf", "/srv/a#b.gguf"])
def test_what_an_ini_cannot_hold_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="cannot name this model"):
        llama_server.write(settings(path), None)


def test_what_comes_twice_is_left_out() -> None:
    asked = settings("/a.gguf", "--lora", "x", "--lora", "y", "-r", "a", "-r", "b")
    written = llama_server.write(asked, None)
    assert "lora = x,y" in written.text
    assert [each.words for each in written.left_out] == [("--reverse-prompt", "b")]


@pytest.mark.parametrize("old", ["x", " a = 1", "[a\n", "a b = 1"])
def test_what_llama_server_would_not_read_is_refused(old: str) -> None:
    with pytest.raises(SourceError, match="line 1"):
        llama_server.write(settings("/a.gguf"), old)


@hypothesis_settings(deadline=None, max_examples=60)
@given(launch=LAUNCHES, path=LINES)
def test_presets_read_back(launch: Launch, path: str) -> None:
    asked = settings(replace(launch, model=path))
    try:
        written = llama_server.write(asked, OLD)
    except UsageError:
        assert set(path) & set(";#") or path != path.strip()
        return
    found = {each.name: each for each in llama_server.read(written.text)}
    assert set(found) == {"one", "two", "m"}
    back = read(found["m"].words).launch
    wanted = read([word for each in spoken(asked) for word in each.typed]).launch
    left = [each.words[0] for each in written.left_out]
    back, wanted = tensors_in_one(back), tensors_in_one(wanted)
    assert left or replace(back, extra=()) == replace(wanted, extra=())


@pytest.mark.skipif(tools.HERE is None, reason="llama.cpp's llama-server is not here")
def test_the_router_itself_lists_every_argument(tmp_path: Path) -> None:
    model = tmp_path / "模型 1 'q' 100%.gguf"
    asked = settings(str(model), "-c", "8192", "-np", "2", "-ngl", "30", "-ctk", "q8_0", "-ctv",
                     "q5_1", "-nkvo", "-ncmoe", "3", "-ot", "blk\\.1=CPU", "-fit", "off",
                     "--threads", "3", name="m-1")  # fmt: skip
    presets = tmp_path / "models.ini"
    presets.write_text(llama_server.write(asked, OLD).text, "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [tools.folder() / "llama-server", "--models-preset", presets, "--host", "127.0.0.1",
               "--port", str(port)]  # fmt: skip
    log = (tmp_path / "log").open("wb")
    with subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path) as router:
        try:
            listed = _models(port, router)
        finally:
            router.terminate()
    words = {each["id"]: each["status"]["args"] for each in listed["data"]}
    assert {"one", "two", "m-1"} <= set(words)
    heard = read(words["m-1"][1:]).launch
    wanted = read([word for each in spoken(asked) for word in each.typed]).launch
    heard, wanted = tensors_in_one(heard), tensors_in_one(wanted)
    assert replace(heard, extra=()) == replace(wanted, extra=())
    assert asked_too(wanted.extra, heard.extra)


def asked_too(wanted: Sequence[str], heard: Sequence[str]) -> bool:
    """The router adds a host, a port and an alias of its own."""
    return set(wanted) <= set(heard)


def _models(port: int, router: subprocess.Popen[bytes]) -> dict[str, list[dict[str, object]]]:
    for _ in range(600):
        if router.poll() is not None:
            pytest.fail("the router ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.1)
    pytest.fail("the router does not answer")
