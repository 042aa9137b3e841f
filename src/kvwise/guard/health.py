"""Is it serving? Asks `/health` of our own child, and of nobody else's server on that port."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import urlsplit, urlunsplit

import httpx2

from kvwise.engine.process import Child
from kvwise.engine.server import listens
from kvwise.guard.line import Listen

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 (to be replaced)
_ANSWER_S = 5.0


class Health:
    """Asks one server."""

    def __init__(self, child: Child, listen: Listen, *, embedded: bool) -> None:
        self._child, self._listen, self._embedded = child, listen, embedded
        self._http = httpx2.Client(
            timeout=_ANSWER_S, trust_env=False, verify=False, transport=_transport(listen)
        )
        self._url = ""

    @property
    def url(self) -> str:
        """The address for people; "" as long as the engine has not told its port."""
        if not self._url:
            self._url = self._found()
        return self._url

    def _found(self) -> str:
        listen = self._listen
        if listen.socket:
            return f"http://localhost{listen.prefix}"
        if listen.port:
            return reachable(listen)
        said = self._child.loaded.listening
        if said is None and self._embedded and not self._child.answers.empty():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said = json.loads(self._child.answers.get_nowait() or "{}")["url"]
        if not said:
            return ""
        parts = urlsplit(said)
        host = _EVERYWHERE.get(parts.hostname or "", parts.hostname or "127.0.0.1")
        host = f"[{host}]" if ":" in host else host
        place = f"{host}:{parts.port}" if parts.port else host
        return urlunsplit((parts.scheme, place, listen.prefix, "", ""))

    def serving(self) -> bool:
        """200 from `/health` of our own child. Raises nothing.

        Behind a wrapper the socket may be another process's; then the engine's own log says that
        it could bind that port.
        """
        if not self.answers(200):
            return False
        said = self._child.loaded.listening
        port = urlsplit(said).port if said else None
        return self.mine() is not False or port == urlsplit(self.url).port

    def answers(self, *codes: int) -> bool:
        """Does it answer at all, with one of these codes (none = any)?"""
        if not self.url:
            return False
        try:
            got = self._http.get(f"{self.url}/health").status_code
        except (httpx2.HTTPError, OSError):
            return False
        return not codes or got in codes

    def mine(self) -> bool | None:
        """Is it our child that listens there? None when the system does not tell."""
        if self._listen.socket or not self.url:
            return None
        port = urlsplit(self.url).port
        return None if port is None else listens(self._child.pid, port)

    def close(self) -> None:
        self._http.close()


def reachable(listen: Listen) -> str:
    """The address as this machine reaches it."""
    host = _EVERYWHERE.get(listen.host, listen.host)
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    scheme = "https" if listen.secure else "http"
    return f"{scheme}://{host}:{listen.port}{listen.prefix}"


def _transport(listen: Listen) -> httpx2.HTTPTransport | None:
    return httpx2.HTTPTransport(uds=listen.host) if listen.socket else None
