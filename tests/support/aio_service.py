"""A stand-in for an AIO Sandbox service, written from its public description (OpenAPI document 1.5.1) for tests.

It answers the routes for commands, code and files as described, checks every body against the described fields (one that it
does not know is refused with 422, so that a misspelt one is noticed), and really executes: each command in a box of `ringwall
run`, on a directory of its own, so that nothing runs unisolated. What the boxes see as `/workspace` is the service's home.

Beside the service's own routes there are two for tests: POST /stand-in/fault {"path", "kind", "after", "times"} makes answers of a
route go wrong (after so many, so often), GET /stand-in/requests tells what was asked. It ends when its standard input does.

    python3 -B aio_service.py RINGWALL DIRECTORY KEY
"""

import base64
import binascii
import datetime
import hmac
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aio_bodies import Invalid, check

RINGWALL, DIRECTORY, KEY = sys.argv[1:4]
HOME = "/workspace"
HUGE = 64 << 20


class Refused(Exception):
    """An answer with `success: false`, as the service words what it could not do."""

    def __init__(self, message, status=200):
        super().__init__(message)
        self.message, self.status = message, status


class Command:
    """One command in a box of its own, and what it has printed."""

    numbers = itertools.count(1)

    def __init__(self, line, directory, environment, hard_timeout):
        self.id, self.line = f"cmd-{next(self.numbers)}", line
        self.status, self.exit_code = "running", None
        self.changed = threading.Condition()
        self.printed = {"stdout": bytearray(), "stderr": bytearray()}
        words = [RINGWALL, "run", "--workspace", DIRECTORY]
        for name, value in (environment or {}).items():
            if value is not None:
                words += ["--env", f"{name}={value}"]
        words += ["--", "bash", "-c", 'cd -- "$1" && eval "$2"', "bash", directory, line]
        outer = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": DIRECTORY}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(words, env=outer, start_new_session=True, **pipes)
        readers = [self.read("stdout", self.process.stdout), self.read("stderr", self.process.stderr)]
        threading.Thread(target=self.follow, args=(readers,), daemon=True).start()
        self.alarm = None
        if hard_timeout is not None:
            self.alarm = threading.Timer(hard_timeout, self.end, ("timed_out", signal.SIGKILL))
            self.alarm.daemon = True
            self.alarm.start()

    def read(self, name, pipe):
        def pump():
            while chunk := pipe.read1(65536):
                with self.changed:
                    self.printed[name] += chunk
                    self.changed.notify_all()

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        return thread

    def follow(self, readers):
        code = self.process.wait()
        for reader in readers:
            reader.join()
        if self.alarm:
            self.alarm.cancel()
        with self.changed:
            self.exit_code = code
            if self.status == "running":
                self.status = "completed"
            elif self.status.startswith("ending: "):
                self.status = self.status.removeprefix("ending: ")
            self.changed.notify_all()

    def end(self, status, number):
        with self.changed:
            if self.is_over():
                return
            # It is over when its process is; a signal that it does not obey changes nothing.
            if number != signal.SIGINT:
                self.status = f"ending: {status}"
        self.process.send_signal(number)

    def is_over(self):
        return self.status in ("completed", "timed_out", "killed")

    def wait(self, seconds, wanted):
        deadline = None if seconds is None else time.monotonic() + seconds
        with self.changed:
            while not self.is_over() and not wanted():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                self.changed.wait(left)

    def said(self):
        return self.status if self.is_over() else "running"

    def since(self, name, offset):
        return bytes(self.printed[name][offset:]).decode("utf-8", "replace")


class Session:
    def __init__(self, name, directory):
        self.id, self.directory, self.commands = name, directory, []
        self.created = self.used = now()

    def command(self, name=None):
        found = [command for command in self.commands if name in (None, command.id)]
        if not found:
            raise Refused("there is no such command")
        return found[-1]

    def info(self):
        running = [command.line for command in self.commands if not command.is_over()]
        return {
            "session_id": self.id,
            "status": "ready",
            "working_dir": self.directory,
            "created_at": self.created,
            "last_used_at": self.used,
            "current_command": running[-1] if running else None,
            "command_count": len(self.commands),
        }


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


SESSIONS, FAULTS, REQUESTS, LOCK = {}, [], [], threading.RLock()
NAMES = itertools.count(1)


def session(name):
    with LOCK:
        if name not in SESSIONS:
            raise Refused(f"Session {name} not found", 404)
        return SESSIONS[name]


def create_session(body):
    with LOCK:
        name = body.get("session_id") or f"session-{next(NAMES)}"
        if name not in SESSIONS:
            SESSIONS[name] = Session(name, body.get("exec_dir") or HOME)
        return SESSIONS[name].info()


def close_session(name):
    found = session(name)
    for command in found.commands:
        command.end("killed", signal.SIGKILL)
    with LOCK:
        SESSIONS.pop(name, None)


def execute(body):
    name = body.get("session_id")
    if name is None:
        name = create_session({})["session_id"]
    found = session(name)
    if body.get("exec_dir"):
        found.directory = body["exec_dir"]
    command = Command(body["command"], found.directory, body.get("env"), body.get("hard_timeout"))
    found.commands.append(command)
    found.used = now()
    if not body.get("async_mode", False):
        command.wait(body.get("timeout"), lambda: False)
    longest = body.get("max_output_length", 50000)
    with command.changed:
        texts = {name: shorten(command.since(name, 0), longest) for name in ("stdout", "stderr")}
        is_over = command.is_over()
        return {
            "session_id": found.id,
            "command_id": command.id,
            "command": command.line,
            "status": command.said(),
            "stdout": texts["stdout"] or None,
            "stderr": texts["stderr"] or None,
            "exit_code": command.exit_code if is_over else None,
            "offset": len(command.printed["stdout"]),
            "stderr_offset": len(command.printed["stderr"]),
        }


def shorten(text, longest):
    if longest <= 0 or len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... truncated ...]\n{text[-half:]}"


def output(body):
    found = session(body["session_id"])
    command = found.command(body.get("command_id"))
    offset, stderr_offset = body.get("offset", 0), body.get("stderr_offset", 0)
    printed = command.printed

    def has_news():
        return len(printed["stdout"]) > offset or len(printed["stderr"]) > stderr_offset

    if body.get("wait", False):
        command.wait(body.get("wait_timeout", 30.0), has_news)
    with command.changed:
        is_over = command.is_over()
        return {
            "session_id": found.id,
            "stdout": command.since("stdout", offset),
            "stderr": command.since("stderr", stderr_offset),
            "offset": len(printed["stdout"]),
            "stderr_offset": len(printed["stderr"]),
            "command": {
                "command_id": command.id,
                "command": command.line,
                "status": command.said(),
                "exit_code": command.exit_code if is_over else None,
            },
        }


def write(body):
    command = session(body["session_id"]).command(body.get("command_id"))
    command.process.stdin.write(body["input"].encode())
    command.process.stdin.flush()


def kill(body):
    name = body.get("signal", "SIGTERM")
    if name not in ("SIGTERM", "SIGKILL", "SIGINT"):
        raise Refused(f"Unsupported signal: {name}")
    for command in session(body["session_id"]).commands:
        command.end("killed", getattr(signal, name))


KERNEL = """
import sys
state = {}
while header := sys.stdin.readline():
    code = sys.stdin.read(int(header))
    try:
        exec(compile(code, "<code>", "exec"), state)
        end = "ok"
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        end = "error"
    print(f"\\x00{end}", flush=True)
    sys.stderr.flush()
"""


def code(body):
    language, is_stateful = body["language"], body.get("stateful", False)
    if language not in ("python", "javascript"):
        raise Invalid("language", "Input should be 'python' or 'javascript'", "enum")
    timeout = body.get("timeout") or 30
    if not 1 <= timeout <= 300:
        raise Invalid("timeout", "Input should be between 1 and 300", "range")
    answer = {"language": language, "code": body["code"], "outputs": [], "traceback": None, "session_id": None}
    if is_stateful and language == "python":
        return {**answer, **stateful(body, timeout)}
    program = {"python": "python3 -c", "javascript": "node -e"}[language]
    quoted = "'" + body["code"].replace("'", "'\\''") + "'"
    command = Command(f"exec {program} {quoted} < /dev/null", body.get("cwd") or HOME, None, timeout)
    command.wait(None, lambda: False)
    ended = {"completed": "ok" if command.exit_code == 0 else "error", "timed_out": "timeout"}
    return {
        **answer,
        "status": ended.get(command.status, "error"),
        "stdout": command.since("stdout", 0),
        "stderr": command.since("stderr", 0),
        "exit_code": command.exit_code,
    }


def stateful(body, timeout):
    name = body.get("session_id") or f"kernel-{next(NAMES)}"
    with LOCK:
        if name not in SESSIONS or not SESSIONS[name].commands:
            SESSIONS[name] = Session(name, body.get("cwd") or HOME)
            quoted = "'" + KERNEL.replace("'", "'\\''") + "'"
            SESSIONS[name].commands.append(Command(f"exec python3 -uc {quoted}", SESSIONS[name].directory, None, None))
        command = SESSIONS[name].commands[-1]
    before = {stream: len(command.printed[stream]) for stream in ("stdout", "stderr")}
    text = body["code"]
    command.process.stdin.write(f"{len(text)}\n{text}".encode())
    command.process.stdin.flush()
    command.wait(timeout, lambda: b"\0" in command.printed["stdout"][before["stdout"] :])
    stdout, _, end = command.since("stdout", before["stdout"]).partition("\0")
    return {
        "status": end.strip() or "timeout",
        "stdout": stdout,
        "stderr": command.since("stderr", before["stderr"]),
        "exit_code": 0 if end.strip() == "ok" else 1,
        "session_id": name,
    }


def real(path):
    """Where a path of the service is on this machine: beneath the directory, or nowhere."""
    if not os.path.isabs(path):
        raise Refused(f"{path} is not an absolute path")
    place = os.path.realpath(os.path.join(DIRECTORY, os.path.relpath(path, HOME)))
    if os.path.commonpath([place, os.path.realpath(DIRECTORY)]) != os.path.realpath(DIRECTORY):
        raise Refused(f"Permission denied: {path}")
    return place


def read_file(body):
    try:
        with open(real(body["file"]), encoding="utf-8", errors="replace", newline="") as file:
            lines = file.read().splitlines(keepends=True)
    except OSError as error:
        raise Refused(f"{body['file']}: {error.strerror}") from error
    return {"content": "".join(lines[body.get("start_line") or 0 : body.get("end_line")]), "file": body["file"]}


def write_file(body):
    encoding = body.get("encoding") or "utf-8"
    if encoding not in ("utf-8", "base64", "raw"):
        raise Invalid("encoding", "Input should be 'utf-8', 'base64' or 'raw'", "enum")
    content = body["content"]
    try:
        if encoding == "base64":
            content = base64.b64decode(content, validate=True)
        else:
            content = ("\n" * bool(body.get("leading_newline")) + content + "\n" * bool(body.get("trailing_newline"))).encode()
        with open(real(body["file"]), "ab" if body.get("append") else "wb") as file:
            file.write(content)
    except (OSError, binascii.Error) as error:
        raise Refused(f"{body['file']}: {error}") from error
    # Whoever runs in the boxes is to be able to change it.
    owner = os.stat(DIRECTORY)
    os.chown(real(body["file"]), owner.st_uid, owner.st_gid)
    return {"file": body["file"], "bytes_written": len(content)}


def list_path(body):
    top = real(body["path"])
    if not os.path.isdir(top):
        raise Refused(f"Path not found: {body['path']}")
    entries = []

    def look(place, path, depth):
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            if entry.name.startswith(".") and body.get("show_hidden") is False:
                continue
            is_directory = entry.is_dir(follow_symlinks=False)
            extension = os.path.splitext(entry.name)[1]
            if not body.get("file_types") or is_directory or extension in body["file_types"]:
                status = entry.stat(follow_symlinks=False)
                modified = datetime.datetime.fromtimestamp(status.st_mtime).isoformat()
                entries.append({
                    "name": entry.name,
                    "path": f"{path}/{entry.name}",
                    "is_directory": is_directory,
                    "size": None if is_directory else status.st_size,
                    "modified_time": modified,
                    "permissions": oct(status.st_mode & 0o777)[2:] if body.get("include_permissions") else None,
                    "extension": extension or None,
                })
            deepest = body.get("max_depth")
            if body.get("recursive") and is_directory and (deepest is None or depth < deepest):
                look(entry.path, f"{path}/{entry.name}", depth + 1)

    look(top, body["path"].rstrip("/"), 1)
    directories = sum(entry["is_directory"] for entry in entries)
    return {
        "path": body["path"],
        "files": entries,
        "total_count": len(entries),
        "directory_count": directories,
        "file_count": len(entries) - directories,
    }


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
            # Until whoever asked has gone.
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
            # What was asked for is done, and the answer does not arrive.
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
        # Whoever asked may go at any time.
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
