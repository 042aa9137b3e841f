"""Is every plan tight? Each model of the zoo on cards of 2 to 80 GiB and about its own size.

    python benchmarks/tight.py [--part 1/4] [--minutes N] [--kept FILE] [--models NAME...]

The same checks as the slow test of tests/plan/test_tight.py: what was chosen fits, one step more
does not, or another limit ends it. Every answer is kept under the version of the code as soon as
it is there, so that a run can be stopped by anything and taken up again by the same command;
`--part` shares the models between processes, each with a file of its own. Exit code 1 if a plan is
not tight, 0 if all that was asked is; what is still to be asked is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "against_fit"), str(HERE.parent / "tests")]

from kept import Kept, Row, version  # noqa: E402  (their folders are not packages)

from kvwise.paths import cache_dir  # noqa: E402
from plan.tight import HEADS, NAMES, check, places  # noqa: E402

BEGAN = time.monotonic()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/tight.py")
    parser.add_argument("--part", default="1/1", help="which share of the models, like 2/4")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--kept", help="where answers are kept [default: in the cache folder]")
    parser.add_argument("--models", nargs="*", help="only these")
    given = parser.parse_args()
    part, _, parts = given.part.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        parser.error("--part is like 2/4")
    given.part, given.parts = int(part), int(parts)
    place = Path(given.kept) if given.kept else cache_dir() / "tight.jsonl"
    name = f"{place.stem}-{part}-of-{parts}{place.suffix}" if given.parts > 1 else place.name
    given.kept = place.with_name(name)
    return given


def models(given: argparse.Namespace) -> list[str]:
    """Those of this part, in an order that makes any first ones a fair sample."""
    names = [name for name in NAMES if name not in HEADS]
    random.Random("tight").shuffle(names)
    mine = names[given.part - 1 :: given.parts]
    return [name for name in mine if name in given.models] if given.models else mine


def asked(name: str, number: int) -> Row:
    """What ends the plan there, or where and why it is not tight; and seconds of processor time."""
    began = time.process_time()
    called, devices, purpose = list(places(name))[number]
    wrong = ""
    ends = ""
    try:
        ends = check(name, devices, purpose)
    except AssertionError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{frame.name}: {frame.line}"
    return {"place": called, "ends": ends, "wrong": wrong, "cpu": time.process_time() - began}


def main() -> int:
    given = arguments()
    kept, code = Kept(given.kept), version()
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    cpu = 0.0
    wanted = models(given)
    left = len(wanted)
    for name in wanted:
        count = len(list(places(name)))
        for number in range(count):
            if time.monotonic() - BEGAN > given.minutes * 60:
                break
            row = kept.ask(f"{code} {name} {number}", lambda at=number, of=name: asked(of, at))
            ends[row["ends"] or "no plan"] += not row["wrong"]
            cpu += row["cpu"]
            if row["wrong"]:
                wrong.append(f"{name}, {row['place']}: {row['wrong']}")
                print(wrong[-1], file=sys.stderr, flush=True)
        else:
            left -= 1
            done = len(wanted) - left
            print(f"{done}/{len(wanted)} models, {cpu:.0f} s of processor time: {name}",
                  file=sys.stderr, flush=True)  # fmt: skip
            continue
        break
    total = sum(ends.values()) + len(wrong)
    print(f"{total} plans of code {code}: {len(wrong)} not tight, {cpu:.0f} s of processor time; "
          f"{left} of {len(wanted)} models are still to be asked")  # fmt: skip
    for what, count in ends.most_common():
        print(f"{count:6}  {what}")
    for each in wrong:
        print(f"not tight: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
