"""The virtual device: GPUs of any number and size that own no memory, served over ggml's RPC.

llama.cpp asks such a device for sizes only while it simulates (`--fit`, llama-fit-params), so its
own answer for a GPU that is not here can be had on any machine. A real load works too: buffers are
granted and counted, refused when too large, and what is written to them is dropped.
It listens on 127.0.0.1 in threads of this process and is gone when its `with` block ends.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kvwise.device import Device
from kvwise.engine.virtual_rules import ALIGNMENT
from kvwise.engine.virtual_session import Session
from kvwise.engine.virtual_wire import WireError
from kvwise.errors import UsageError

MAJORS = (5, 6, 7, 8, 4, 3, 2, 1, 9, 10)
"""Protocol majors to try, in this order: 5 is b10605's, 8 is b11739's, 9 and 10 are guesses."""
_MAX_DEVICES = 16
_MAX_CONNECTIONS = 32
_NO_LIMIT = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class VirtualGPU:
    """A GPU that is not here; sizes in bytes.

    `largest_block_bytes`: a request above it is refused although enough is free, as on a
    fragmented card, and the engine cannot know. `max_buffer_bytes`: the engine is told, and splits
    (Vulkan). `kind` picks the rules for sizes: `cuda`, or anything else for a tensor's own bytes.
    """

    total_bytes: int
    free_bytes: int
    kind: str = "generic"
    alignment: int = ALIGNMENT
    largest_block_bytes: int | None = None
    max_buffer_bytes: int = _NO_LIMIT

    @classmethod
    def of(cls, device: Device, largest_block_bytes: int | None = None) -> VirtualGPU:
        """The twin of a device; its free bytes, or all of it when they are unknown."""
        free = device.free_bytes or device.total_bytes
        return cls(
            max(device.total_bytes, free),
            free,
            device.kind,
            largest_block_bytes=largest_block_bytes,
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """One request for a buffer: bytes on which GPU, and whether it was granted."""

    device: int
    size: int
    granted: bool


class VirtualDevices:
    """The server; `with VirtualDevices([gpu]) as server:` and give `server.endpoint` to `--rpc`.

    A client refuses a server of another protocol major and does not say its own. So the server
    answers the first of `majors`; when a client leaves at once, the next client hears the next.
    `major` is the one a client stayed for, None as long as there was none.
    Raises UsageError for no GPU, too many, or sizes that are not.
    """

    def __init__(self, gpus: Iterable[VirtualGPU], majors: tuple[int, ...] = MAJORS) -> None:
        self.gpus = tuple(gpus)
        if not 0 < len(self.gpus) <= _MAX_DEVICES:
            raise UsageError(
                "{count} virtual GPUs; it must be 1 to {most}",
                count=len(self.gpus),
                most=_MAX_DEVICES,
            )
        if not all(0 <= gpu.free_bytes <= gpu.total_bytes < 1 << 48 for gpu in self.gpus):
            raise UsageError("a virtual GPU's free bytes must lie between 0 and its total")
        self._majors = majors
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._next = self._hellos = 0
        self._major: int | None = None
        self._allocations: list[Allocation] = []
        self._used = [0] * len(self.gpus)
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_MAX_CONNECTIONS)
        self._port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="kvwise-virtual", daemon=True)

    @property
    def endpoint(self) -> str:
        """`127.0.0.1:PORT`, as `--rpc` takes it."""
        return f"127.0.0.1:{self._port}"

    @property
    def names(self) -> tuple[str, ...]:
        """What a client that knows no other endpoint calls the GPUs, for `--device`."""
        return tuple(f"RPC{number}" for number in range(len(self.gpus)))

    @property
    def buffers(self) -> tuple[str, ...]:
        """What a client calls the GPUs' buffers, in its log and for `--override-tensor`."""
        return tuple(f"RPC{number}[{self.endpoint}]" for number in range(len(self.gpus)))

    @property
    def major(self) -> int | None:
        """The protocol major of the last client that stayed."""
        return self._major

    @property
    def hellos(self) -> int:
        """How many clients have come so far."""
        return self._hellos

    @property
    def tries_left(self) -> bool:
        """Is there a major that no client has heard yet? False once one stayed."""
        return self._major is None and self._next < len(self._majors)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Every request for a buffer so far, in order."""
        with self._lock:
            return tuple(self._allocations)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, drop every connection, wait for the threads. Twice does no harm."""
        with self._lock:
            self._closing = True
            open_now = dict(self._connections)
        for one in (self._listener, *open_now):
            # close() alone does not wake a thread that waits in accept() or recv() on Linux.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in (self._thread, *open_now.values()):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=5)

    def wait_idle(self, seconds: float = 5.0) -> bool:
        """Wait until no client is connected; False when one still is after that time."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._connections, seconds)

    # what a session asks

    def greet(self) -> int:
        """A client came; the major for it: the one that worked, or the next to try."""
        with self._lock:
            self._hellos += 1
            if self._major is not None:
                return self._major
            return self._majors[min(self._next, len(self._majors) - 1)]

    def settle(self, major: int, stayed: bool) -> None:
        """A client heard `major` and stayed, or left at once."""
        with self._lock:
            if stayed:
                self._major = major
            elif self._major is None and self._majors[self._next : self._next + 1] == (major,):
                self._next += 1

    def free_bytes(self, device: int) -> int:
        """What is free on a GPU now; raises WireError for a GPU that is not."""
        gpu = self._gpu(device)
        with self._lock:
            return gpu.free_bytes - self._used[device]

    def allocate(self, device: int, size: int) -> bool:
        """Grant a buffer when it fits into what is free and into the largest block."""
        gpu = self._gpu(device)
        with self._lock:
            free = gpu.free_bytes - self._used[device]
            block = gpu.largest_block_bytes
            granted = size <= free and (block is None or size <= block)
            if granted:
                self._used[device] += size
            if len(self._allocations) < 100_000:
                self._allocations.append(Allocation(device, size, granted))
        return granted

    def release(self, device: int, size: int) -> None:
        """A buffer of that size is free again."""
        with self._lock:
            self._used[device] -= size

    def gpu(self, device: int) -> VirtualGPU:
        """The GPU of that number; raises WireError when there is none."""
        return self._gpu(device)

    def _gpu(self, device: int) -> VirtualGPU:
        if not 0 <= device < len(self.gpus):
            raise WireError(f"no device {device}")
        return self.gpus[device]

    # threads

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="kvwise-virtual-client", daemon=True
            )
            with self._lock:
                refused = self._closing or len(self._connections) >= _MAX_CONNECTIONS
                if not refused:
                    self._connections[connection] = thread
            if refused:
                connection.close()
            else:
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        session = Session(self, connection.recv, connection.sendall)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session.run()
        except (OSError, WireError):
            pass  # a client that dies or talks nonsense only loses its connection
        finally:
            session.end()
            with self._lock:
                self._connections.pop(connection, None)
                self._idle.notify_all()
            connection.close()
