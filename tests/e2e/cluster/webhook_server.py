"""An admission webhook, of a pod: `webhook_server.py PORT` needs Python alone.

It serves once CERTIFICATE is there. At /deny it says no; at /mutate it changes a pod as meshes, mirrors and
proxies do; at /counts it tells how often each was asked.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
from base64 import b64encode
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CERTIFICATE = Path("/dev/shm/webhook.pem")
MESSAGE = "image not signed"
SIDECAR = "sidecar"
asked: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]  # the API server adds its timeout
        asked[path] += 1
        request = review["request"]
        answer: dict[str, Any] = {"uid": request["uid"], "allowed": path != "/deny"}
        if path == "/deny":
            answer["status"] = {"code": 403, "message": MESSAGE}
        else:
            patch = json.dumps(changes(request["object"])).encode()
            answer |= {"patchType": "JSONPatch", "patch": b64encode(patch).decode()}
        self._answer({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    def do_GET(self) -> None:
        self._answer(dict(asked))

    def _answer(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def changes(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """A container more, a variable, the image's full name, another label."""
    (runner,) = pod["spec"]["containers"]
    security = runner["securityContext"]
    sleep = ["python", "-c", "import time; time.sleep(600)"]
    sidecar = {"name": SIDECAR, "image": runner["image"], "command": sleep, "securityContext": security}
    return [
        {
            "op": "replace",
            "path": "/spec/containers/0/image",
            "value": "docker.io/library/" + runner["image"],
        },
        {"op": "add", "path": "/spec/containers/0/env/-", "value": {"name": "NO_PROXY", "value": "*"}},
        {"op": "add", "path": "/spec/containers/0", "value": sidecar},
        {"op": "add", "path": "/metadata/labels/mutated", "value": "x7"},
    ]


def serve(port: int) -> None:
    while not CERTIFICATE.exists():
        time.sleep(0.1)
    server = ThreadingHTTPServer(("", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
