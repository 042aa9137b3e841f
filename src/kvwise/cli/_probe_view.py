"""A probe as a person reads it: a table, and under it why."""

from __future__ import annotations

from collections.abc import Iterator

from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.probe.advice import advise
from kvwise.probe.notes import Note
from kvwise.probe.report import DeviceReport, Report
from kvwise.text import Phrase, phrase
from kvwise.units import show

_BAD = {"crashed", "hung", "left", "driver", "broken", "stuck", "spilled", "counted_out",
        "read_back", "leak", "never_written"}  # fmt: skip
_ASIDE = {"fakes", "software_only", "dxgi_fakes", "pdh_fakes", "windows_budget", "ceiling",
          "fallback_policy"}  # fmt: skip


def show_report(printer: Printer, report: Report) -> None:
    """Devices, what to plan with and why, then the host."""
    if report.devices:
        printer.table(devices_table(report))
    else:
        printer.text(phrase("no GPU: no driver here shows one"))
    for each in report.devices:
        printer.text()
        printer.text(f"{each.device} {each.name}, {_facts(printer, each)}", "title")
        for line, style in _lines(printer, each, report.system):
            printer.text(line, style)
    for backend, note in report.remarks:
        printer.text(phrase("{backend}: {text}", backend=backend, text=note.message), "warn")
    for backend, note in report.failures:
        printer.text(phrase("{backend}: {text}", backend=backend, text=note.message), "bad")
    printer.text()
    for words in _host(report):
        printer.text(words)


def devices_table(report: Report) -> Table:
    """One row per device."""
    rows = []
    for each in report.devices:
        advice = advise(each, report.system)
        rows.append(
            (
                Cell(each.device, "title"),
                _size(each.total_bytes or None),
                _size(each.free_bytes),
                _size(each.largest_block_bytes),
                _size(each.all_blocks_bytes),
                _spilled(each),
                _rate(each.write_bytes_per_s),
                Cell(_size(advice.free_bytes), "good" if advice.free_bytes else "bad"),
                _size(advice.reserve_bytes),
            )
        )
    return Table(
        (
            Column(phrase("device")),
            Column(phrase("total"), right=True),
            Column(phrase("called free"), right=True),
            Column(phrase("largest block"), right=True),
            Column(phrase("all blocks"), right=True),
            Column(phrase("spilled")),
            Column(phrase("written at"), right=True),
            Column(phrase("plan with"), right=True),
            Column(phrase("less reserve"), right=True),
        ),
        rows,
    )


def _size(size: int | None) -> str:
    return "-" if size is None else show(size)


def _rate(rate: int | None) -> str:
    return "-" if not rate else f"{rate / 10**9:,.0f} GB/s"


def _spilled(each: DeviceReport) -> Cell:
    if each.spilled is None:
        return Cell("?" if each.outcome == "measured" and not each.software else "-", "dim")
    return Cell(phrase("yes"), "bad") if each.spilled else Cell(phrase("no"), "good")


def _facts(printer: Printer, each: DeviceReport) -> str:
    """What stands behind a device's name."""
    facts: list[Words] = [each.driver or each.backend]
    if each.compute_capability:
        facts.append(phrase("compute capability {number}", number=each.compute_capability))
    if each.sm_count:
        facts.append(phrase("{count} multiprocessors", count=each.sm_count))
    if each.driver_model:
        facts.append(each.driver_model)
    if each.display:
        facts.append(phrase("drives a display"))
    return ", ".join(printer.say(fact) for fact in facts if fact)


def _lines(printer: Printer, each: DeviceReport, system: str) -> Iterator[tuple[Phrase, str]]:
    """Why the figures are what they are; what went wrong comes first."""
    for note in sorted(each.notes, key=_rank):
        style = "bad" if note.code in _BAD else "dim" if note.code in _ASIDE else "warn"
        yield phrase("  {text}", text=note.message), style
    if each.outcome == "failed":
        yield phrase("  nothing to plan with"), "bad"
        return
    advice = advise(each, system)
    if each.heaps:
        yield _heaps(printer, each), "dim"
    if advice.max_block_bytes is not None:
        yield phrase("  a single buffer: at most {size}", size=show(advice.max_block_bytes)), ""
    yield phrase("  {text}", text=advice.reserve_reason), ""


def _heaps(printer: Printer, each: DeviceReport) -> Phrase:
    """Vulkan's heaps and the sizes at which llama.cpp cuts and gives up."""
    heaps = [
        phrase(
            "{size} on the card" if heap["on_device"] else "{size} of the host",
            size=show(heap["size_bytes"]),
        )
        for heap in each.heaps
    ]
    return phrase(
        "  heaps: {heaps}; one allocation at most {allocation}, one buffer {buffer}, cut at "
        "{chunk}",
        heaps=", ".join(map(printer.say, heaps)),
        allocation=_size(each.max_allocation_bytes),
        buffer=_size(each.max_buffer_bytes),
        chunk=_size(each.chunk_bytes),
    )


def _rank(note: Note) -> int:
    return 0 if note.code in _BAD else 2 if note.code in _ASIDE else 1


def _host(report: Report) -> Iterator[Phrase]:
    host = report.host
    yield phrase(
        "host: {available} of {total} available",
        available=show(host.available_bytes),
        total=show(host.total_bytes),
    )
    for limit in report.host_limits:
        yield phrase(
            "  {name} binds: {limit}, {room} of it left",
            name=limit["name"],
            limit=show(limit["limit_bytes"]),
            room=show(limit["room_bytes"]),
        )
