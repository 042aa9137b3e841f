"""What a measurement keeps of memory."""

from __future__ import annotations

from pathlib import Path

from kvwise import Device, Launch, account, open_model
from kvwise.memory.parts.companions import Companions
from kvwise.options import change
from kvwise.results.names import PARTS, memory_of

QWEN = open_model(str(Path(__file__).parents[1] / "zoo/models/qwen3-8b.json.gz"))


def test_a_draft_counts() -> None:
    launch = change(
        Launch.parse(["-c", "4096", "-np", "1"]),
        model_draft="draft.gguf", spec_types=("draft-simple",),
    )  # fmt: skip
    gpu = Device.of("RTX 4090")
    ledger = account(QWEN, launch, [gpu], companions=Companions(draft=QWEN))
    rows = memory_of(ledger)["predicted"]
    assert [sum(row[part] for part in PARTS) for row in rows] == [
        line.total_bytes for line in ledger.lines
    ]
    assert rows[0]["weights_bytes"] > 1.9 * ledger.lines[0].weights_bytes
