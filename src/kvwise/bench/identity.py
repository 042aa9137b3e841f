"""What decides the results of a sweep: results of other settings never mix."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from kvwise import __version__
from kvwise.bench.ruled import DOES_NOT_FIT
from kvwise.bench.run import Sweep
from kvwise.verify.identity import fingerprint


def about(sweep: Sweep) -> dict[str, Any]:
    """Names and values for `Job.open`: files, engines, tests, every setting. Raises OSError."""
    means = sweep.means
    settings = [
        [each.case.key, each.case.launch.as_dict(), each.way, [test.name for test in each.tests],
         _lasting(each.code)]
        for each in sweep.ruled
    ]  # fmt: skip
    programs = [
        [each.kind, each.build, each.version, *(fingerprint(each.path) if each.path else ())]
        for each in (means.engine, means.bench)
        if each is not None
    ]
    return {
        "model files": [fingerprint(model.path) for model in sweep.models],
        "engine": programs,
        "settings": hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16],
        "repetitions": sweep.repetitions,
        "retries": sweep.retries,
        "threads": means.threads,
        "devices": [[each.name, each.total_bytes] for each in means.devices],
        "kvwise": __version__,
    }


def _lasting(code: str) -> str:
    """What other programs leave of the memory changes between two calls: it is no other sweep."""
    return "" if code == DOES_NOT_FIT else code


def subject(sweep: Sweep) -> str:
    """What a job is named by: the models' files."""
    return " ".join(model.path for model in sweep.models)
