"""Who tokenises and embeds: servers of our own, or those of a user by their URL."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import httpx2

from kvwise.digest.reading import readable
from kvwise.engine.server import RequestRefused
from kvwise.errors import EngineError

_SPLIT = -1
"""No token has this id: /tokenize hands numbers between texts back as they are, so one request
counts many texts, each by itself (tools/server/server-common.cpp, tokenize_mixed, b10605)."""
_ANSWER_S = 3600.0


class Answers(Protocol):
    """A server of either kind."""

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """JSON of a POST; raises EngineError."""


class Remote:
    """A llama-server that somebody else started. Raises EngineError when it does not answer."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.Client(timeout=httpx2.Timeout(_ANSWER_S, connect=10.0), trust_env=False)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("POST", path, body)

    def get(self, path: str) -> Any:
        return self._send("GET", path, None)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            answer = self._http.request(method, self.url + path, json=body)
            said = answer.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise EngineError(
                "{url} does not answer as llama-server does: {why}",
                url=self.url, why=str(error) or type(error).__name__,
                hint="start it, or leave it out of --servers",
            ) from error  # fmt: skip
        if answer.status_code != 200:
            told = said.get("error", {}) if isinstance(said, dict) else {}
            message = str(told.get("message") if isinstance(told, dict) else told)
            kind = str(told.get("type", "")) if isinstance(told, dict) else ""
            raise RequestRefused(answer.status_code, message, kind)
        return said

    def close(self) -> None:
        self._http.close()


class EngineTokenizer:
    """The model's own tokenizer, behind a server. Special tokens in a text are plain text."""

    def __init__(self, server: Answers, prefix: str = "") -> None:
        self._server, self._prefix = server, prefix

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.many(texts)]

    def many(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each text by itself, without what the model adds."""
        content: list[str | int] = [0]  # a number first: nothing is added to the first text
        for text in texts:
            content += [readable(text), _SPLIT]
        ids = self._ask(content, add_special=False)[1:]
        found: list[tuple[int, ...]] = []
        start = 0
        for at, token in enumerate(ids):
            if token == _SPLIT:
                found.append(tuple(ids[start:at]))
                start = at + 1
        if len(found) != len(texts):
            raise EngineError("the engine's answer to a text is no list of tokens")
        return found

    def ids(self, text: str) -> list[int]:
        return self._ask(self._prefix + readable(text), add_special=True)

    def special(self) -> int:
        """Tokens of a chunk that are not its text's: what the model adds, and the prefix."""
        return len(self._ask(self._prefix, add_special=True))

    def _ask(self, content: str | list[str | int], *, add_special: bool) -> list[int]:
        body = {"content": content, "add_special": add_special, "parse_special": False}
        answer = self._server.post("/tokenize", body)
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list):
            raise EngineError("the engine's answer to a text is no list of tokens")
        return tokens


def embed(server: Answers, batch: Sequence[Sequence[int]], normalize: int = 2) -> list[bytes]:
    """One pooled vector (float32, little-endian) per token list; `normalize` as llama.cpp's
    --embd-normalize (2 = Euclidean, -1 = none). Raises EngineError."""
    body = {
        "input": [list(ids) for ids in batch],
        "encoding_format": "base64",
        "embd_normalize": normalize,
    }
    answer = server.post("/v1/embeddings", body)
    try:
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        vectors = [_bytes_of(row["embedding"]) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError("the engine's answer holds no vectors") from error
    if len(vectors) != len(batch) or len({len(each) for each in vectors}) != 1:
        raise EngineError("the engine's answer holds no vectors")
    return vectors


def _bytes_of(vector: Any) -> bytes:
    if isinstance(vector, str):
        data = base64.b64decode(vector, validate=True)
        if not data or len(data) % 4:
            raise ValueError
        return data
    return floats_to_bytes([float(each) for each in vector])


def floats_to_bytes(values: Sequence[float]) -> bytes:
    """float32, little-endian."""
    data = array("f", values)
    if sys.byteorder == "big":
        data.byteswap()
    return data.tobytes()


def bytes_to_floats(data: bytes) -> array[float]:
    """The other way."""
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
