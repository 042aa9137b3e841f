"""What the engine is asked to do: one frozen value, in llama.cpp's own terms.

A `Launch` holds what was asked, before the engine resolves it (0 context = training
length, -1 layers = all, ...); `memory/context.py` resolves. Nothing here knows a model.
"""

from __future__ import annotations

from dataclasses import dataclass

TOOLS = ("llama-server", "llama-cli", "llama-bench")
NEWEST_BUILD = "b10605"


@dataclass(frozen=True, slots=True)
class Launch:
    """Settings of one start of llama.cpp. Field comments name the flag.

    The defaults are those of a bare context (one sequence, all layers, all logits): what
    `zoo/README.md` calls the defaults. `options.py` lays each tool's own defaults over them.
    """

    tool: str = "llama-server"
    build: str = NEWEST_BUILD
    model: str = ""  # -m
    n_ctx: int = 0  # -c, 0 = the model's training length
    n_batch: int = 2048  # -b
    n_ubatch: int = 512  # -ub
    n_seq_max: int = 1  # -np
    kv_unified: bool = False  # -kvu
    flash_attn: str = "auto"  # -fa: auto, on, off
    type_k: str = "f16"  # -ctk
    type_v: str = "f16"  # -ctv
    n_gpu_layers: int = -1  # -ngl, negative = all
    split_mode: str = "layer"  # -sm: none, layer, row, tensor
    tensor_split: tuple[float, ...] = ()  # -ts, empty = by free memory
    main_gpu: int = 0  # -mg
    devices: tuple[str, ...] = ()  # -dev, empty = all
    override_tensor: tuple[tuple[str, str], ...] = ()  # -ot: (regex, buffer type name)
    n_cpu_moe: int = 0  # -ncmoe; -cmoe = a number above every layer
    offload_kqv: bool = True  # not -nkvo
    op_offload: bool = True  # not --no-op-offload
    swa_full: bool = False  # --swa-full
    mmap: bool = True  # --load-mode; False = read into buffers
    repack: bool = True  # not --no-repack (zoo: extra_bufts)
    embeddings: bool = False  # --embedding
    pooling: str = ""  # --pooling, empty = the model's
    n_outputs_max: int = 0  # rows of logits at once; 0 = n_batch
    n_rs_seq: int = 0  # extra recurrent-state snapshots (speculation)
    load_mtp: bool = False  # load the MTP layers' weights
    mtp: bool = False  # the MTP draft context instead of the main one
    model_draft: str = ""  # -md
    mmproj: str = ""  # --mmproj
    fit: bool = True  # -fit
    extra: tuple[str, ...] = ()  # flags that are passed on and change no byte
