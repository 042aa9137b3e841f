"""Devices of RPC servers: described like any other, they are counted and nothing says otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import cache_setup as setup

from kvwise.cli._request import machine
from kvwise.launch import Launch
from kvwise.memory.account import account

REMOTE = "name=10.0.0.2:50052,total=24GiB,kind=rpc"
WORDS = ["-c", "4096", "--rpc", "10.0.0.2:50052"]


def test_a_described_server_is_counted() -> None:
    devices = machine([REMOTE, "RTX 4060"], ram="32GiB").devices
    made = account(setup.zoo_model("qwen3-8b"), Launch.parse(WORDS), devices)
    assert all(line.weights_bytes and line.context_bytes for line in made.lines[:2])
    assert "not_counted" not in [note.code for note in made.notes]


def test_one_that_is_not_described_is_said_to_be_left_out() -> None:
    devices = machine(["RTX 4060"], ram="32GiB").devices
    made = account(setup.zoo_model("qwen3-8b"), Launch.parse(WORDS), devices)
    assert [str(note.message) for note in made.notes if note.code == "not_counted"] == [
        "what --rpc takes is not counted"
    ]


def test_servers_come_first_as_in_llama_cpp() -> None:
    devices = machine(["RTX 4060", REMOTE, "RTX 4090", REMOTE], ram="32GiB").devices
    assert [(each.kind, each.index) for each in devices] == [
        ("rpc", 0), ("rpc", 1), ("cuda", 0), ("cuda", 1),
    ]  # fmt: skip
