"""Files of the stand-in for an AIO Sandbox service: what the boxes see as `/workspace`, and nothing else of the machine."""

import base64
import binascii
import datetime
import os

from aio_bodies import Invalid, Refused
from aio_commands import DIRECTORY, HOME


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
    # Programs in the boxes must be able to change it.
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
