"""Properties of the free list: blocks never overlap, nothing is lost, the peak is honest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvwise.memory.compute.freelist import ENDLESS, FreeList

STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 5000), st.integers(0, 99)), max_size=80)


def replay(steps: list[tuple[bool, int, int]], alignment: int) -> tuple[FreeList, dict[int, int]]:
    """Do the steps; the list and what is held (offset -> padded size)."""
    blocks = FreeList(alignment)
    held: dict[int, int] = {}
    for take, size, pick in steps:
        if take or not held:
            offset = blocks.alloc(size)
            assert offset not in held
            held[offset] = blocks.pad(size)
        else:
            offset = sorted(held)[pick % len(held)]
            blocks.free(offset, held.pop(offset))
    return blocks, held


@given(STEPS, st.sampled_from([1, 32, 128]))
def test_every_byte_is_free_or_held_exactly_once(
    steps: list[tuple[bool, int, int]], alignment: int
) -> None:
    blocks, held = replay(steps, alignment)
    spans = [*zip(blocks.offsets, blocks.sizes, strict=True), *held.items()]
    at = 0
    for offset, size in sorted(spans):
        assert offset == at
        assert size > 0
        at = offset + size
    assert at == ENDLESS


@given(STEPS, st.sampled_from([1, 32, 128]))
def test_neighbours_are_joined_and_offsets_are_aligned(
    steps: list[tuple[bool, int, int]], alignment: int
) -> None:
    blocks, held = replay(steps, alignment)
    ends = [o + s for o, s in zip(blocks.offsets, blocks.sizes, strict=True)]
    assert not set(ends) & set(blocks.offsets)
    assert all(offset % alignment == 0 for offset in (*blocks.offsets, *held))


@given(STEPS)
def test_peak_is_the_highest_end_ever_and_all_comes_back(
    steps: list[tuple[bool, int, int]],
) -> None:
    blocks, held = replay(steps, 32)
    assert blocks.peak >= max((o + s for o, s in held.items()), default=0)
    for offset, size in held.items():
        blocks.free(offset, size)
    assert (blocks.offsets, blocks.sizes) == ([0], [ENDLESS])


def test_smallest_block_that_fits_of_equal_ones_the_last() -> None:
    blocks = FreeList(1)
    offsets = [blocks.alloc(size) for size in (100, 1, 50, 1, 50, 1)]
    for place, size in ((0, 100), (2, 50), (4, 50)):
        blocks.free(offsets[place], size)
    assert blocks.alloc(50) == offsets[4]
    assert blocks.alloc(40) == offsets[2]
    assert blocks.alloc(60) == offsets[0]
    assert blocks.peak == 203


def test_a_block_of_no_bytes_stays_in_the_list_as_in_ggml() -> None:
    blocks = FreeList(32)
    first = blocks.alloc(64)
    nothing = blocks.alloc(0)
    held = blocks.alloc(64)
    assert nothing == held
    blocks.free(nothing, 0)
    assert blocks.offsets == [64, 128]
    blocks.free(held, 64)
    assert (blocks.offsets, blocks.sizes[0] > 64) == ([64], True)
    blocks.free(first, 64)
    assert blocks.offsets == [0]


def test_a_tensor_of_no_bytes_may_be_freed_behind_the_endless_block() -> None:
    """As in recurrent graphs: the rows of no other sequence lie where a larger tensor ended."""
    blocks = FreeList(32)
    first, empty = blocks.alloc(64), blocks.alloc(0)
    blocks.free(first, 64)
    blocks.free(empty, 0)
    assert (blocks.offsets, blocks.sizes) == ([0, 64], [ENDLESS, 0])
    assert blocks.alloc(32) == 0
    assert blocks.peak == 64
