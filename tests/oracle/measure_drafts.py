"""Loads targets with drafts that only work beside them, in two builds: tests/memory/drafts.json.gz.

    python tests/oracle/measure_drafts.py FOLDER [PAIR...]

FOLDER holds b10605's llama-server, which is asked about virtual GPUs too; b11549 is the embedded
engine. With names, only these pairs are measured again. No pass of an engine measures such a
draft, so each pair is really loaded, with holes for weights, and given a prompt: before the first
batch target and draft are reserved once more. Kept are the figures of both as the log has them,
after that.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine.find import Engine, binary, embedded
from kvwise.engine.loaded import Loaded
from kvwise.engine.noalloc import on_virtual
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import EngineError, Refused
from kvwise.gguf.header import Header
from kvwise.gguf.model import Model
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.parts.companions import Companions
from kvwise.options import change
from kvwise.verify.compare import Row, compare
from oracle.draft_heads import assistant, dflash, eagle3, on_streams, target
from oracle.measure_mtp import MODELS as MTP_MODELS
from oracle.measure_mtp import devices_of, header_of

KEPT = Path(__file__).parents[1] / "memory" / "drafts.json.gz"
SETTINGS = {"b10605": 6, "b11549": 4}
"""Of each pair."""

Document = dict[str, Any]
PAIRS: dict[str, tuple[Callable[[], Document], Callable[[Document], Document] | None, str]] = {
    "eagle3": (lambda: target("tiny-llama"), lambda t: eagle3(t, few=512), "draft-eagle3"),
    "eagle3-own": (
        lambda: target("tiny-muse-glimmer"),
        lambda t: eagle3(t, words=True, scores=False, norm=True, factors=True),
        "draft-eagle3",
    ),
    "eagle3-last": (
        lambda: target("tiny-qwen3next"), lambda t: eagle3(t, layers=(1, 2, 6)), "draft-eagle3",
    ),
    "eagle3-gpt-oss": (lambda: target("tiny-gpt-oss"), eagle3, "draft-eagle3"),
    "dflash": (lambda: target("tiny-lfm2moe"), dflash, "draft-dflash"),
    "dflash-windows": (
        lambda: target("tiny-llama"),
        lambda t: dflash(t, window=512, few=512),
        "draft-dflash",
    ),
    "dflash-nemotron": (
        lambda: target("tiny-nemotron_h"), lambda t: dflash(t, layers=(1, 6)), "draft-dflash",
    ),
    "dspark": (lambda: target("tiny-lfm2"), lambda t: dflash(t, rank=64), "draft-dspark"),
    "dspark-streams": (lambda: target("tiny-deepseek4"), on_streams, "draft-dspark"),
    "dflash-options": (
        lambda: target("tiny-llama"), lambda t: dflash(t, options=True), "draft-dflash",
    ),
    "dflash2": (
        lambda: target("tiny-qwen35"), lambda t: dflash(t, selects=True), "draft-dflash",
    ),
    "assistant": (lambda: target("tiny-gemma4"), assistant, "draft-mtp"),
    **{
        f"mtp-{name}": ((lambda make=make: target(make())), None, "draft-mtp")
        for name, make in MTP_MODELS.items()  # fewer than mtp.json.gz: the target is at stake here
        if name not in ("glm4", "hy_v3-own", "qwen35-own", "deepseek4")
    },
}  # fmt: skip
"""A target, its draft (None: its own MTP layer), and the kind of speculation."""


NOT_LOADED = {
    ("dflash-options", "b10605"), ("dflash2", "b10605"), ("dspark-streams", "b11549"),
}  # fmt: skip
"""b10605 knows nothing of such tensors, b11549 divides by zero for this target."""


def drawn(seed: str, build: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """GPUs and fields of a launch."""
    rng = random.Random(seed)
    for _ in range(SETTINGS[build]):
        count = rng.choice((0, 1, 1, 2)) if build == "b10605" else 0
        yield count, {
            "n_ctx": rng.choice((512, 1024, 4096, 8192)),
            "n_ubatch": rng.choice((32, 100, 512)),
            "n_seq_max": rng.choice((1, 1, 2, 3)), "kv_unified": rng.random() < 0.5,
            "flash_attn": rng.choice(("auto", "on", "off")),
            "draft_n_max": rng.choice((3, 5)),
            "n_gpu_layers": rng.choice((999, 999, 2)) if count else 0,
            "draft_gpu_layers": 999 if count else 0,
            "offload_kqv": rng.random() < 0.7,
        }  # fmt: skip


def launch_of(build: str, kind: str, fields: dict[str, Any], draft: str = "") -> Launch:
    launch = Launch.parse(["-b", "512", "--spec-type", kind], build=build)
    return replace(change(launch, model_draft=draft, **fields), mmap=False, repack=False)


def model_of(document: Document) -> Model:
    return describe(header_of(document))


def loaded(path: Path, engine: Engine, launch: Launch, gpus: tuple[Device, ...]) -> Loaded:
    """What the log says after a prompt. Raises EngineError where the engine does not come up."""
    with contextlib.ExitStack() as stack:
        special: tuple[str, ...] = ()
        if engine.kind != "embedded":
            special = ("-dev", "none")
        if gpus:
            server = stack.enter_context(VirtualDevices(map(VirtualGPU.of, gpus)))
            special = tuple(on_virtual(server))
        run = Run(warmup=False, special=special)
        started = stack.enter_context(
            Server.start(path, launch, engine=engine, run=run, ready_s=60.0)
        )
        with contextlib.suppress(EngineError):  # holes generate nothing sensible
            started.complete(list(range(300, 340)), 4)
        return started.loaded


def measure(
    target_: Document, draft: Document | None, kind: str, seed: str, engines: dict[str, Engine]
) -> Iterator[Document]:
    with tempfile.TemporaryDirectory(prefix="kvwise-drafts-") as place:
        paths = []
        for name, document in (("target", target_), ("draft", draft)):
            if document is not None:
                paths.append(Path(place) / f"{name}.gguf")
                write_twin(whole(document), paths[-1])
        beside = Companions(draft=None if draft is None else model_of(draft))
        for build, engine in engines.items():
            if (seed, build) in NOT_LOADED:
                continue
            for count, fields in drawn(f"{seed} {build}", build):
                launch = launch_of(build, kind, fields, str(paths[1]) if draft else "")
                try:
                    said = loaded(paths[0], engine, launch, devices_of(count))
                    ledger = account(
                        model_of(target_), launch, devices_of(count), companions=beside
                    )
                except (EngineError, Refused) as why:
                    print(f"  {build} {count} {fields}: {why}", flush=True)
                    continue
                rows = compare(ledger, said)
                for row in rows:
                    if not row.agrees:
                        print(f"  {build} {count} {fields} {row}", flush=True)
                yield {
                    "build": build, "gpus": count, "fields": fields, "said": [*map(kept, rows)],
                }  # fmt: skip


def kept(row: Row) -> list[Any]:
    parts = row.measured.parts if row.measured else ()
    return [row.kind, row.name, [[each.units, each.decimals, each.cut] for each in parts]]


def whole(document: Document) -> Header:
    """With a vocabulary that a prompt of numbers needs; only its size matters to memory."""
    metadata = dict(document["metadata"])
    words = metadata.pop(f"{metadata['general.architecture']}.vocab_size")
    more = words - 259
    return header_of(
        document
        | {
            "metadata": metadata
            | {
                "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": [
                    "<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)),
                    *(f"\u2581t{i}" for i in range(more)),
                ],
                "tokenizer.ggml.scores": [-float(i) for i in range(words)],
                "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * more,
                "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
            }
        }
    )  # fmt: skip


def main(folder: str, *only: str) -> None:
    own = embedded()
    assert own is not None
    engines = {"b10605": binary(Path(folder) / "llama-server"), "b11549": own}
    found: dict[str, Document] = {}
    if only:
        found = json.loads(gzip.decompress(KEPT.read_bytes()))
    for name, (make, head, kind) in PAIRS.items():
        if only and name not in only:
            continue
        one = make()
        draft = None if head is None else head(one)
        rows = list(measure(one, draft, kind, name, engines))
        found[name] = {"target": one, "draft": draft, "kind": kind, "results": rows}
        print(name, len(rows), flush=True)
    ordered = {name: found[name] for name in PAIRS if name in found}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in ordered.items())
    KEPT.write_bytes(gzip.compress(f"{{\n{lines}\n}}\n".encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
