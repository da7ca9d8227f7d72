"""An MCP server over its pipes that misbehaves: `python -m tests.support.stdio_server [how]`.

`how`, of the process: `noise` (log lines on stdout before anything), `exit` (ends at once,
with a last word), `stubborn` (heeds neither the end of its input nor SIGTERM, and has a
child that does not either), `mute` (never answers). Tools, by name: `echo`, `env`, `die`,
`hang`, `noisy`, `wrong_id`, `late` (answers at the next call), `progress`, `count FILE`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("echo", "env", "die", "hang", "noisy", "wrong_id", "late", "progress", "count")


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], text: str) -> None:
    content = [{"type": "text", "text": text}]
    say({"jsonrpc": "2.0", "id": request["id"], "result": {"content": content}})


def call(request: dict[str, Any], waiting: list[dict[str, Any]]) -> None:
    name, arguments = request["params"]["name"], request["params"].get("arguments") or {}
    for earlier in waiting:
        answer(earlier, "too late")
    waiting.clear()
    if name == "env":
        answer(request, json.dumps(dict(os.environ)))
    elif name == "die":
        sys.stderr.write("about to die\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "hang":
        pass
    elif name == "noisy":
        print(
            "INFO: at work", "{not json", "", "\x1b[31mred\x1b[0m", '"a string"', "[]", sep="\n", flush=True
        )
        answer(request, "heard")
    elif name == "wrong_id":
        answer({"id": 4711}, "of another")
    elif name == "late":
        waiting.append(request)
    elif name == "progress":
        for _ in range(8):
            time.sleep(0.15)
            token = request["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1}
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        answer(request, "done")
    elif name == "count":
        with Path(arguments["file"]).open("a") as file:
            file.write("called\n")
        answer(request, "counted")
    else:
        answer(request, json.dumps(arguments))


def main(how: str) -> None:
    if how == "exit":
        sys.stderr.write("no licence found\n")
        sys.exit(7)
    if how == "noise":
        print("Server is starting…\nListening.", flush=True)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        found = subprocess.Popen([sys.executable, "-c", child])
        Path(sys.argv[2]).write_text(f"{os.getpid()} {found.pid}")
    waiting: list[dict[str, Any]] = []
    for line in sys.stdin:
        if how == "mute":
            continue
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            info = {"name": "stdio", "version": "1"}
            version = request["params"]["protocolVersion"]
            found_here = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            say({"jsonrpc": "2.0", "id": request["id"], "result": found_here})
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
            say({"jsonrpc": "2.0", "id": request["id"], "result": {"tools": tools}})
        elif method == "tools/call":
            call(request, waiting)
    if how == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
