"""The zoo against the rules: no-alloc figures of two builds, and what is really reserved."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tally import PARTS, Exactly, Tallies, tally

from kvwise.arch import describe
from kvwise.engine.printed import Printed, Total
from kvwise.errors import KvwiseError, Refused
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.zoo_config import read_config

TESTS = Path(__file__).resolve().parents[2] / "tests"
ZOO = TESTS / "zoo"
Row = dict[str, Any]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration of one model; `where` names both."""

    architecture: str
    where: str


@dataclass(slots=True)
class Compared:
    """One source of truth: its tallies, and what was or was not refused."""

    tallies: Tallies = field(default_factory=dict)
    models: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    configurations: int = 0
    refusals: int = 0
    refusals_right: int = 0
    skipped: int = 0

    def line(
        self, cell: Cell, part: str, ours: int, truth: Exactly | Total, basis: str = ""
    ) -> None:
        """One figure of a configuration."""
        if ours or truth.high:
            each = tally(self.tallies, cell.architecture, part)
            each.add(ours, truth, cell.where, estimated=basis == "estimated")


def load(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def model_of(name: str) -> Model:
    newer = ZOO / "newer" / f"{name}.json"  # architectures that came after b10605
    place = newer if newer.exists() else ZOO / "models" / f"{name}.json.gz"
    return describe(open_header(str(place)))


def short(name: str, config: Row) -> str:
    said = ", ".join(f"{key} {value}" for key, value in config.items())
    return f"{name}: {said or 'defaults'}"


def golden(progress: Progress) -> Compared:
    """Build b10605's own no-alloc pass, to the byte."""
    found = Compared()
    for path in sorted((ZOO / "golden").glob("*.gz")):
        name = path.name.removesuffix(".json.gz")
        progress(name)
        data, model = load(path), model_of(name)
        for row in data["results"]:
            config = data["defaults"] | row["config"]
            if config["extra_bufts"]:  # depends on the processor
                found.skipped += 1
                continue
            _golden_cell(found, model, config, row["result"], short(name, row["config"]))
    return found


def _golden_cell(found: Compared, model: Model, config: Row, result: Row, where: str) -> None:
    found.configurations += 1
    found.models[model.architecture].add(where.partition(":")[0])
    try:
        ledger = _account(model, config, "no-alloc")
    except Refused as refused:
        found.refusals += 1
        found.refusals_right += not result["ok"] and refused.code == result["error_code"]
        return
    if not result["ok"]:
        found.refusals += 1
        return
    cell = Cell(model.architecture, where)
    sizes: dict[str, Row] = defaultdict(lambda: defaultdict(int))
    for row in result["buffers"]:
        line = sizes["CPU" if row["host"] else row["buffer"]]
        for part in ("model", "context", "compute"):
            line[part] += row[part]
    for line in ledger.lines:
        truth, basis = sizes[line.buffer], str(line.basis["compute"])
        found.line(cell, PARTS[0], line.weights_bytes, Exactly(truth["model"]))
        found.line(cell, PARTS[1], line.context_bytes, Exactly(truth["context"]))
        part = PARTS[4] if line.host else PARTS[3]
        found.line(cell, part, line.compute_bytes, Exactly(truth["compute"]), basis)
    output = Exactly(result["output_buffer_bytes"])
    found.line(cell, PARTS[2], ledger.host.output_bytes, output)


def _account(model: Model, config: Row, mode: str, build: str | None = None) -> Ledger:
    more = {"engine_build": build} if build else {}
    zoo = read_config({**config, **more, "compute_mode": mode})
    devices = zoo.devices
    if build:  # measured through devices reached over RPC
        devices = tuple(replace(device, kind="rpc", source="") for device in devices)
    return account(model, zoo.launch, devices, compute_mode=zoo.compute_mode)


def other_build(path: Path, progress: Progress) -> Compared:
    """Another build's pass, as it was printed: whole MiB for weights and caches, else 0.01 MiB."""
    found, data = Compared(), load(path)
    for name, rows in data["models"].items():
        progress(f"{data['build']} {name}")
        model = model_of(name)
        for row in rows:
            _printed_cell(found, model, row, data["build"], short(name, row["config"]))
    return found


def _printed_cell(found: Compared, model: Model, row: Row, build: str, where: str) -> None:
    said, config = row["said"], row["config"]
    if "failed" in said:  # the tool died without a reason of its own
        found.skipped += 1
        return
    found.configurations += 1
    found.models[model.architecture].add(where.partition(":")[0])
    try:
        ledger = _account(model, config, "no-alloc", build)
    except Refused:
        found.refusals += 1
        found.refusals_right += "refused" in said
        return
    if "refused" in said:
        found.refusals += 1
        return
    cell = Cell(model.architecture, where)
    numbers = {line.buffer: f"RPC{n}" for n, line in enumerate(ledger.lines) if not line.host}
    for line in ledger.lines:
        name, basis = numbers.get(line.buffer, "Host"), str(line.basis["compute"])
        for part, key, ours in (
            (PARTS[0], "weights", line.weights_bytes),
            (PARTS[1], "context", line.context_bytes),
        ):
            others = [n for n in said[key] if n not in numbers.values()]  # CPU_REPACK and the like
            names = others if line.host else [name]
            whole = Total(tuple(Printed(said[key].get(n, 0), 0, cut=True) for n in names))
            found.line(cell, part, ours, whole)
        part = PARTS[4] if line.host else PARTS[3]
        found.line(cell, part, line.compute_bytes, _total(said["compute"].get(name)), basis)
    found.line(cell, PARTS[2], ledger.host.output_bytes, _total(said["output"]))


def _total(texts: list[str] | None) -> Total:
    return Total(tuple(Printed.parse(text) for text in texts or ()))


def reserved(source: str, progress: Progress) -> Compared:
    """What is really reserved: `measured-real` or `real-compute` of tests/graphs."""
    found = Compared()
    cells: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for name, config, real in _reserved_cells(load(TESTS / "graphs" / f"{source}.json.gz")):
        cells[name].append((config, real))
    for name, rows in cells.items():
        progress(f"{source} {name}")
        model = model_of(name)
        for config, real in rows:
            found.configurations += 1
            found.models[model.architecture].add(name)
            try:
                ledger = _account(model, config, "reserved")
            except KvwiseError:
                found.refusals += 1
                continue
            for line in ledger.lines:
                mine = [n for n in real if n == line.buffer or (line.host and n in _HOST)]
                truth = Exactly(sum(real[n] for n in mine))
                part = PARTS[4] if line.host else PARTS[3]
                basis = str(line.basis["compute"])
                cell = Cell(model.architecture, short(name, config))
                found.line(cell, part, line.compute_bytes, truth, basis)
    return found


_HOST = ("CPU", "VGPU_Host")


def _reserved_cells(data: Any) -> Iterator[tuple[str, Row, Row]]:
    if isinstance(data, dict):
        for name, rows in data.items():
            yield from ((name, row[0], row[1]) for row in rows)
    else:
        yield from ((row[0], row[1], row[2]) for row in data)
