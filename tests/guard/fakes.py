"""A program that speaks as llama-server does and fails as it is told; for what no test machine has.

`fake(folder, *behaviours)` writes it. The first start does the first behaviour, the second the
second, and the last one stays. A behaviour is a dict:

| key | what it does |
| --- | --- |
| lines | written to stderr first |
| above | {flag: number}: fail only if the last mention of the flag is above the number |
| below | {flag: number}: fail only if the last mention of the flag is below the number |
| exit, signal | ends so while it loads |
| hang, spin | loads for ever: asleep, or computing |
| then | what POST /end does once it serves: {"exit": n} or {"signal": n}, `lines` before that |
| soon | the same by itself, a moment after it answered that it is ready |
| deaf | /health of a serving one is not answered any more after POST /end |
| busy | seconds a load takes, a line now and then |
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

SERVE: dict[str, Any] = {}
SERVE_AND_END: dict[str, Any] = {"soon": True}

_PROGRAM = r"""
import http.server, json, os, pathlib, signal, sys, threading, time

HERE = pathlib.Path(__file__).parent
WORDS = sys.argv[1:]
if "--version" in WORDS:
    print("version: 0.2.0 (build 10605, commit abc)", file=sys.stderr)
    sys.exit(0)
if "--help" in WORDS:
    print((HERE / "help.txt").read_text())
    sys.exit(0)
if "--list-devices" in WORDS:
    print("Available devices:\n" + (HERE / "devices.txt").read_text())
    sys.exit(0)

signal.signal(signal.SIGINT, signal.SIG_DFL)  # as llama-server while it loads
with (HERE / "starts.jsonl").open("a") as file:
    file.write(json.dumps({"argv": WORDS, "pid": os.getpid(),
        "env": {k: v for k, v in os.environ.items() if k.startswith("LLAMA")}}) + "\n")
number = len((HERE / "starts.jsonl").read_text().splitlines())
plans = json.loads((HERE / "behaviours.json").read_text())
plan = plans[min(number, len(plans)) - 1]

def last(flag, default):
    found = [WORDS[at + 1] for at, word in enumerate(WORDS[:-1]) if word == flag]
    return found[-1] if found else default

def say(line):
    sys.stderr.write(line + "\n")
    sys.stderr.flush()

def end(how):
    for line in how.get("lines", []):
        say(line)
    sys.stderr.flush()
    if "signal" in how:
        os.kill(os.getpid(), how["signal"])
        time.sleep(60)
    os._exit(how.get("exit", 0))

fails = all(float(last(flag, 0)) > limit for flag, limit in plan.get("above", {}).items()) and all(
    float(last(flag, 0)) < limit for flag, limit in plan.get("below", {}).items())
say("0.00.000.001 I srv  load_model: loading model 'm.gguf'")
if fails:
    for line in plan.get("lines", []):
        say(line)
    if plan.get("hang"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if plan.get("spin"):
        while True:
            pass
    if "exit" in plan or "signal" in plan:
        end({key: plan[key] for key in ("exit", "signal") if key in plan})
until = time.time() + plan.get("busy", 0)
while time.time() < until:
    say("0.00.000.002 I load_tensors: .")
    time.sleep(0.1)

state = {"deaf": False, "asked": False}
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass
    def do_GET(self):
        if state["deaf"]:
            time.sleep(600)
        body = b'{"status":"ok"}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if plan.get("soon") and not state["asked"]:
            state["asked"] = True
            threading.Timer(1.5, end, [plan.get("then", {})]).start()
    def do_POST(self):
        self.do_GET()
        if self.path == "/say":
            for line in plan.get("says", []):
                say(line)
        elif plan.get("deaf"):
            state["deaf"] = True
        else:
            end(plan.get("then", {}))

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

try:
    server = Server((last("--host", "127.0.0.1"), int(last("--port", 8080))), Handler)
except OSError:
    say("0.00.000.003 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: "
        + last("--port", "8080"))
    sys.exit(1)

def stop(number, frame):
    say("0.00.000.009 I srv operator(): cleaning up before exit...")
    os._exit(plan.get("stop_code", 0))

signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
if plan.get("stubborn"):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("engine's own stdout", flush=True)
host, port = server.server_address[:2]
say("0.00.000.004 I load_tensors: library talk")
say("0.00.000.005 I srv  main: server is listening on http://%s:%d" % (host, port))
say("0.00.000.006 I srv  load_model: model loaded")
server.serve_forever()
"""

_HELP = """
-m, --model FNAME   -c, --ctx-size N   -b N   -ub N   -ctk TYPE   -ctv TYPE   -ngl N   -ncmoe N
-np N   -kvu   -nkvo   -fit on   -fa on   --host H   --port P   -lv N   --api-key KEY   --embedding
-ot PATTERN=BUFFER   -ts N0,N1   --shiny-new VALUE   --rpc SERVERS   -dev D   -t N
--no-warmup   -hf REPO   --metrics
"""


def fake(folder: Path, *behaviours: dict[str, Any], devices: str = "  (none)\n") -> Path:
    """The program's path. `starts(folder)` tells afterwards how it was called."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "llama-server"
    head = f"#!{sys.executable} -S\n"
    program.write_text(head + textwrap.dedent(_PROGRAM))
    program.chmod(0o755)
    (folder / "behaviours.json").write_text(json.dumps(behaviours or [SERVE]))
    (folder / "help.txt").write_text(_HELP)
    (folder / "devices.txt").write_text(devices)
    (folder / "starts.jsonl").write_text("")
    return program


def starts(folder: Path) -> list[dict[str, Any]]:
    """argv, pid and LLAMA variables of every start."""
    return [json.loads(line) for line in (folder / "starts.jsonl").read_text().splitlines()]


def last(argv: list[str], flag: str) -> str | None:
    """The last value of a flag, which is the one that counts."""
    found = [argv[at + 1] for at, word in enumerate(argv[:-1]) if word == flag]
    return found[-1] if found else None
