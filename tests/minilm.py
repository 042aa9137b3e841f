"""all-MiniLM-L6-v2 as GGUF, made from a package's safetensors (BERT, 384 wide)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3


def write(source: Path, target: Path) -> None:
    """`source` = the package's model folder. Matrices become F16, the rest stays F32."""
    import gguf

    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(str(target), "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    words = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([_token(word) for word in words])
    writer.add_token_types([_kind(word) for word in words])
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))
    writer.add_sep_token_id(words.index("[SEP]"))
    writer.add_unk_token_id(words.index("[UNK]"))
    writer.add_pad_token_id(words.index("[PAD]"))
    writer.add_mask_token_id(words.index("[MASK]"))
    for name, array in _tensors(source / "model.safetensors"):
        large = array.ndim == 2 and "position" not in name and "token_types" not in name
        writer.add_tensor(name, array.astype("float16" if large else "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _token(word: str) -> str:
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else "\u2581" + word


def _kind(word: str) -> int:
    if word == "[UNK]":
        return _UNKNOWN
    return _CONTROL if word.startswith("[") and word.endswith("]") and len(word) > 2 else _NORMAL


def _tensors(path: Path) -> Iterator[tuple[str, Any]]:
    import numpy as np

    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(size))
        for name, about in table.items():
            new = _renamed(name)
            if new is None:
                continue
            begin, end = about["data_offsets"]
            file.seek(8 + size + begin)
            flat = np.frombuffer(file.read(end - begin), dtype="<f4")
            yield new, flat.reshape(about["shape"])


def _renamed(name: str) -> str | None:
    if name in _NAMES:
        return _NAMES[name]
    stem, _, kind = name.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    if not stem.startswith("encoder.layer."):
        return None  # position ids and the pooler's own layer
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.{kind}"
