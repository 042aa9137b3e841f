"""Requests that a server cannot serve as its caller thought."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import httpx2

LIMIT_S = 120.0


def post(url: str, path: str, body: dict[str, Any]) -> None:
    with contextlib.suppress(httpx2.HTTPError):
        httpx2.post(url + path, json=body, timeout=LIMIT_S, trust_env=False)


def long_prompt(url: str) -> None:
    post(url, "/completion", {"prompt": list(range(100, 1500)), "n_predict": 1})


def wall(url: str) -> None:
    post(url, "/completion", {"prompt": list(range(100, 580)), "n_predict": 200})


def embedding(url: str) -> None:
    post(url, "/embedding", {"content": list(range(100, 400))})


def many(url: str) -> None:
    """Requests at the same time that do not fit one cache together."""
    bodies = [
        {"prompt": list(range(100 + 7 * n, 260 + 7 * n)), "n_predict": 300, "ignore_eos": True}
        for n in range(4)
    ]
    threads = [threading.Thread(target=post, args=(url, "/completion", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def edited(url: str) -> None:
    """A long prompt, then one that differs early: its window is gone."""
    first = list(range(1000, 2600))
    for prompt in (first, [*first[:300], *range(5000, 6000)]):
        post(url, "/completion", {"prompt": prompt, "n_predict": 2, "cache_prompt": True})
