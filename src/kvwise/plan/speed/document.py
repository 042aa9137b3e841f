"""A speed as the `speed` object of kvwise's JSON documents."""

from __future__ import annotations

from typing import Any

from kvwise.memory.placement import HOST
from kvwise.plan.speed.estimate import Speed
from kvwise.plan.speed.roofline import Range
from kvwise.text import say


def speed_json(speed: Speed, language: str = "en") -> dict[str, Any]:
    """The `speed` object: tokens per second to compare by, their ranges, what they stand on."""
    return {
        "prompt_tokens_per_s": speed.prompt_tokens_per_s,
        "decode_tokens_per_s": speed.decode_tokens_per_s,
        "prompt_range": _range(speed.prompt),
        "decode_range": _range(speed.decode),
        "basis": speed.basis,
        "prompt_basis": speed.prompt_basis,
        "depth": speed.depth,
        "read_bytes_gpu": speed.read_bytes_gpu,
        "read_bytes_host": speed.read_bytes_host,
        "devices": [
            {
                "device": None if part.device == HOST else part.device,
                "host": part.device == HOST,
                "weights_read_bytes": part.weights,
                "cache_read_bytes": part.cache,
                "flops": part.matrix_flops + part.output_flops,
                "attention_flops": part.attention_flops,
            }
            for part in speed.parts
        ],
        "bound_by": say(speed.bound_by, language) if speed.bound_by else None,
        "stands_on": [say(each, language) for each in speed.stands_on],
        "penalties": [
            {
                "prompt": list(each.prompt),
                "decode": list(each.decode),
                "why": say(each.why, language),
                "source": say(each.source, language),
            }
            for each in speed.penalties
        ],
    }


def _range(found: Range | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"low": round(found.low, 2), "high": round(found.high, 2)}
