"""One option of llama.cpp as a row: its spellings in each tool, its kind, what it sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvwise.options.kinds import FLAG, SWITCH, Kind

SERVER, CLI, BENCH = "llama-server", "llama-cli", "llama-bench"
BOTH = (SERVER, CLI)
EVERY = (SERVER, CLI, BENCH)


@dataclass(frozen=True, slots=True)
class Option:
    """A row of OPTIONS.

    `flags` and `negative` are the spellings in llama-server and llama-cli, `bench` those of
    llama-bench (where switches take 0 or 1, so `bench_kind` may differ). `field` is the Launch
    field it sets (names starting with `_` are put together afterwards, as -hf and -hff are);
    `on` and `off` are for flags that set a fixed value or several. A row without any of these is
    passed on as it is. `memory` says that it can change bytes. `removed` and `deprecated` name
    what to use instead; `adds` means that every mention counts, not only the last; `extra` are
    flags that it stands for besides its fields. `lacking` is the newest build known to lack it and
    `since` the oldest known to have it (0 = all we know have it); `until` is the newest known to
    have what was `removed` since, and `lost` the oldest known to be without it (0 = the next one).
    """

    flags: tuple[str, ...]
    kind: Kind
    field: str = ""
    env: str = ""
    negative: tuple[str, ...] = ()
    tools: tuple[str, ...] = BOTH
    bench: tuple[str, ...] = ()
    bench_kind: Kind | None = None
    on: tuple[tuple[str, Any], ...] = ()
    off: tuple[tuple[str, Any], ...] = ()
    memory: bool = False
    ours: bool = False
    help: str = ""
    value: str = ""
    removed: str = ""
    deprecated: str = ""
    lacking: int = 0
    since: int = 0
    until: int = 0
    lost: int = 0
    extra: tuple[str, ...] = ()
    adds: bool = False

    @property
    def name(self) -> str:
        """The long spelling, the one to call the option by."""
        spellings = self.flags or self.bench
        return next((flag for flag in spellings if flag.startswith("--")), spellings[0])

    @property
    def no_env(self) -> str:
        """The LLAMA_ARG_NO_... name that switches also answer to."""
        return self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") if self.negative else ""

    def gone(self, build: int) -> bool:
        """True if it was removed before this build."""
        return bool(self.removed) and build >= (self.lost or self.until + 1)

    def spellings(self, tool: str) -> tuple[str, ...]:
        """All spellings that `tool` understands, positive ones first; empty = it has none."""
        if tool not in self.tools:
            return ()
        return self.bench if tool == BENCH and not self.ours else self.flags + self.negative

    def kind_in(self, tool: str) -> Kind:
        """How this tool reads the value."""
        return self.bench_kind if tool == BENCH and self.bench_kind else self.kind

    def settings(self, value: Any) -> tuple[tuple[str, Any], ...]:
        """(field, value) pairs that a value of this option sets."""
        if self.kind in (FLAG, SWITCH) and (self.on or self.off):
            return self.on if value else self.off
        return ((self.field, value),) if self.field else ()

    @property
    def passed_on(self) -> bool:
        """True if the option sets no field and goes to `Launch.extra`."""
        return not (self.field or self.on or self.off)
