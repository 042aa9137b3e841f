"""Which port to serve on: the user's, else llama-server's own if it is free, else a free one."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

import psutil

from kvwise.errors import EngineError, KvwiseError
from kvwise.guard.line import Listen
from kvwise.oserrors import reason_of


class PortTaken(EngineError):
    """The port that was asked for belongs to another process."""


def settle(listen: Listen) -> Listen:
    """The address to use. Raises PortTaken when the user's own port is not free."""
    if listen.socket or listen.shares or (listen.port == 0 and not listen.chosen):
        return listen
    if _free(listen.host, listen.port):
        return listen
    if listen.chosen:
        return another(listen)
    raise _taken(listen)


def another(listen: Listen) -> Listen:
    """The same with a port that is free now."""
    with contextlib.closing(_socket(listen.host)) as probe:
        try:
            probe.bind((listen.host, 0))
        except OSError as error:
            raise _no_address(listen, error) from error
        return replace(listen, port=int(probe.getsockname()[1]))


def _free(host: str, port: int) -> bool:
    """Can it be bound? What cannot be resolved is for the engine to say."""
    try:
        with contextlib.closing(_socket(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        import errno  # noqa: PLC0415

        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    except OverflowError as error:
        raise KvwiseError("port {port} is out of range", port=port) from error
    return True


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)


def _taken(listen: Listen) -> PortTaken:
    owner = _owner(listen.port)
    if owner is None:
        return PortTaken(
            "port {port} on {host} is taken or not allowed", port=listen.port, host=listen.host,
            hint="stop what uses it, or give another --port; without one kvwise finds a free one",
        )  # fmt: skip
    return PortTaken(
        "port {port} is taken by {name} (process {pid})",
        port=listen.port, name=owner.name(), pid=owner.pid,
        hint="stop it, or give another --port; without one kvwise finds a free one",
    )  # fmt: skip


def _no_address(listen: Listen, error: OSError) -> KvwiseError:
    return KvwiseError(
        "cannot listen on {host}: {reason}", host=listen.host, reason=reason_of(error)
    )


def _owner(port: int) -> psutil.Process | None:
    """The process that listens there, as far as the system tells us."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr:
                continue
            if connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                process.name()
                return process
    except (psutil.Error, OSError):
        return None
    return None
