"""Files that lie beside a model in its repository, such as `eagle3-NAME-Q8_0.gguf`: which is meant.

Source: common/download.cpp find_best_sibling, get_gguf_split_info, extract_quant_bits, b10605.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SHARD = re.compile(r"-\d{5}-of-\d{5}$", re.IGNORECASE)
_TAG = re.compile(r"[-.]([A-Z0-9_]+)$", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")


def beside_model(files: Sequence[str], model: str, word: str, quant: str) -> str:
    """The file with `word` in its path that fits `model` best; empty if there is none.

    It lies in the model's folder or above. Of several the deepest counts, of these one whose name
    ends in the quant that was asked for, then the one whose quant is nearest to that, or to the
    model's; then the first.
    """
    bits = _bits(quant) if quant else _bits(_tag(model))
    home = model.split("/")[:-1]
    best, best_rank = "", (0, False, 0)
    for path in files:
        folders = path.split("/")[:-1]
        if not path.endswith(".gguf") or word not in path or folders != home[: len(folders)]:
            continue
        exact = bool(quant) and f"-{quant.upper()}." in path.upper()
        rank = (len(folders), exact, -abs(_bits(_tag(path)) - bits))
        if not best or rank > best_rank:
            best, best_rank = path, rank
    return best


def _tag(path: str) -> str:
    """The last part of a name, which tells the quant: `Q8_0`."""
    found = _TAG.search(_SHARD.sub("", path.removesuffix(".gguf"))) if path else None
    return found[1] if found else ""


def _bits(tag: str) -> int:
    """The first number of a quant's name, 0 if it has none: 16 of `F16`."""
    found = _DIGITS.search(tag)
    return int(found[0]) if found else 0
