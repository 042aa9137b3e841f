"""A graph for an architecture that is not known, put together from what its layers' weights say.

Every layer is read for itself: which weights stand for attention, for a state, for experts, and
the known part that uses them is taken. Parts are those of architectures whose graphs are known,
so the result errs only in order and in what joins the parts. Used for estimates alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families import delta_nets, kimi, short_conv
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import indexer, latent, norm, output
from kvwise.memory.compute.pieces.attention import Extras
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    last_rows,
    self_attention,
    start,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.kda import Kda, kda
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.mamba import mamba, mamba2
from kvwise.memory.compute.pieces.moe import GATING, Moe, moe

Part = Callable[[Builder, Tensor, int], Tensor]
"""From the builder, the layer's normed input and the layer: what is added to the stream."""


@dataclass(frozen=True, slots=True)
class State:
    """A part with a recurrent state: the weight that shows it, and who has it."""

    shown_by: str
    part: Part
    known: frozenset[str]


def _of(names: str) -> frozenset[str]:
    return frozenset(names.split())


_DECAYING = _of("kimi-linear kimi-k3 bailingmoe3")
_CHOOSING = _of("deepseek32 glm-dsa dots3note")

STATES = (
    State("ssm_x.weight", mamba, _of("mamba jamba")),
    State("ssm_g_b.weight", partial(kda, how=kimi.LINEAR), _DECAYING),
    State("ssm_g_a.weight", partial(kda, how=kimi.LING), _DECAYING),
    State("ssm_g.weight", partial(kda, how=Kda("softplus", ("ssm_g",), every=True)), _DECAYING),
    State(
        "ssm_ba.weight",
        partial(delta_nets.delta_net, next_=True),
        _of("qwen3next"),
    ),
    State(
        "ssm_beta.weight",
        partial(delta_nets.delta_net, next_=False),
        _of("qwen35 qwen35moe"),
    ),
    State("ssm_in.weight", mamba2, _of("mamba2 granitehybrid falcon-h1 nemotron_h nemotron_h_moe")),
    State("shortconv.in_proj.weight", short_conv.short_conv, _of("lfm2 lfm2moe")),
)
"""What is looked for first stands first."""


@dataclass(frozen=True, slots=True)
class Joints:
    """What weights do not say: whether the rows that are asked for are picked after the last norm,
    whether a layer's input is added before its parts, whether heads are rotated."""

    late: bool = False
    first: bool = False
    turned: bool = True


def rows(without: Collection[str]) -> dict[str, Build]:
    """Graphs with all joints there are; parts that only the architectures of `without` have are
    not used."""
    gone = frozenset(without)
    found: dict[str, Build] = {}
    for flags in product((False, True), repeat=3):
        joints = Joints(*flags)
        found[f"({joints})"] = partial(_composed, without=gone, joints=joints)
    return found


def picks_late(build: Build) -> bool:
    """Whether one of these graphs picks rows after the last norm."""
    return isinstance(build, partial) and bool(build.keywords["joints"].late)


def _composed(b: Builder, *, without: frozenset[str], joints: Joints) -> None:
    x = start(b, Decoder())
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        if joints.first:
            b.expand(cur)
        made = _mixed(b, cur, il, without, joints)
        alone = made is None
        if made is None:
            made = _feed_forward(b, cur, il)
        if b.has(il, "post_attention_norm.weight") and b.has(il, "ffn_norm.weight"):
            made = norm.layer(b, made, il, "post_attention_norm")
        if il == b.n_layer - 1 and not joints.late:
            made, x = last_rows(b, made, x)
        x = ops.add(made, x)
        if not alone and (b.has(il, "ffn_down.weight") or b.has(il, "ffn_gate_inp.weight")):
            x = ops.add(_second(b, x, il), x)
    _finish(b, x, late=joints.late)


def _second(b: Builder, x: Tensor, il: int) -> Tensor:
    """The feed-forward part after attention, with its norms."""
    for name in ("ffn_norm", "post_attention_norm"):
        if b.has(il, name + ".weight") or b.has(il, name):
            cur = _feed_forward(b, norm.layer(b, x, il, name), il)
            break
    else:
        cur = _feed_forward(b, x, il)
    return norm.layer(b, cur, il, "post_ffw_norm") if b.has(il, "post_ffw_norm.weight") else cur


def _mixed(
    b: Builder, x: Tensor, il: int, without: frozenset[str], joints: Joints
) -> Tensor | None:
    """What attention, a state, or both side by side add; None for a layer that has neither."""
    made: list[Tensor] = []
    state = next((each for each in STATES if b.has(il, each.shown_by)), None)
    if state is None or (b.model.n_head_kv[il] and not b.has(il, "attn_gate.weight")):
        attended = _attention(b, x, il, without, turned=joints.turned)
        made += [] if attended is None else [attended]
    if state is not None:
        if state.known <= without:
            raise Unbuildable(f"nothing else has {state.shown_by}")
        made.append(state.part(b, x, il))
    if len(made) == 2:
        return ops.add(made[0], made[1])
    return made[0] if made else None


def _attention(
    b: Builder, x: Tensor, il: int, without: frozenset[str], *, turned: bool
) -> Tensor | None:
    if b.has(il, "indexer.attn_q_b.weight"):
        if without >= _CHOOSING:
            raise Unbuildable("nothing else has an indexer")
        return _chosen(b, x, il)
    if b.has(il, "attn_kv_a_mqa.weight"):
        if without >= _DECAYING:
            raise Unbuildable("nothing else has latent attention beside states")
        return _latent(b, x, il)
    if not b.has(il, "attn_q.weight") and not b.has(il, "attn_qkv.weight"):
        return None
    model, table = b.model, b.model.header.by_name
    q = table.get(f"blk.{il}.attn_q.weight")
    head, heads = model.n_embd_head_k(il), model.n_head[il]
    if q is not None and q.shape[1] == 2 * head * heads:
        return delta_nets.attend(b, x, il, next_=False)
    scale = table.get(f"blk.{il}.attn_q_norm.weight")
    how = Attention(
        rope=turned, factors=True, two_sizes=model.n_embd_head_v(il) != head, sinks=True
    )
    if scale is not None:
        whole = scale.shape[0] != head
        kind: Literal["rows", "before"] = "rows" if whole else "before"
        how = Attention(rope=turned, factors=True, qk_norm=kind, sinks=True)
    return self_attention(b, x, il, how)


def _chosen(b: Builder, x: Tensor, il: int) -> Tensor:
    """Latent attention over those tokens that the layer's indexer chose."""
    roles = {cache.role.rpartition(".")[2]: cache.role for cache in b.caches}
    size, rows = latent.sizes(b, il), latent.query_rows(b, x, il)
    chosen = indexer.top_k(b, x, rows, il, role=roles["indexer"])
    q = ops.mul_mat(b.need(il, "attn_q_b.weight"), rows)
    q, k, v = latent.absorbed(b, q, latent.compressed(b, x, il, size), il, size)
    extras = Extras(v_mla=b.need(il, "attn_v_b.weight"))
    return indexer.cached(b, q, k, v, chosen, il, role=roles["mla"], extras=extras)


def _latent(b: Builder, x: Tensor, il: int) -> Tensor:
    cur = kimi.attended(b, x, il, turn=True)
    gate = b.w(il, "attn_gate.weight")
    if gate is not None:
        value, heads, n = b.model.n_embd_head_v_mla, b.model.n_head[il], b.n_tokens
        opened = ops.unary("SIGMOID", ops.mul_mat(gate, x))
        if gate.ne[1] == heads:
            cur = ops.mul(ops.reshape(cur, value, heads, n), ops.reshape(opened, 1, heads, n))
            cur = ops.cont(cur, value * heads, n)
        else:
            cur = ops.mul(cur, opened)
    return linear(b, cur, il, "attn_output", bias=False)


def _feed_forward(b: Builder, x: Tensor, il: int) -> Tensor:
    """A dense network, or experts and the network that all tokens pass."""
    if not b.has(il, "ffn_gate_inp.weight"):
        return ffn(b, x, il)
    model = b.model
    router = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), x)
    experts = Moe(
        gating=GATING.get(model.expert_gating_func, "softmax"),
        norm=True,
        scale=model.expert_weights_scale,
        router=router,
    )
    small = b.w(il, "ffn_latent_down.weight")
    cur = moe(b, x if small is None else ops.mul_mat(small, x), il, experts)
    back = b.w(il, "ffn_latent_up.weight")
    cur = cur if back is None else ops.mul_mat(back, cur)
    if not b.has(il, "ffn_up_shexp.weight"):
        return cur
    shared = ffn(b, x, il, suffix="_shexp")
    gate = b.w(il, "ffn_gate_inp_shexp.weight")
    if gate is not None:
        shared = ops.mul(shared, ops.unary("SIGMOID", ops.mul_mat(gate, x)))
    return ops.add(cur, shared)


def _finish(b: Builder, x: Tensor, *, late: bool) -> None:
    name = "output_norm" if "output_norm.weight" in b.model.header.by_name else "token_embd_norm"
    cur = output.final_norm(b, x, name=name)
    if late:
        b.outputs.append(cur)
        cur = b.embd = ops.get_rows(cur, b.out_rows())
    output.hand_out(b, output.logits(b, cur))
