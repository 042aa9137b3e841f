"""One client of the virtual device, from its hello to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kvwise.engine.virtual_rules import alloc_size
from kvwise.engine.virtual_wire import (
    Command,
    Request,
    WireError,
    answer,
    parse_alloc_size,
    read_request,
    unpack,
    with_device,
    zeros,
)
from kvwise.units import pad

if TYPE_CHECKING:
    from kvwise.engine.virtual import VirtualDevices

_BASE = 1 << 40
"""Address of the first buffer. Never read or written: it only has to be plausible and aligned."""
_SPACING = 1 << 21
_DONE = answer(shape="")
_HELLO_BYTES = 24


class Session:
    """Answers one client's requests; its buffers end with it."""

    def __init__(
        self,
        devices: VirtualDevices,
        receive: Callable[[int], bytes],
        send: Callable[[bytes], object],
    ) -> None:
        self._devices = devices
        self._receive = receive
        self._send = send
        self._buffers: dict[int, tuple[int, int]] = {}  # address -> device, bytes
        self._next = _BASE
        self._major: int | None = None
        self._stayed = False

    def run(self) -> None:
        """Answer until the client leaves; raises WireError for nonsense, OSError when it dies."""
        while (request := read_request(self._receive)) is not None:
            if request.command is not Command.HELLO and not self._stayed:
                self._stays()
            for piece in self._answers(request):
                self._send(piece)

    def end(self) -> None:
        """Give back what this client still holds, and say whether it ever stayed."""
        if self._major is not None and not self._stayed:
            self._devices.settle(self._major, stayed=False)
        for device, size in self._buffers.values():
            self._devices.release(device, size)
        self._buffers.clear()

    def _stays(self) -> None:
        if self._major is None:
            raise WireError("no hello")
        self._stayed = True
        self._devices.settle(self._major, stayed=True)

    def _answers(self, request: Request) -> Iterable[bytes]:
        handler = _HANDLERS.get(request.command)
        return (handler(self, request.body),) if handler else self._bulk(request)

    def _bulk(self, request: Request) -> Iterable[bytes]:
        if request.command is Command.GET_TENSOR:
            *_, size = unpack(request.body[-16:], "QQ")
            if size > max(gpu.total_bytes for gpu in self._devices.gpus):
                raise WireError(f"a read of {size} bytes")
            return zeros(size)
        # Protocol 1 alone waits for an answer to written weights.
        waits = request.command is Command.SET_TENSOR and self._major == 1
        return (_DONE,) if waits else ()

    def _hello(self, body: bytes) -> bytes:
        # Until protocol 4 the client sends nothing and takes three bytes; then both add their
        # transport's capabilities. All zero: plain TCP.
        if len(body) not in (0, _HELLO_BYTES):
            raise WireError(f"a hello of {len(body)} bytes")
        self._major = self._devices.greet()
        return answer(self._major, 0, 0, shape=f"BBB{len(body) + 1 if body else 0}x")

    def _device_count(self, body: bytes) -> bytes:
        unpack(body, "")
        return answer(len(self._devices.gpus), shape="I")

    def _alignment(self, body: bytes) -> bytes:
        (device,) = with_device(body, "")
        return answer(self._devices.gpu(device).alignment, shape="Q")

    def _max_size(self, body: bytes) -> bytes:
        (device,) = with_device(body, "")
        return answer(self._devices.gpu(device).max_buffer_bytes, shape="Q")

    def _memory(self, body: bytes) -> bytes:
        (device,) = with_device(body, "")
        free = self._devices.free_bytes(device)
        return answer(free, self._devices.gpu(device).total_bytes, shape="QQ")

    def _alloc_size(self, body: bytes) -> bytes:
        question = parse_alloc_size(body)
        size = alloc_size(question, self._devices.gpu(question.device).kind)
        return answer(min(size, (1 << 64) - 1), shape="Q")

    def _allocate(self, body: bytes) -> bytes:
        device, size = with_device(body, "Q")
        if not self._devices.allocate(device, size):
            return answer(0, 0, shape="QQ")
        address = self._next
        self._next += pad(size + 1, _SPACING)
        self._buffers[address] = (device, size)
        return answer(address, size, shape="QQ")

    def _base(self, body: bytes) -> bytes:
        (address,) = unpack(body, "Q")
        self._held(address)
        return answer(address, shape="Q")

    def _free(self, body: bytes) -> bytes:
        (address,) = unpack(body, "Q")
        self._devices.release(*self._held(address))
        del self._buffers[address]
        return self._done(body)

    def _held(self, address: int) -> tuple[int, int]:
        if address not in self._buffers:
            raise WireError("no such buffer")
        return self._buffers[address]

    def _done(self, _body: bytes) -> bytes:
        # From protocol 6 on the client no longer waits for an answer that says nothing.
        return _DONE if self._major is None or self._major < 6 else b""

    def _yes(self, _body: bytes) -> bytes:
        # "The same data is here already" (weights), "copied": nothing has to be sent.
        return answer(1, shape="B")

    def _silent(self, _body: bytes) -> bytes:
        return b""


_HANDLERS: dict[Command, Callable[[Session, bytes], bytes]] = {
    Command.HELLO: Session._hello,  # noqa: SLF001  (a table beside the class it belongs to)
    Command.DEVICE_COUNT: Session._device_count,  # noqa: SLF001
    Command.GET_ALIGNMENT: Session._alignment,  # noqa: SLF001
    Command.GET_MAX_SIZE: Session._max_size,  # noqa: SLF001
    Command.GET_DEVICE_MEMORY: Session._memory,  # noqa: SLF001
    Command.GET_ALLOC_SIZE: Session._alloc_size,  # noqa: SLF001
    Command.ALLOC_BUFFER: Session._allocate,  # noqa: SLF001
    Command.BUFFER_GET_BASE: Session._base,  # noqa: SLF001
    Command.FREE_BUFFER: Session._free,  # noqa: SLF001
    Command.BUFFER_CLEAR: Session._done,  # noqa: SLF001
    Command.INIT_TENSOR: Session._done,  # noqa: SLF001
    Command.MEMSET_TENSOR: Session._done,  # noqa: SLF001
    Command.SET_TENSOR_HASH: Session._yes,  # noqa: SLF001
    Command.COPY_TENSOR: Session._yes,  # noqa: SLF001
    Command.GRAPH_COMPUTE: Session._silent,  # noqa: SLF001
    Command.GRAPH_RECOMPUTE: Session._silent,  # noqa: SLF001
}
