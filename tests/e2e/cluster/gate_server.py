"""A way to a server that can be shut: `gate_server.py HOST PORT [TEXT]` needs Python alone.

What comes in is held back, without a word, until the file OPEN is there: all of it, or, with a
TEXT, a connection's bytes from the first that hold it. "held" is printed when that begins.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

OPEN, SERVES = Path("/dev/shm/open"), Path("/dev/shm/serves")
PORT = 5432


def serve(host: str, port: int, text: bytes) -> None:
    server = socket.create_server(("", PORT))
    SERVES.touch()
    while True:
        here, _ = server.accept()
        Thread(target=relay, args=(here, host, port, text), daemon=True).start()


def relay(here: socket.socket, host: str, port: int, text: bytes) -> None:
    if not text:
        hold()
    there = socket.create_connection((host, port))
    Thread(target=pass_on, args=(there, here, b""), daemon=True).start()
    pass_on(here, there, text)


def pass_on(source: socket.socket, target: socket.socket, text: bytes) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if text and text in data:
                hold()
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def hold() -> None:
    if not OPEN.exists():
        print("held", flush=True)
    while not OPEN.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), "".join(sys.argv[3:4]).encode())
