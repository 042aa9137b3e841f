"""One row or short function per architecture: how its graph is put together.

Each module has `ROWS`: architecture -> function that builds the graph into a `Builder`. To add
one, write its row into the module it is nearest to, or a module of its own, and its name into
`_MODULES` here: a launch needs one graph, and loading only its module keeps the start short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from kvwise.memory.compute.builder import Builder

Build = Callable[[Builder], None]

_MODULES = {
    "adapters": "graniteswitch",
    "blocks": "minimax-m3",
    "codec": "wavtokenizer-dec",
    "deepseek4": "deepseek4",
    "delta_nets": "qwen3next qwen35 qwen35moe",
    "dense": (
        "llama mistral3 qwen qwen2 qwen2vl qwen3 internlm2 xverse codeshell orion olmo refact "
        "baichuan starcoder gpt2 starcoder2 bloom nemotron jais jais2 chatglm exaone smollm3 "
        "seed_oss arcee ernie4_5 paddleocr hunyuan-dense hunyuan_vl pangu-embedded maincoder "
        "granite granitemoe minicpm gemma command-r bitnet llama-embed dream llada falcon plamo "
        "phi2 phi3 phimoe gptneox stablelm"
    ),
    "dflash": "dflash",
    "drafts": "eagle3 gemma4-assistant",
    "encoders": (
        "bert nomic-bert nomic-bert-moe jina-bert-v3 jina-bert-v2 modern-bert neo-bert eurobert "
        "gemma-embedding"
    ),
    "experts": (
        "qwen3moe qwen2moe olmoe dbrx deepseek bailingmoe bailingmoe2 dots1 ernie4_5-moe "
        "hunyuan-moe "
        "minimax-m2 mellum llada-moe rnd1"
    ),
    "gated": "afmoe muse-glimmer laguna step35",
    "clef": "clef",
    "glm5_next": "glm5-next",
    "hy4": "hy_v4",
    "indexed": "deepseek32 glm-dsa dots3note",
    "kimi": "kimi-linear kimi-k3 bailingmoe3",
    "latent": "deepseek2 mistral4 deepseek2-ocr minicpm3 plm",
    "lightning": "minimax-01",
    "mamba": "mamba mamba2 jamba granitehybrid falcon-h1 nemotron_h nemotron_h_moe",
    "mixtures": "arctic grovemoe cohere2moe llama4 qwen3vlmoe glm4moe exaone-moe hy_v3 mimo2",
    "mtp": (
        "glm4moe hy_v3 deepseek2 deepseek32 glm-dsa mimo2 step35 qwen35 qwen35moe qwen3next "
        "cohere2moe nemotron_h_moe"
    ),
    "mtp_own": "bailingmoe3 deepseek4 glm5-next qwen4exp",
    "newer": "maple spark2_5 hrm_text k2-horizon gemma-embedding2",
    "per_layer": "gemma3n gemma4",
    "plamo2": "plamo2",
    "qwen4": "qwen4exp",
    "rwkv": "rwkv6 rwkv7 rwkv6qwen2 arwkv7",
    "short_conv": "lfm2 lfm2moe",
    "singles": "plamo3 qwen3vl qwen3tts cogvlm talkie nanbeige openelm chameleon pockettts",
    "t5": "t5 t5encoder",
    "variants": "apertus deci glm4 gpt-oss smallthinker grok mpt",
    "windowed": "gemma2 gemma3 cohere2 olmo2 exaone4 granite_swa",
}
"""Module -> the architectures whose graphs it has; `_DRAFTS` have those of their MTP layers."""


class Builders(Mapping[str, Build]):
    """Architecture -> its graph; a module is loaded when one of its graphs is asked for."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, architecture: str) -> Build:
        module = import_module(f"{__name__}.{self._homes[architecture]}")
        build: Build = module.ROWS[architecture]
        return build

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


_DRAFTS = ("mtp", "mtp_own")

_HOMES = {
    name: module
    for module, names in _MODULES.items()
    if module not in _DRAFTS
    for name in names.split()
}
_MTP_HOMES = {name: module for module in _DRAFTS for name in _MODULES[module].split()}

MTP = frozenset(_MTP_HOMES)
"""Architectures whose MTP layers have a graph of their own."""

BUILDERS = Builders(_HOMES)
"""Architecture -> its graph."""

DRAFTS = Builders(_HOMES | _MTP_HOMES)
"""Architecture -> the graph of a draft context: of its MTP layers, or the whole model's again."""
