"""What the routes of an AIO Sandbox service take, for the stand-in: each field with what it may be. A body with any other is refused."""

NUMBER, INTEGER, BOOLEAN, TEXT, NULL = (int, float), (int,), (bool,), (str,), (type(None),)


class Invalid(Exception):
    """A body that is not what the description says."""

    def __init__(self, field, message, kind):
        super().__init__(message)
        self.detail = [{"loc": ["body", field], "msg": message, "type": kind}]


# For each route its fields: what they may be, and whether they have to be there.
BODIES = {
    "/v1/bash/exec": {
        "command": (TEXT, True),
        "session_id": (TEXT + NULL, False),
        "exec_dir": (TEXT + NULL, False),
        "env": ((dict,) + NULL, False),
        "async_mode": (BOOLEAN, False),
        "timeout": (NUMBER + NULL, False),
        "hard_timeout": (NUMBER + NULL, False),
        "max_output_length": (INTEGER, False),
    },
    "/v1/bash/output": {
        "session_id": (TEXT, True),
        "command_id": (TEXT + NULL, False),
        "offset": (INTEGER, False),
        "stderr_offset": (INTEGER, False),
        "wait": (BOOLEAN, False),
        "wait_timeout": (NUMBER, False),
    },
    "/v1/bash/write": {"session_id": (TEXT, True), "command_id": (TEXT + NULL, False), "input": (TEXT, True)},
    "/v1/bash/kill": {"session_id": (TEXT, True), "signal": (TEXT, False)},
    "/v1/bash/sessions/create": {
        "session_id": (TEXT + NULL, False),
        "exec_dir": (TEXT + NULL, False),
        "snapshot_path": (TEXT + NULL, False),
    },
    "/v1/code/execute": {
        "language": (TEXT, True),
        "code": (TEXT, True),
        "timeout": (INTEGER + NULL, False),
        "cwd": (TEXT + NULL, False),
        "stateful": (BOOLEAN, False),
        "session_id": (TEXT + NULL, False),
    },
    "/v1/file/read": {
        "file": (TEXT, True),
        "start_line": (INTEGER + NULL, False),
        "end_line": (INTEGER + NULL, False),
        "sudo": (BOOLEAN + NULL, False),
    },
    "/v1/file/write": {
        "file": (TEXT, True),
        "content": (TEXT, True),
        "encoding": (TEXT + NULL, False),
        "append": (BOOLEAN + NULL, False),
        "leading_newline": (BOOLEAN + NULL, False),
        "trailing_newline": (BOOLEAN + NULL, False),
        "sudo": (BOOLEAN + NULL, False),
    },
    "/v1/file/list": {
        "path": (TEXT, True),
        "recursive": (BOOLEAN + NULL, False),
        "show_hidden": (BOOLEAN + NULL, False),
        "file_types": ((list,) + NULL, False),
        "max_depth": (INTEGER + NULL, False),
        "include_size": (BOOLEAN + NULL, False),
        "include_permissions": (BOOLEAN + NULL, False),
        "sort_by": (TEXT + NULL, False),
        "sort_desc": (BOOLEAN + NULL, False),
    },
}


def check(path, body):
    fields = BODIES[path]
    if not isinstance(body, dict):
        raise Invalid("", "Input should be a valid dictionary", "model_attributes_type")
    for name, value in body.items():
        if name not in fields:
            raise Invalid(name, "Extra inputs are not permitted", "extra_forbidden")
        allowed = fields[name][0]
        # To Python, true is a number.
        is_wrong_truth = isinstance(value, bool) and bool not in allowed
        if is_wrong_truth or not isinstance(value, allowed):
            raise Invalid(name, "Input has a wrong type", "type_error")
    for name, (_, is_needed) in fields.items():
        if is_needed and name not in body:
            raise Invalid(name, "Field required", "missing")


class Refused(Exception):
    """An answer with `success: false`, as the service words what it could not do."""

    def __init__(self, message, status=200):
        super().__init__(message)
        self.message, self.status = message, status
