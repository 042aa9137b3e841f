"""What a draft and its target do for each other, as far as it changes their graphs.

The target hands its hidden states on, the draft samples on its device, and may run on embeddings
and an output matrix of the target's. llama.cpp reserves both contexts once more for that before
their first batch. Source: common/speculative.cpp (the constructors of its implementations),
src/llama-context.cpp set_embeddings_layer_inp, set_embeddings_nextn, set_sampler, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvwise.gguf.header import Tensor

LENDABLE = ("token_embd.weight", "output.weight", "output.scale")
"""Weights that a draft may lack because its target has them."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A weight of the target's. `name` is what the draft knows it by, `tensor` its row in the
    target's file (a tied output is its embeddings), `device` a number of the draft's placement."""

    name: str
    tensor: Tensor
    device: int


@dataclass(frozen=True, slots=True)
class LentCache:
    """A layer of one of the target's caches, read by `layers` of the draft; rows in elements."""

    role: str
    layers: tuple[int, ...]
    cells: int
    streams: int
    types: tuple[str, str]
    rows: tuple[int, int]
    device: int


@dataclass(frozen=True, slots=True)
class Paired:
    """`embeddings_layer_inp`: layers whose input is handed on; `embeddings_nextn`: all rows of the
    last hidden state are; `samplers`: rows of each sequence that are sampled on the device; `lent`
    and `caches` are the target's. Names are llama.cpp's (llama_cparams)."""

    embeddings_layer_inp: tuple[int, ...] = ()
    embeddings_nextn: bool = False
    samplers: int = 0
    lent: tuple[Lent, ...] = ()
    caches: tuple[LentCache, ...] = ()

    def lends(self, name: str) -> Lent | None:
        """The target's weight of that name."""
        return next((each for each in self.lent if each.name == name), None)

    @property
    def at_first(self) -> Paired:
        """What is known when the context is made, which is all that a no-alloc pass sees."""
        return Paired(lent=self.lent, caches=self.caches)

    @property
    def without_lengths(self) -> Paired:
        """The same, whatever the cells of the target's caches."""
        return replace(self, caches=tuple(replace(each, cells=0) for each in self.caches))

    def home_of(self, role: str) -> int | None:
        """Device number of a cache of the target's."""
        return next((each.device for each in self.caches if each.role == role), None)


ALONE = Paired()
