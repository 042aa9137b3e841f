"""What the engine is asked to do: one frozen value, in llama.cpp's own terms.

A `Launch` holds what was asked, before the engine resolves it (0 context = training
length, -1 layers = all, ...); `memory/context.py` resolves. Nothing here knows a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

TOOLS = ("llama-server", "llama-cli", "llama-bench")
ZOO_BUILD = "b10605"
"""What the zoo was measured with, and the tables of options were compared with.

The default of a `Launch` made in Python too: a program's figures stay what they are when an engine
is installed beside it or kvwise learns a newer build. The commands look for the engine at hand
instead (docs/builds.md).
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """Settings of one start of llama.cpp. Field comments name the flag.

    The defaults are those of a bare context (one sequence, all layers, all logits): what
    `zoo/README.md` calls the defaults. `options.py` lays each tool's own defaults over them.
    """

    tool: str = "llama-server"
    build: str = ZOO_BUILD
    model: str = ""  # -m
    n_ctx: int = 0  # -c, 0 = the model's training length
    n_batch: int = 2048  # -b
    n_ubatch: int = 512  # -ub
    n_seq_max: int = 1  # -np
    kv_unified: bool = False  # -kvu
    flash_attn: str = "auto"  # -fa: auto, on, off
    type_k: str = "f16"  # -ctk
    type_v: str = "f16"  # -ctv
    n_gpu_layers: int = -1  # -ngl, negative = all (-1 = auto: --fit may lower it; -2 = all)
    split_mode: str = "layer"  # -sm: none, layer, row, tensor
    tensor_split: tuple[float, ...] = ()  # -ts, empty = by free memory
    main_gpu: int = 0  # -mg
    devices: tuple[str, ...] = ()  # -dev, empty = all
    override_tensor: tuple[tuple[str, str], ...] = ()  # -ot: (regex, buffer type), before -ncmoe
    n_cpu_moe: int = 0  # -ncmoe; -cmoe = a number above every layer
    offload_kqv: bool = True  # not -nkvo
    op_offload: bool = True  # not --no-op-offload
    swa_full: bool = False  # --swa-full
    mmap: bool = True  # --load-mode auto, mmap, mmap+mlock; False = read into buffers
    load_mode: str = "auto"  # --load-mode as asked; `mmap` decides where weights are counted
    repack: bool = True  # not --no-repack (zoo: extra_bufts)
    embeddings: bool = False  # --embedding
    pooling: str = ""  # --pooling, empty = the model's
    n_outputs_max: int = 0  # rows of logits at once; 0 = n_batch
    n_rs_seq: int = 0  # extra recurrent-state snapshots (speculation)
    load_mtp: bool = False  # load the MTP layers' weights
    mtp: bool = False  # the MTP draft context instead of the main one
    beside_target: bool = False  # the context of a draft, made next to its target's
    model_draft: str = ""  # -md
    spec_types: tuple[str, ...] = ()  # --spec-type, without none
    draft_n_max: int = 3  # --spec-draft-n-max
    draft_type_k: str = "f16"  # -ctkd
    draft_type_v: str = "f16"  # -ctvd
    draft_gpu_layers: int = -1  # -ngld
    draft_devices: tuple[str, ...] = ()  # -devd
    draft_n_cpu_moe: int = 0  # -ncmoed
    mmproj: str = ""  # --mmproj
    fit: bool = True  # -fit
    extra: tuple[str, ...] = ()  # flags that are passed on and change no byte
    build_from: str = field(default="", compare=False)  # where `build` came from; empty = given

    @classmethod
    def parse(
        cls,
        argv: Sequence[str],
        *,
        tool: str = "llama-server",
        environ: Mapping[str, str] | None = None,
        build: str = ZOO_BUILD,
    ) -> Launch:
        """What llama.cpp would make of this command line (without the program's name).

        The tool's own defaults apply first, then `environ` (LLAMA_ARG_*; None = no environment),
        then `argv`. `--tool` and `--engine-build` in `argv` win over the parameters.
        Raises UsageError, never anything else. `options.read` also says where each value came from.
        """
        from kvwise.options import read  # noqa: PLC0415  (the table is above this layer)

        return read(argv, tool=tool, environ=environ, build=build).launch

    def to_argv(self, *, ours: bool = False) -> list[str]:
        """The command line of `tool` for this launch; see `options.to_argv`."""
        from kvwise.options import to_argv  # noqa: PLC0415

        return to_argv(self, ours=ours)

    def to_env(self, *, ours: bool = False) -> tuple[dict[str, str], list[str]]:
        """The same as environment, and the flags that have no variable; see `options.to_env`."""
        from kvwise.options import to_env  # noqa: PLC0415

        return to_env(self, ours=ours)

    def as_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold (tuples become lists there)."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from `as_dict`, also after JSON; unknown names raise TypeError."""
        return cls(**{name: _frozen(value) for name, value in values.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value
