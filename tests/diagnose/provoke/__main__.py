"""`cd tests && python -m diagnose.provoke FOLDER ENGINE... [=NAME...]` writes cleaned logs.

An engine is `embedded` or the path of a llama-server.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from kvwise.diagnose import diagnose
from kvwise.engine.find import find

from .running import clean, run, suits
from .table import FAILURES, HEALTHY

target, *engines = sys.argv[1:]
only = [each[1:] for each in engines if each[0] == "="]
for name in [each for each in engines if each[0] != "="]:
    used = find(name)
    for title, each in (FAILURES | HEALTHY).items():
        if not suits(each, used) or (only and title not in only):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            log, code = run(each, used, Path(scratch))
        found = diagnose(log, exit_code=None if each.stop_at else code, numbers=False)
        kinds = [(f.kind, f.confidence, f.memory_is_the_cause) for f in found.findings]
        good = (kinds[:1] and kinds[0][0] == each.kind) or (not each.kind and not found.blamed)
        print("ok " if good else "BAD", used.kind, title, each.kind, code, found.outcome, kinds)
        Path(target).mkdir(exist_ok=True)
        Path(target, f"{title}-{used.build or 'b10605'}.log").write_bytes(clean(log))
