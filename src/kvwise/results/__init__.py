"""What was measured, kept: records, the database, files to carry it to another machine."""

from kvwise.results.codec import SCHEMA, from_json, from_line, line, to_json
from kvwise.results.keep import load, save, save_in
from kvwise.results.learn import (
    Learned,
    fidelities_for,
    learn_fidelities,
    learn_speeds,
    speeds_for,
)
from kvwise.results.names import METRICS, memory_of, total_of, work_of
from kvwise.results.record import (
    DeviceSeen,
    EngineSeen,
    Machine,
    Measurement,
    ModelSeen,
    Sample,
    spread,
)
from kvwise.results.seen import engine_seen, fingerprint, machine_seen, model_seen, settings_seen

__all__ = [
    "METRICS",
    "SCHEMA",
    "DeviceSeen",
    "EngineSeen",
    "Learned",
    "Machine",
    "Measurement",
    "ModelSeen",
    "Sample",
    "engine_seen",
    "fidelities_for",
    "fingerprint",
    "from_json",
    "from_line",
    "learn_fidelities",
    "learn_speeds",
    "line",
    "load",
    "machine_seen",
    "memory_of",
    "model_seen",
    "save",
    "save_in",
    "settings_seen",
    "speeds_for",
    "spread",
    "to_json",
    "total_of",
    "work_of",
]
