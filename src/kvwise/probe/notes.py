"""What a probe has to say beside its figures: a stable code with values, worded when it is shown.

The code and the values travel in the document, so that a probe sent by a friend is worded in the
reader's language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvwise.text import Phrase, phrase
from kvwise.units import show

_NOTES = {
    "free_over_reported": "the driver calls {free_bytes} free; {had_bytes} could be had",
    "largest_block": "no single block is larger than {largest_bytes}, although {all_bytes} can be "
    "had in pieces",
    "ceiling": "nothing beyond {ceiling_bytes} was tried: {margin_bytes} stay free for others",
    "nothing": "nothing was tried: {free_bytes} free are no more than the {margin_bytes} that stay "
    "free for others",
    "spilled": "{spilled_bytes} of what the driver gave lie in system memory: written at "
    "{slow_rate}, the rest at {fast_rate}",
    "counted_out": "{shared_bytes} of what the driver gave lie in system memory as Windows counts "
    "it in two ways, although all was written at {fast_rate}",
    "perhaps_spilled": "{spilled_bytes} may lie in system memory (written at {slow_rate}, the rest "
    "at {fast_rate}; Windows counts {shared_bytes} more): the witnesses disagree",
    "perhaps_counted_out": "Windows counts {shared_bytes} more of this process in shared memory, "
    "but all was written at {fast_rate}: the witnesses disagree",
    "unwritten": "{given_bytes} were given, but could not be written; {written_bytes} could",
    "never_written": "{given_bytes} were given, but neither that nor half of it could be written",
    "slow_card": "memory is written at {fast_rate}, and the card's own speed is not known: it "
    "cannot be said where the memory lies",
    "contended": "another program took memory meanwhile: a second try may find another figure",
    "time_limit": "after {seconds} s the search ended before it was done",
    "leak": "{left_bytes} did not come back after everything was freed",
    "read_back": "what was written could not be read back: do not trust this card or its driver",
    "fallback_policy": "whether Windows moves memory to the system is set for each program: a "
    "llama-server may be given what this probe was refused, or the reverse",
    "wsl": "under WSL2 less can be used than is called free, on one machine by 2 GB: only a "
    "measurement tells how much (microsoft/WSL issue 41176)",
    "windows_budget": "Windows grants this process {local_bytes} on the card ({used_bytes} in use) "
    "and {shared_bytes} of the system's memory",
    "no_budget": "Windows did not tell what it grants on this card: only the driver's figure "
    "limited what was tried",
    "dxgi_fakes": "Windows' budget for this card (DXGI) was read in a way that never ran on real "
    "Windows, only against an imitation of its library",
    "pdh_fakes": "Windows' count of shared memory (PDH) was read in a way that never ran on real "
    "Windows, only against an imitation of its library",
    "mig": "a slice (MIG) of a larger card",
    "prohibited": "its compute mode allows no program, or only one at a time",
    "unified": "its memory is the system's own: it was not taken to try",
    "host_free": "free is what the system has available, as llama.cpp takes it: the driver's own "
    "figure leaves out what the system can take back",
    "software": "a processor that poses as a GPU: measured only where the address space is limited",
    "metal_limit": "the limit for a process, not a measurement: beyond it the first prompt fails",
    "quick": "not measured: what the driver says",
    "busy": "not measured, because {names} runs and may be what is pushed out; --full measures",
    "others": "not measured, because other programs hold {others_bytes} of it; --full measures",
    "stuck": "not measured: a call of this driver never came back, even when its process was ended",
    "crashed": "the driver crashed ({how}) while {phase}",
    "hung": "the driver did not answer within {seconds} s while {phase}",
    "left": "the driver ended the probing process (exit code {exit_code}) while {phase}",
    "driver": "{call} failed with {error}{meaning}",
    "broken": "the probe itself failed while {phase}: {error}",
    "hidden": "{count} more are here, and {variable}={value} hides them",
    "moved": "the devices changed while they were probed",
    "fakes": "this way of probing {backend} was never run on real hardware, only against "
    "imitations of its library",
    "software_only": "this way of probing {backend} was run on a software device only, never on a "
    "real GPU",
}
_SENTENCES = {
    "start": "the process started",
    "load": "its library was loaded",
    "init": "it started",
    "list": "it listed its devices",
    "context": "the device was opened",
    "memory": "it was asked for its free memory",
    "budget": "Windows was asked for its budget",
    "count": "Windows was asked what it moved",
    "allocate": "it was asked for memory",
    "touch": "memory was written",
    "check": "memory was read back",
    "free": "memory was given back",
    "end": "the device was closed",
}
"""What went on in each phase of a child."""

_HINT = {
    34: "this is a stub for compiling, not a driver",
    46: "another program has the card to itself",
    100: "there is no device, or it is hidden",
    101: "no such device",
    214: "the card found an error in its memory that it cannot correct",
    304: "device files are missing or may not be used",
    802: "the system's fabric manager is not ready",
    803: "driver and library differ: restart after an update of the driver",
    804: "a compatibility library on a card that has none",
    999: "the driver is half loaded, or the card was lost",
}
"""What codes of CUDA and HIP mean in practice (cuda.h)."""


def meaning(backend: str, code: int) -> str:
    """What a driver's code means in practice, empty if there is nothing to add."""
    return _HINT.get(code, "") if backend in ("cuda", "hip") else ""


@dataclass(frozen=True, slots=True)
class Note:
    """A remark; names of values say their unit (`_bytes`, `_rate` in bytes/s)."""

    code: str
    values: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def message(self) -> Phrase:
        """In words; a code of a newer kvwise is shown as it is."""
        words = phrase(
            _NOTES.get(self.code, "{text}"),
            text=self.code,
            **{name: _worded(name, value) for name, value in self.values.items() if name != "text"},
        )
        try:
            str(words)
        except KeyError:  # a document that lacks a value
            return phrase("{text}", text=self.code)
        return words


def _worded(name: str, value: int | str) -> object:
    if isinstance(value, int) and name.endswith("_bytes"):
        return show(value)
    if isinstance(value, int) and name.endswith("_rate"):
        return f"{value / 10**9:.0f} GB/s"
    if name == "phase":
        return phrase(_SENTENCES.get(str(value), str(value)))
    if name == "meaning":
        return phrase(": {text}", text=phrase(str(value))) if value else ""
    return value
