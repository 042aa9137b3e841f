"""Rows of the options that set a field of Launch: those that decide where bytes go.

Source: common/arg.cpp and tools/llama-bench/llama-bench.cpp, b10605. The help texts are ours.
"""

from __future__ import annotations

from kvwise.options.kinds import (
    ALL_LAYERS,
    BATCH,
    BENCH_CACHE,
    BENCH_DEVICES,
    BENCH_LAYERS,
    BENCH_NOT,
    BENCH_ON,
    BENCH_OVERRIDES,
    BENCH_PAIR,
    BENCH_SPLIT,
    BENCH_TOKENS,
    BUILD,
    CACHE,
    CONTEXT,
    DENSE,
    DEVICES,
    FLAG,
    FLASH,
    INT,
    LAYERS,
    NATURAL,
    ON_OFF,
    OVERRIDES,
    SPEC_TYPES,
    SPLIT,
    SWITCH,
    TEXT,
    one_of,
)
from kvwise.options.row import BENCH, BOTH, EVERY, SERVER, Option

LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
SPLIT_MODES = ("none", "layer", "row", "tensor")
POOLING = ("none", "mean", "cls", "last", "rank")

MODEL_ROWS = (
    Option(("-m", "--model"), TEXT, "_path", "LLAMA_ARG_MODEL", tools=EVERY, memory=True,
           bench=("-m", "--model"), help="model file", value="PATH"),
    Option(("-mu", "--model-url"), TEXT, "_url", "LLAMA_ARG_MODEL_URL", memory=True,
           help="address of a model file", value="URL"),
    Option(("-dr", "--docker-repo"), TEXT, "_docker", "LLAMA_ARG_DOCKER_REPO", memory=True,
           help="model on Docker Hub", value="REPO"),
    Option(("-hf", "-hfr", "--hf-repo"), TEXT, "_hf", "LLAMA_ARG_HF_REPO", tools=EVERY,
           bench=("-hf", "-hfr", "--hf-repo"), memory=True, help="model on the Hugging Face Hub",
           value="OWNER/REPO[:QUANT]"),
    Option(("-hff", "--hf-file"), TEXT, "_hf_file", "LLAMA_ARG_HF_FILE", tools=EVERY,
           bench=("-hff", "--hf-file"), memory=True, help="file in that repository", value="FILE"),
    Option(("-mm", "--mmproj"), TEXT, "mmproj", "LLAMA_ARG_MMPROJ", memory=True,
           help="projector for images or sound", value="PATH"),
    Option(("-mmu", "--mmproj-url"), TEXT, "_mmproj_url", "LLAMA_ARG_MMPROJ_URL", memory=True,
           help="address of a projector", value="URL"),
)  # fmt: skip

CONTEXT_ROWS = (
    Option(("-c", "--ctx-size"), CONTEXT, "n_ctx", "LLAMA_ARG_CTX_SIZE", memory=True,
           help="context in tokens (0 = as trained)", value="N"),
    Option(("-b", "--batch-size"), BATCH, "n_batch", "LLAMA_ARG_BATCH", tools=EVERY, memory=True,
           bench=("-b", "--batch-size"), help="logical batch in tokens", value="N"),
    Option(("-ub", "--ubatch-size"), BATCH, "n_ubatch", "LLAMA_ARG_UBATCH", tools=EVERY,
           memory=True, bench=("-ub", "--ubatch-size"), help="physical batch in tokens",
           value="N"),
    Option(("-np", "--parallel"), INT, "n_seq_max", "LLAMA_ARG_N_PARALLEL", memory=True,
           help="sequences at the same time (-1 = auto)", value="N"),
    Option(("-kvu", "--kv-unified"), SWITCH, "kv_unified", "LLAMA_ARG_KV_UNIFIED",
           ("-no-kvu", "--no-kv-unified"), (SERVER,), memory=True,
           help="one cache shared by all sequences"),
    Option(("-fa", "--flash-attn"), FLASH, "flash_attn", "LLAMA_ARG_FLASH_ATTN", tools=EVERY,
           bench=("-fa", "--flash-attn"), memory=True, help="flash attention",
           value="on|off|auto"),
    Option(("-ctk", "--cache-type-k"), CACHE, "type_k", "LLAMA_ARG_CACHE_TYPE_K", tools=EVERY,
           bench=("-ctk", "--cache-type-k"), bench_kind=BENCH_CACHE, memory=True,
           help="type of cached keys", value="TYPE"),
    Option(("-ctv", "--cache-type-v"), CACHE, "type_v", "LLAMA_ARG_CACHE_TYPE_V", tools=EVERY,
           bench=("-ctv", "--cache-type-v"), bench_kind=BENCH_CACHE, memory=True,
           help="type of cached values", value="TYPE"),
    Option(("--kv-unified-per-slot",), INT, "_per_slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
           tools=(SERVER,), memory=True, help="context of each slot, where -c does not say all",
           value="N", lacking=10605, since=11549),
    Option(("--swa-full",), FLAG, "swa_full", "LLAMA_ARG_SWA_FULL", memory=True,
           help="sliding-window layers keep the whole context"),
    Option(("-kvo", "--kv-offload"), SWITCH, "offload_kqv", "LLAMA_ARG_KV_OFFLOAD",
           ("-nkvo", "--no-kv-offload"), EVERY, ("-nkvo", "--no-kv-offload"), BENCH_NOT,
           memory=True, help="keep the cache on the GPU"),
    Option(("--embedding", "--embeddings"), FLAG, "embeddings", "LLAMA_ARG_EMBEDDINGS",
           tools=(SERVER, BENCH), bench=("-embd", "--embeddings"), bench_kind=BENCH_ON,
           memory=True, help="serve embeddings only"),
    Option(("--rerank", "--reranking"), FLAG, env="LLAMA_ARG_RERANKING", tools=(SERVER,),
           on=(("embeddings", True), ("pooling", "rank")), memory=True,
           help="serve reranking (embeddings, pooling rank)"),
    Option(("--pooling",), one_of(*POOLING), "pooling", "LLAMA_ARG_POOLING", tools=(SERVER,),
           memory=True, help="how token embeddings become one", value="|".join(POOLING)),
)  # fmt: skip

PLACEMENT_ROWS = (
    Option(("-ngl", "--gpu-layers", "--n-gpu-layers"), LAYERS, "n_gpu_layers",
           "LLAMA_ARG_N_GPU_LAYERS", tools=EVERY, bench=("-ngl", "--n-gpu-layers"),
           bench_kind=BENCH_LAYERS, memory=True, help="layers on GPUs, output counted as one",
           value="N|auto|all"),
    Option(("-sm", "--split-mode"), one_of(*SPLIT_MODES), "split_mode", "LLAMA_ARG_SPLIT_MODE",
           tools=EVERY, bench=("-sm", "--split-mode"), memory=True,
           help="how several GPUs share the model", value="|".join(SPLIT_MODES)),
    Option(("-ts", "--tensor-split"), SPLIT, "tensor_split", "LLAMA_ARG_TENSOR_SPLIT",
           tools=EVERY, bench=("-ts", "--tensor-split"), bench_kind=BENCH_SPLIT, memory=True,
           help="share of each GPU", value="3,1"),
    Option(("-mg", "--main-gpu"), INT, "main_gpu", "LLAMA_ARG_MAIN_GPU", tools=EVERY,
           bench=("-mg", "--main-gpu"), memory=True, help="GPU for -sm none and row", value="N"),
    Option(("-dev", "--device"), DEVICES, "devices", "LLAMA_ARG_DEVICE", tools=EVERY,
           bench=("-dev", "--device"), bench_kind=BENCH_DEVICES, memory=True,
           help="devices to use, none = only the CPU", value="A,B"),
    Option(("-ot", "--override-tensor"), OVERRIDES, "override_tensor",
           "LLAMA_ARG_OVERRIDE_TENSOR", tools=EVERY, bench=("-ot", "--override-tensor"),
           bench_kind=BENCH_OVERRIDES, memory=True, adds=True,
           help="send matching tensors to a buffer", value="REGEX=BUFFER,..."),
    Option(("-cmoe", "--cpu-moe"), FLAG, env="LLAMA_ARG_CPU_MOE", memory=True,
           on=(("n_cpu_moe", ALL_LAYERS),), help="all experts stay on the CPU"),
    Option(("-ncmoe", "--n-cpu-moe"), NATURAL, "n_cpu_moe", "LLAMA_ARG_N_CPU_MOE", tools=EVERY,
           bench=("-ncmoe", "--n-cpu-moe"), memory=True,
           help="experts of the first N layers stay on the CPU", value="N"),
    Option(("-ncffn", "--n-cpu-ffn"), DENSE, "override_tensor", "LLAMA_ARG_N_CPU_FFN",
           memory=True, help="feed-forward weights of the first N layers stay on the CPU",
           value="N", lacking=10605, since=11549),
    Option(("--op-offload",), SWITCH, "op_offload", "", ("--no-op-offload",), EVERY,
           ("-nopo", "--no-op-offload"), BENCH_NOT, memory=True,
           help="let the GPU borrow CPU weights for large batches"),
    Option(("--repack",), SWITCH, "repack", "LLAMA_ARG_REPACK", ("-nr", "--no-repack"),
           memory=True, help="CPU weights in the layout its kernels like"),
    Option(("-lm", "--load-mode"), one_of(*LOAD_MODES), "load_mode", "LLAMA_ARG_LOAD_MODE",
           tools=EVERY, bench=("-lm", "--load-mode"), memory=True, help="how the file is read",
           value="|".join(LOAD_MODES), lacking=9297, since=10605),
    Option(("--mmap",), SWITCH, "", "LLAMA_ARG_MMAP", ("--no-mmap",), EVERY, ("-mmp", "--mmap"),
           BENCH_ON, (("load_mode", "mmap"),), (("load_mode", "none"),), memory=True,
           deprecated="--load-mode mmap or none", removed="--load-mode mmap or none",
           until=10605, lost=11549),
    Option(("--mlock",), FLAG, env="LLAMA_ARG_MLOCK", on=(("load_mode", "mlock"),), memory=True,
           deprecated="--load-mode mlock", removed="--load-mode mlock", until=10605, lost=11549),
    Option(("-dio", "--direct-io"), SWITCH, "", "LLAMA_ARG_DIO", ("-ndio", "--no-direct-io"),
           EVERY, ("-dio", "--direct-io"), BENCH_ON, (("load_mode", "dio"),),
           (("load_mode", "none"),), memory=True, deprecated="--load-mode dio or none",
           removed="--load-mode dio or none", until=10605, lost=11549),
    Option(("-fit", "--fit"), ON_OFF, "fit", "LLAMA_ARG_FIT", memory=True,
           help="let the engine lower what was not set until it fits", value="on|off",
           lacking=7152, since=8763),
)  # fmt: skip

DRAFT_ROWS = (
    Option(("-md", "--spec-draft-model", "--model-draft"), TEXT, "_draft_path",
           "LLAMA_ARG_SPEC_DRAFT_MODEL", memory=True, help="draft model", value="PATH"),
    Option(("-hfd", "--spec-draft-hf", "-hfrd", "--hf-repo-draft"), TEXT, "_draft_hf",
           "LLAMA_ARG_SPEC_DRAFT_HF_REPO", memory=True, help="draft model on the Hub",
           value="OWNER/REPO[:QUANT]"),
    Option(("--spec-type",), SPEC_TYPES, "spec_types", "LLAMA_ARG_SPEC_TYPE", memory=True,
           adds=True,
           help="kinds of speculation, comma-separated", value="TYPES"),
    Option(("--spec-draft-n-max",), NATURAL, "draft_n_max", "LLAMA_ARG_SPEC_DRAFT_N_MAX",
           memory=True, help="tokens drafted at once", value="N", lacking=8763, since=9297),
    Option(("--draft-max", "--draft", "--draft-n"), NATURAL, "draft_n_max", "LLAMA_ARG_DRAFT_MAX",
           memory=True, help="tokens drafted at once", value="N", until=8763,
           removed="--spec-draft-n-max or --spec-ngram-mod-n-max"),
    Option(("-ctkd", "--spec-draft-type-k", "--cache-type-k-draft"), CACHE, "draft_type_k",
           "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", memory=True, help="type of the draft's keys",
           value="TYPE"),
    Option(("-ctvd", "--spec-draft-type-v", "--cache-type-v-draft"), CACHE, "draft_type_v",
           "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", memory=True, help="type of the draft's values",
           value="TYPE"),
    Option(("-ngld", "--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"), LAYERS,
           "draft_gpu_layers", "LLAMA_ARG_N_GPU_LAYERS_DRAFT", memory=True,
           help="draft layers on GPUs", value="N|auto|all"),
    Option(("-devd", "--spec-draft-device", "--device-draft"), DEVICES, "draft_devices",
           memory=True, help="devices of the draft model", value="A,B"),
    Option(("-cmoed", "--spec-draft-cpu-moe", "--cpu-moe-draft"), FLAG,
           env="LLAMA_ARG_SPEC_DRAFT_CPU_MOE", on=(("draft_n_cpu_moe", ALL_LAYERS),),
           memory=True, help="all experts of the draft stay on the CPU"),
    Option(("-ncmoed", "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "--n-cpu-moe-draft"),
           NATURAL, "draft_n_cpu_moe", "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", memory=True,
           help="experts of the draft's first N layers stay on the CPU", value="N"),
    Option(("--spec-default",), FLAG, on=(("spec_types", ("ngram-mod",)),), memory=True,
           extra=("--spec-ngram-mod-n-match", "24", "--spec-ngram-mod-n-min", "48",
                  "--spec-ngram-mod-n-max", "64"),
           help="n-gram speculation with the engine's defaults"),
)  # fmt: skip

BENCH_ROWS = (
    Option((), BENCH_TOKENS, "_p", tools=(BENCH,), bench=("-p", "--n-prompt"), memory=True,
           help="prompt tokens of the prompt test", value="N"),
    Option((), BENCH_TOKENS, "_n", tools=(BENCH,), bench=("-n", "--n-gen"), memory=True,
           help="tokens of the generation test", value="N"),
    Option((), BENCH_PAIR, "_pg", tools=(BENCH,), bench=("-pg",), memory=True,
           help="prompt and generation in one test", value="P,N"),
    Option((), BENCH_TOKENS, "_d", tools=(BENCH,), bench=("-d", "--n-depth"), memory=True,
           help="tokens already in the cache", value="N"),
)  # fmt: skip

OUR_ROWS = (
    Option(("--tool",), one_of(*EVERY), "tool", tools=EVERY, ours=True,
           help="whose defaults and spellings apply", value="|".join(EVERY)),
    Option(("--engine-build",), BUILD, "build", tools=EVERY, ours=True,
           help="whose rules apply [default: those of the engine here, else of the newest known "
           "build; b10605 for models of the zoo]", value="b10605"),
    Option(("--n-outputs-max",), NATURAL, "n_outputs_max", tools=EVERY, ours=True, memory=True,
           help="rows of logits at once (0 = a whole batch)", value="N"),
    Option(("--n-rs-seq",), NATURAL, "n_rs_seq", tools=EVERY, ours=True, memory=True,
           help="extra snapshots of recurrent state", value="N"),
    Option(("--load-mtp",), FLAG, "load_mtp", tools=EVERY, ours=True, memory=True,
           help="load the weights of next-token-prediction layers"),
    Option(("--mtp-context",), FLAG, "mtp", tools=EVERY, ours=True, memory=True,
           help="the draft context of such layers instead of the main one"),
)  # fmt: skip


def _preset(flag: str, tools: tuple[str, ...], repo: str, extra: str, **sets: object) -> Option:
    fields = (("_hf", repo), *sets.items())
    return Option((flag,), FLAG, tools=tools, on=fields, extra=tuple(extra.split()), memory=True,
                  help="a model and settings picked by llama.cpp")  # fmt: skip


_FIM = {"n_ubatch": 1024, "n_batch": 1024, "n_ctx": 0}
_FIM_EXTRA = "--port 8012 --cache-reuse 256"
_OSS = {"n_ubatch": 2048, "n_batch": 32768, "n_seq_max": 2, "n_ctx": 131072 * 2}
_OSS_EXTRA = "--port 8013 --temp 1.0 --top-p 1.0 --top-k 0 --min-p 0.01 --jinja"
_QWEN = "ggml-org/Qwen2.5-Coder-{}-Q8_0-GGUF"
_QWEN_FILE = "qwen2.5-coder-{}-q8_0.gguf"
_HALF = {"_draft_hf": _QWEN.format("0.5B"), "_draft_path": _QWEN_FILE.format("0.5b")}


def _fim(flag: str, size: str, **more: object) -> Option:
    return _preset(flag, (SERVER,), _QWEN.format(size), _FIM_EXTRA,
                   _hf_file=_QWEN_FILE.format(size.lower()), **_FIM, **more)  # fmt: skip


PRESET_ROWS = (
    _preset("--embd-gemma-default", (SERVER,), "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF",
            "--port 8011", _hf_file="embeddinggemma-300M-qat-Q4_0.gguf", n_ubatch=2048,
            n_batch=2048, n_seq_max=32, n_ctx=2048 * 32, embeddings=True),
    _fim("--fim-qwen-1.5b-default", "1.5B"),
    _fim("--fim-qwen-3b-default", "3B"),
    _fim("--fim-qwen-7b-default", "7B"),
    _fim("--fim-qwen-7b-spec", "7B", **_HALF),
    _fim("--fim-qwen-14b-spec", "14B", **_HALF),
    _preset("--fim-qwen-30b-default", (SERVER,),
            "ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF", _FIM_EXTRA,
            _hf_file="qwen3-coder-30b-a3b-instruct-q8_0.gguf", **_FIM),
    _preset("--gpt-oss-20b-default", BOTH, "ggml-org/gpt-oss-20b-GGUF", _OSS_EXTRA,
            _hf_file="gpt-oss-20b-mxfp4.gguf", **_OSS),
    _preset("--gpt-oss-120b-default", BOTH, "ggml-org/gpt-oss-120b-GGUF", _OSS_EXTRA, **_OSS),
    _preset("--vision-gemma-4b-default", BOTH, "ggml-org/gemma-3-4b-it-qat-GGUF",
            "--port 8014 --jinja", n_ctx=0),
    _preset("--vision-gemma-12b-default", BOTH, "ggml-org/gemma-3-12b-it-qat-GGUF",
            "--port 8014 --jinja", n_ctx=0),
)  # fmt: skip

SETTING_ROWS = (
    MODEL_ROWS + CONTEXT_ROWS + PLACEMENT_ROWS + DRAFT_ROWS + BENCH_ROWS + OUR_ROWS + PRESET_ROWS
)
