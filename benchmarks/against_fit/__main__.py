"""llama.cpp's own `--fit` and kvwise's plan, side by side: same memory, same margin.

    python benchmarks/against_fit FOLDER [--grid sample|full|tiny] [--minutes N] [--output FILE]

FOLDER (or KVWISE_ORACLE_BIN) holds llama-fit-params. Models are sparse twins of zoo headers, cards
are virtual, so it runs anywhere; one process at a time. Answers are kept (`--kept FILE`), so that a
run can be stopped and taken up again; `--losses FILE` lists every case where llama.cpp's choice is
better than ours. With --output the page of docs is written from all that was asked.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import alone
import losses
from asking import Asked, ask, ask_ours, take_turns
from grid import Case, cases
from kept import Kept, NotKept, Row, version

import page
from kvwise.engine.find import binary
from kvwise.errors import KvwiseError
from kvwise.launch import Launch
from kvwise.paths import cache_dir

BEGAN = time.monotonic()


def progress(words: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s  {words}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/against_fit")
    folder = os.environ.get("KVWISE_ORACLE_BIN")
    parser.add_argument("folder", nargs="?", default=folder, help="where llama-fit-params is")
    parser.add_argument("--grid", default="sample", choices=("sample", "full", "tiny"))
    parser.add_argument("--build", help="of the tool, if it does not know it itself, like b10605")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kept", default=str(cache_dir() / "against_fit.jsonl"))
    parser.add_argument("--losses")
    parser.add_argument("--only-theirs", action="store_true", help="ask llama.cpp alone, and keep")
    parser.add_argument(
        "--only-ours", action="store_true", help="our plans alone, each put to llama.cpp's pass"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="do not put our plans to llama.cpp's own pass"
    )
    parser.add_argument("--commit", default="", help="of the code that is asked, for the page")
    parser.add_argument("--turns", type=int, default=40, help="models asked about for the clock")
    parser.add_argument("--output")
    parser.add_argument("--run", default=str(os.getpid()), help="name of the timed questions")
    parser.add_argument(
        "--code", help="take the cases that are kept of this version of the code; ask the clock's"
    )
    parser.add_argument("--clock-commit", default="", help="of the code that the clock's are asked")
    given = parser.parse_args()
    if not given.folder:
        parser.error("name the FOLDER of llama-fit-params")
    return given


def main() -> None:
    given = arguments()
    tool = Path(given.folder) / "llama-fit-params"
    build = given.build or binary(tool).build or Launch().build
    today = Asked(tool, build, Kept(Path(given.kept)), version())
    asked = today
    if given.code:
        asked = Asked(tool, build, Kept(Path(given.kept), closed=True), given.code)
    if given.only_ours:
        rows, failed = _rows(asked, given)
        wanted = sum(1 for _ in cases(given.grid))
        found = alone.write(
            rows, failed, build=build, wanted=wanted, commit=given.commit,
            command=f"python benchmarks/against_fit FOLDER --grid {given.grid} --only-ours",
        )  # fmt: skip
        _show(found, given.output)
        return
    turns = [] if given.only_theirs or not given.turns else _turns(today, given)
    rows, failed = _rows(asked, given)
    if given.only_theirs:
        return
    if given.losses:
        _write(given.losses, losses.text(rows, asked.version))
    wanted = sum(1 for _ in cases(given.grid))
    about = page.Asked(build, given.grid, wanted, given.commit, given.clock_commit)
    found = page.write(rows, turns, failed, about)
    _show(found, given.output)


def _show(page: str, output: str | None) -> None:
    print(page)
    if output:
        _write(output, page)


def _rows(asked: Asked, given: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """Everything that was asked, and why some could not be, until time is up."""
    rows: list[Row] = []
    failed: list[str] = []
    wanted = list(cases(given.grid))
    for number, case in enumerate(wanted, 1):
        if time.monotonic() - BEGAN > given.minutes * 60:
            progress(f"time is up after {number - 1} of {len(wanted)} cases")
            break
        try:
            if given.only_ours:
                row = ask_ours(asked, case)
            else:
                row = ask(asked, case, only_theirs=given.only_theirs, check=not given.no_check)
        except NotKept:
            continue
        except KvwiseError as error:
            failed.append(f"{case.name}: {error}")
            progress(failed[-1])
            continue
        rows.append(row)
        if given.only_theirs or given.only_ours:
            progress(f"{number}/{len(wanted)}  {case.name}{_said(row)}")
            continue
        progress(f"{number}/{len(wanted)}  {case.name}: {losses.words(row)}")
        if given.losses and number % 10 == 0:
            _write(given.losses, losses.text(rows, asked.version))
    return rows, failed


def _said(row: Row) -> str:
    said = row.get("free said")
    return f": {said['fits']} {said['further']}" if said else ""


def _turns(asked: Asked, given: argparse.Namespace) -> list[Row]:
    """The first cases of so many models, before anything else was asked in this process."""
    first: dict[str, Case] = {}
    for case in cases(given.grid):
        first.setdefault(case.model, case)
    turns = []
    for case in list(first.values())[: given.turns + 1]:
        progress(f"for the clock: {case.name}")
        try:
            turns.append(take_turns(asked, case, given.run))
        except NotKept:
            continue
        except KvwiseError as error:
            progress(str(error))
    return turns[1:]  # the first one has loaded the program


def _write(path: str, text: str) -> None:
    part = Path(path + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    main()
