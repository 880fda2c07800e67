"""A stand-in for an AIO Sandbox service, written from its public description (OpenAPI document 1.5.1) for tests, and tried with
the service's own Python client (agent-sandbox 0.0.30).

It answers the routes for commands, code and files as described, checks every body against the described fields (one that it
does not know is refused with 422, so that a misspelt one is noticed), and really executes: each command in a box of `ringwall
run`, on a directory of its own, so that nothing runs unisolated. What the boxes see as `/workspace` is the service's home.

Beside the service's own routes there are two for tests: POST /stand-in/fault {"path", "kind", "after", "times"} makes answers of a
route go wrong (after so many, so often), GET /stand-in/requests tells what was asked. It ends when its standard input does.

    python3 -B aio_service.py RINGWALL DIRECTORY KEY
"""

import hmac
import json
import os
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aio_bodies import Invalid, Refused, check
from aio_commands import HOME, LOCK, SESSIONS, close_session, code, create_session, execute, kill, output, write
from aio_files import list_path, read_file, write_file

KEY = sys.argv[3]
HUGE = 64 << 20
FAULTS, REQUESTS = [], []

POSTS = {
    "/v1/bash/exec": execute,
    "/v1/bash/output": output,
    "/v1/bash/write": write,
    "/v1/bash/kill": kill,
    "/v1/bash/sessions/create": create_session,
    "/v1/code/execute": code,
    "/v1/file/read": read_file,
    "/v1/file/write": write_file,
    "/v1/file/list": list_path,
}


def context():
    system = os.uname()
    return {
        "home_dir": HOME,
        "workspace": HOME,
        "version": "1.5.1",
        "detail": {
            "system": {
                "os": system.sysname,
                "os_version": system.release,
                "arch": system.machine,
                "user": "gem",
                "home_dir": HOME,
                "workspace": HOME,
                "timezone": "UTC",
                "occupied_ports": [],
            },
            "runtime": {"python": [], "nodejs": []},
            "utils": [],
        },
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve(b"")

    def do_POST(self):
        self.serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def serve(self, bytes_):
        if self.path.startswith("/stand-in/"):
            return self.stand_in(bytes_)
        with LOCK:
            text = bytes_.decode("utf-8", "replace")
            REQUESTS.append({"method": self.command, "path": self.path, "headers": dict(self.headers), "body": text})
            fault = next((fault for fault in FAULTS if fault["path"] == self.path and fault["times"] > 0), None)
            if fault:
                stage = "after" if fault["after"] > 0 else "times"
                fault[stage] -= 1
                fault = fault if stage == "times" else None
        kind = fault["kind"] if fault else None
        if not self.is_known():
            return self.answer(401, {"success": False, "message": "Unauthorized", "data": None, "hint": None})
        if kind == "slow":
            # Until the client has disconnected.
            return self.hang()
        if kind == "reset":
            return self.cut()
        if kind in ("401", "500"):
            words = {"401": "Unauthorized", "500": "Internal Server Error"}[kind]
            return self.answer(int(kind), {"success": False, "message": words, "data": None, "hint": None})
        if kind == "422":
            return self.answer(422, {"detail": [{"loc": ["body", "x"], "msg": "Field required", "type": "missing"}]})
        if kind == "refused":
            return self.answer(200, {"success": False, "message": "it could\x1b not be done", "data": None, "hint": None})
        if kind == "redirect":
            return self.raw(307, b"", {"Location": "/v1/elsewhere"})
        if kind == "not_json":
            return self.raw(200, b"<html>a proxy was here</html>", {"Content-Type": "text/html"})
        if kind == "no_data":
            return self.answer(200, {"success": True, "message": "ok", "data": None, "hint": None})
        if kind == "huge":
            return self.flood()
        status, answer = self.work(bytes_)
        whole = json.dumps(answer).encode()
        if kind == "cut":
            # The request is carried out, but the answer is lost.
            return self.cut(whole)
        return self.raw(status, whole, {"Content-Type": "application/json"})

    def work(self, bytes_):
        try:
            data, more = None, {}
            if self.command == "GET" and self.path == "/v1/sandbox":
                more = context()
            elif self.command == "GET" and self.path == "/v1/bash/sessions":
                with LOCK:
                    data = [found.info() for found in SESSIONS.values()]
            elif self.command == "POST" and self.path in POSTS:
                try:
                    body = json.loads(bytes_)
                except ValueError as error:
                    raise Invalid("", f"JSON decode error: {error}", "json_invalid") from error
                check(self.path, body)
                data = POSTS[self.path](body)
            elif self.command == "POST" and self.path.startswith("/v1/bash/sessions/") and self.path.endswith("/close"):
                close_session(self.path.split("/")[4])
            else:
                return 404, {"detail": "Not Found"}
            return 200, {"success": True, "message": "Operation successful", "data": data, "hint": None, **more}
        except Invalid as invalid:
            return 422, {"detail": invalid.detail}
        except Refused as refused:
            return refused.status, {"success": False, "message": refused.message, "data": None, "hint": None}

    def stand_in(self, bytes_):
        if self.path == "/stand-in/requests":
            with LOCK:
                return self.answer(200, list(REQUESTS))
        with LOCK:
            FAULTS.append({"after": 0, "times": 1, **json.loads(bytes_)})
        return self.answer(200, {})

    def is_known(self):
        shown = self.headers.get("X-AIO-API-Key") or (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        return hmac.compare_digest(shown.encode(), KEY.encode())

    def answer(self, status, value):
        self.raw(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def raw(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self, body=b""):
        if body:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def hang(self):
        self.close_connection = True
        self.connection.recv(1)

    def flood(self):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            self.wfile.write(b'{"success": true, "message": "')
            for _ in range(HUGE >> 16):
                self.wfile.write(b"x" * 65536)
        except OSError:
            # It was not read to its end.
            pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # The client may disconnect at any time.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()
    for found in list(SESSIONS.values()):
        for command in found.commands:
            command.end("killed", signal.SIGKILL)


main()
