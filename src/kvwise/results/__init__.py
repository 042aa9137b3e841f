"""What was measured, kept: records, the database, files to carry it to another machine."""

from kvwise.results.codec import SCHEMA, from_json, from_line, line, to_json
from kvwise.results.keep import load, save, save_in
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
    "SCHEMA",
    "DeviceSeen",
    "EngineSeen",
    "Machine",
    "Measurement",
    "ModelSeen",
    "Sample",
    "engine_seen",
    "fingerprint",
    "from_json",
    "from_line",
    "line",
    "load",
    "machine_seen",
    "model_seen",
    "save",
    "save_in",
    "settings_seen",
    "spread",
    "to_json",
]
