"""The virtual device: its protocol answered as a client expects, and nonsense survived."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.device import Device
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.engine.virtual_rules import alloc_size
from kvwise.engine.virtual_wire import (
    BODY_LIMIT,
    TENSOR_BYTES,
    AllocSize,
    Command,
    WireError,
    WireTensor,
    parse_alloc_size,
    parse_tensor,
    read_request,
)
from kvwise.errors import UsageError
from kvwise.gguf.types import BY_ID, BY_NAME, F16, F32, GGMLType
from kvwise.units import GIB, MIB

CARD = VirtualGPU(6 * GIB, 5 * GIB)


class Client:
    """Speaks the protocol as llama.cpp does: sends a request, takes exactly one answer."""

    def __init__(self, endpoint: str) -> None:
        host, port = endpoint.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)

    def send(self, command: int, body: bytes = b"", length: int | None = None) -> None:
        size = len(body) if length is None else length
        self.socket.sendall(struct.pack("<BQ", command, size) + body)

    def ask(self, command: int, body: bytes = b"") -> bytes:
        self.send(command, body)
        return self.take()

    def take(self) -> bytes:
        (length,) = struct.unpack("<Q", self._exactly(8))
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            piece = self.socket.recv(size - len(got))
            if not piece:
                raise EOFError
            got += piece
        return got

    def hello(self) -> tuple[int, ...]:
        return tuple(self.ask(Command.HELLO, bytes(24))[:3])

    def over(self) -> bool:
        """Did the server end it?"""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


@contextlib.contextmanager
def client(server: VirtualDevices) -> Iterator[Client]:
    made = Client(server.endpoint)
    with made.socket:
        yield made


def tensor_bytes(
    kind: GGMLType,
    ne: tuple[int, ...],
    *,
    number: int = 7,
    nb: tuple[int, ...] | None = None,
    params: bytes = bytes(64),
    view_src: int = 0,
) -> bytes:
    shape = (*ne, 1, 1, 1, 1)[:4]
    if nb is None:
        row = kind.row_bytes(shape[0])
        nb = (kind.size, row, row * shape[1], row * shape[1] * shape[2])
    cut = [stride % (1 << 32) for stride in nb]
    return struct.pack(
        "<QIQ4I4II64sI80sQQQ64si",
        *(number, kind.id, 0, *shape, *cut, 0, params, 0, bytes(80), view_src, 0, 0, b"t", 0),
    )


def tensor(kind: str, *ne: int, number: int = 7, view_src: int = 0) -> WireTensor:
    made = parse_tensor(tensor_bytes(BY_NAME[kind], ne, number=number, view_src=view_src))
    assert made is not None
    return made


def test_answers_what_llama_cpp_asks_before_it_loads() -> None:
    with VirtualDevices([CARD, VirtualGPU(24 * GIB, 20 * GIB)]) as server, client(server) as link:
        assert server.names == ("RPC0", "RPC1")
        assert link.hello() == (5, 0, 0)
        assert link.ask(Command.DEVICE_COUNT) == struct.pack("<I", 2)
        second = struct.pack("<I", 1)
        assert link.ask(Command.GET_ALIGNMENT, second) == struct.pack("<Q", 128)
        assert link.ask(Command.GET_MAX_SIZE, second) == struct.pack("<Q", 2**64 - 1)
        memory = link.ask(Command.GET_DEVICE_MEMORY, second)
        assert memory == struct.pack("<QQ", 20 * GIB, 24 * GIB)
        assert server.major == 5


def test_the_hello_of_older_clients_is_three_bytes() -> None:
    with VirtualDevices([CARD], majors=(3,)) as server, client(server) as link:
        assert link.ask(Command.HELLO) == b"\x03\x00\x00"


def test_the_next_client_hears_the_next_major_until_one_stays() -> None:
    with VirtualDevices([CARD], majors=(5, 8, 4)) as server:
        for expected in (5, 8):
            with client(server) as link:
                assert link.hello()[0] == expected
            assert server.wait_idle()
        assert server.tries_left
        for _ in range(2):
            with client(server) as link:
                assert link.hello()[0] == 4
                link.ask(Command.DEVICE_COUNT)
        assert server.major == 4
        assert not server.tries_left


def test_no_major_is_left_after_all_were_refused() -> None:
    with VirtualDevices([CARD], majors=(5,)) as server:
        with client(server) as link:
            link.hello()
        assert server.wait_idle()
        assert not server.tries_left
        assert server.major is None


def _allocate(link: Client, size: int, device: int = 0) -> int:
    address, got = struct.unpack(
        "<QQ", link.ask(Command.ALLOC_BUFFER, struct.pack("<IQ", device, size))
    )
    assert got == (size if address else 0)
    return int(address)


def test_a_buffer_takes_free_memory_and_gives_it_back() -> None:
    with VirtualDevices([CARD]) as server, client(server) as link:
        link.hello()
        address = _allocate(link, 3 * GIB)
        assert address
        assert address % 128 == 0
        base = link.ask(Command.BUFFER_GET_BASE, struct.pack("<Q", address))
        assert struct.unpack("<Q", base)[0] == address
        assert server.free_bytes(0) == 2 * GIB
        assert _allocate(link, 3 * GIB) == 0
        assert link.ask(Command.FREE_BUFFER, struct.pack("<Q", address)) == b""
        assert _allocate(link, 5 * GIB)
        assert [one.granted for one in server.allocations] == [True, False, True]


def test_a_fragmented_card_refuses_what_no_block_holds() -> None:
    with (
        VirtualDevices([VirtualGPU(6 * GIB, 5 * GIB, largest_block_bytes=GIB)]) as server,
        client(server) as link,
    ):
        link.hello()
        assert _allocate(link, GIB + 1) == 0
        assert all(_allocate(link, GIB) for _ in range(5))
        assert _allocate(link, 1) == 0


def test_what_a_client_held_is_free_when_it_is_gone() -> None:
    with VirtualDevices([CARD]) as server:
        with client(server) as link:
            link.hello()
            assert _allocate(link, 5 * GIB)
            assert not server.wait_idle(0.01)
        assert server.wait_idle()
        assert server.free_bytes(0) == 5 * GIB


def test_addresses_of_buffers_never_overlap() -> None:
    with VirtualDevices([CARD]) as server, client(server) as link:
        link.hello()
        sizes = [1, 127, 2 * MIB, 3 * MIB + 5, 0]
        spans = [(start, start + size) for size in sizes for start in [_allocate(link, size)]]
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert end <= start


@pytest.mark.parametrize(("major", "answered"), [(1, True), (5, True), (6, False), (8, False)])
def test_which_majors_wait_for_empty_answers(major: int, answered: bool) -> None:
    with VirtualDevices([CARD], majors=(major,)) as server, client(server) as link:
        link.hello()
        address = _allocate(link, MIB)
        link.send(Command.BUFFER_CLEAR, struct.pack("<QB", address, 0))
        link.send(Command.INIT_TENSOR, tensor_bytes(F32, (4,)))
        if answered:
            assert link.take() == b""
            assert link.take() == b""
        # Whatever was or was not answered, the next question gets its own answer.
        assert link.ask(Command.DEVICE_COUNT) == struct.pack("<I", 1)


def test_weights_and_graphs_are_dropped_and_reads_are_zero() -> None:
    with VirtualDevices([CARD]) as server, client(server) as link:
        link.hello()
        link.send(Command.SET_TENSOR, tensor_bytes(F32, (4,)) + bytes(8) + b"x" * (1 << 20))
        link.send(Command.GRAPH_COMPUTE, bytes(300_000))
        link.send(Command.GRAPH_RECOMPUTE, bytes(4))
        read = tensor_bytes(F32, (4,)) + struct.pack("<QQ", 0, 100_000)
        assert link.ask(Command.GET_TENSOR, read) == bytes(100_000)
        same = link.ask(Command.SET_TENSOR_HASH, tensor_bytes(F32, (4,)) + bytes(16))
        assert same == b"\x01"


def test_alloc_size_over_the_wire_for_protocols_with_and_without_sources() -> None:
    weight = tensor_bytes(BY_NAME["q4_0"], (96, 10))
    with VirtualDevices([VirtualGPU(GIB, GIB, "cuda")]) as server, client(server) as link:
        link.hello()
        for body in (weight, bytes(4) + weight, bytes(4) + weight + bytes(10 * TENSOR_BYTES)):
            (size,) = struct.unpack("<Q", link.ask(Command.GET_ALLOC_SIZE, body))
            assert size == 10 * 3 * 18 + (512 - 96) // 32 * 18


NONSENSE = [
    (Command.DEVICE_COUNT, b"", None),  # before any hello
    (99, b"", None),
    (Command.HELLO, bytes(5), None),
    (Command.GET_ALIGNMENT, struct.pack("<I", 7), None),
    (Command.GET_ALIGNMENT, bytes(3), None),
    (Command.ALLOC_BUFFER, bytes(11), None),
    (Command.GET_ALLOC_SIZE, bytes(4 + TENSOR_BYTES), None),
    (Command.GET_ALLOC_SIZE, b"", None),
    (Command.GET_ALLOC_SIZE, bytes(100), None),
    (Command.BUFFER_GET_BASE, struct.pack("<Q", 12345), None),
    (Command.FREE_BUFFER, struct.pack("<Q", 12345), None),
    (Command.GET_TENSOR, tensor_bytes(F32, (4,)) + struct.pack("<QQ", 0, 1 << 60), None),
    (Command.GET_TENSOR, b"", None),
    (Command.GET_ALIGNMENT, b"", 1 << 62),
    (Command.GET_ALIGNMENT, b"", BODY_LIMIT + 1),
]


@pytest.mark.parametrize("number", range(len(NONSENSE)))
def test_nonsense_costs_only_its_own_connection(number: int) -> None:
    command, body, length = NONSENSE[number]
    with VirtualDevices([CARD]) as server:
        with client(server) as link:
            if number:
                link.hello()
                link.ask(Command.DEVICE_COUNT)
            link.send(command, body, length)
            assert link.over()
        with client(server) as link:
            link.hello()
            assert link.ask(Command.DEVICE_COUNT) == struct.pack("<I", 1)


def test_a_huge_allocation_is_refused_not_made() -> None:
    with VirtualDevices([CARD]) as server, client(server) as link:
        link.hello()
        assert _allocate(link, (1 << 64) - 1) == 0


def test_a_huge_body_is_read_past_without_being_kept() -> None:
    asked: list[int] = []
    length = 1 << 40

    def receive(size: int) -> bytes:
        asked.append(size)
        if len(asked) == 1:
            return bytes([Command.SET_TENSOR])
        if len(asked) == 2:
            return struct.pack("<Q", length)
        return b"" if len(asked) > 50 else bytes(size)

    with pytest.raises(WireError):
        read_request(receive)
    assert max(asked) <= 1 << 16


def test_it_is_gone_with_its_block() -> None:
    before = threading.active_count()
    with VirtualDevices([CARD]) as server:
        endpoint = server.endpoint
        links = [Client(endpoint) for _ in range(3)]
        for link in links:
            link.hello()
    assert threading.active_count() == before
    for link in links:
        assert link.over()
        link.socket.close()
    with pytest.raises(ConnectionRefusedError):
        Client(endpoint)
    server.close()


def test_it_is_gone_when_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), VirtualDevices([CARD]) as server:
        endpoint = server.endpoint
        raise ZeroDivisionError
    with pytest.raises(ConnectionRefusedError):
        Client(endpoint)


def test_a_server_never_entered_leaves_no_port() -> None:
    server = VirtualDevices([CARD])
    endpoint = server.endpoint
    server.close()
    with pytest.raises(ConnectionRefusedError):
        Client(endpoint)


def test_more_clients_than_it_serves_are_turned_away() -> None:
    with VirtualDevices([CARD]) as server, contextlib.ExitStack() as stack:
        links = [stack.enter_context(client(server)) for _ in range(33)]
        for link in links[:32]:
            assert link.hello()
        links[32].send(Command.HELLO, bytes(24))
        assert links[32].over()


@pytest.mark.parametrize(
    "gpus",
    [[], [CARD] * 17, [VirtualGPU(GIB, 2 * GIB)], [VirtualGPU(-1, -1)], [VirtualGPU(1 << 60, 0)]],
)
def test_impossible_gpus_are_refused(gpus: list[VirtualGPU]) -> None:
    with pytest.raises(UsageError):
        VirtualDevices(gpus)


def test_the_twin_of_a_device() -> None:
    device = Device("RTX 4060", "cuda", 8 * GIB, 7 * GIB)
    assert VirtualGPU.of(device, GIB) == VirtualGPU(8 * GIB, 7 * GIB, "cuda", 128, GIB)
    assert VirtualGPU.of(Device("x", total_bytes=GIB)).free_bytes == GIB


@given(st.lists(st.binary(max_size=400), max_size=8))
@settings(max_examples=300, deadline=None)
def test_the_reader_never_fails_in_another_way(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    position = 0

    def receive(size: int) -> bytes:
        nonlocal position
        piece = data[position : position + max(1, min(size, 7))]
        position += len(piece)
        return piece

    with contextlib.suppress(WireError):
        while (request := read_request(receive)) is not None:
            assert len(request.body) <= BODY_LIMIT
            if request.command is Command.GET_ALLOC_SIZE:
                alloc_size(parse_alloc_size(request.body), "cuda")


@given(st.integers(0, 4), st.binary(max_size=4 * TENSOR_BYTES), st.sampled_from(["cuda", "vulkan"]))
@settings(max_examples=300, deadline=None)
def test_any_tensors_bytes_give_a_size_or_a_wire_error(count: int, noise: bytes, kind: str) -> None:
    body = (bytes(4) + tensor_bytes(F32, (64, 8)) + noise)[: 4 + (1 + count) * TENSOR_BYTES]
    with contextlib.suppress(WireError):
        assert alloc_size(parse_alloc_size(body), kind) >= 0


@given(st.sampled_from(sorted(BY_ID)), st.lists(st.integers(1, 70_000), min_size=4, max_size=4))
def test_a_contiguous_tensor_is_counted_whole_beyond_32_bit_strides(
    number: int, sizes: list[int]
) -> None:
    kind = BY_ID[number]
    ne = (sizes[0] * kind.block, *sizes[1:])
    made = parse_tensor(tensor_bytes(kind, ne))
    assert made is not None
    assert made.nbytes == kind.row_bytes(ne[0]) * ne[1] * ne[2] * ne[3]


def test_a_view_is_counted_by_its_strides() -> None:
    made = parse_tensor(tensor_bytes(F16, (64, 10, 2), nb=(2, 1024, 10_240, 20_480)))
    assert made is not None
    assert made.nbytes == 2 + 63 * 2 + 9 * 1024 + 10_240


def _attention(kind: str, width: int, cells: int, tokens: int, **views: int) -> AllocSize:
    return AllocSize(
        0,
        tensor("f32", width, 16, tokens),
        (
            tensor("f32", width, tokens, 16, number=1),
            tensor(kind, width, cells, 4, number=2),
            tensor(kind, width, cells, 4, number=3, **views),
            tensor("f16", cells, tokens, number=4),
        ),
    )


@pytest.mark.parametrize(
    ("kind", "width", "tokens", "copies"),
    [
        ("q8_0", 128, 512, 2),
        ("f16", 128, 512, 0),
        ("q8_0", 128, 1, 0),  # the vector kernel reads quantized caches as they are
        ("q5_1", 128, 512, 0),  # no kernel for this type in a default build
        ("q8_0", 100, 512, 0),  # nor for this width
        ("bf16", 64, 512, 2),
    ],
)
def test_cuda_keeps_f16_copies_for_flash_attention(
    kind: str, width: int, tokens: int, copies: int
) -> None:
    question = _attention(kind, width, 1024, tokens)
    own = width * 16 * tokens * 4
    assert alloc_size(question, "cuda") == own + copies * width * 1024 * 4 * 2
    assert alloc_size(question, "generic") == own


def test_cuda_copies_k_once_when_v_is_a_view_of_it() -> None:
    question = _attention("q8_0", 128, 1024, 512, view_src=2)
    assert alloc_size(question, "cuda") == 128 * 16 * 512 * 4 + 128 * 1024 * 4 * 2
