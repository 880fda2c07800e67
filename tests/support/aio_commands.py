"""Commands and code of the stand-in for an AIO Sandbox service: each in a box of `ringwall run`, which shows the service's directory
at `/workspace`."""

import datetime
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

from aio_bodies import Invalid, Refused

RINGWALL, DIRECTORY = sys.argv[1:3]
HOME = "/workspace"


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
        self.alarm = None
        if hard_timeout is not None:
            self.alarm = threading.Timer(hard_timeout, self.end, ("timed_out", signal.SIGKILL))
            self.alarm.daemon = True
            self.alarm.start()
        readers = [self.read("stdout", self.process.stdout), self.read("stderr", self.process.stderr)]
        # Last of all: it may be over before its thread is even begun.
        threading.Thread(target=self.follow, args=(readers,), daemon=True).start()
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


SESSIONS, LOCK = {}, threading.RLock()
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
    # The end of the line too, or what is left of it would be the beginning of the next answer.
    command.wait(timeout, lambda: b"\n" in command.printed["stdout"][before["stdout"] :].partition(b"\0")[2])
    stdout, _, end = command.since("stdout", before["stdout"]).partition("\0")
    return {
        "status": end.strip() or "timeout",
        "stdout": stdout,
        "stderr": command.since("stderr", before["stderr"]),
        "exit_code": 0 if end.strip() == "ok" else 1,
        "session_id": name,
    }
