"""Judges what the guest sent: reads its records, runs every check of checks.py, prints one line for each.

A record that never came fails the checks that need it, by name. Usage: judge.py RECORDS; the exit status is 0 only if
every check passed.
"""

import base64
import contextlib
import dataclasses
import json
import pathlib
import sys

import checks


class Missing(Exception):
    """The guest never sent this record."""


@dataclasses.dataclass(frozen=True)
class Record:
    """How one command in the guest ended."""

    name: str
    code: int
    output: str
    error: str

    @property
    def report(self):
        """The JSON object that the command printed."""
        try:
            return json.loads(self.output)
        except ValueError:
            raise AssertionError(f"{self.name} printed no JSON: {self.output!r} {self.error!r}") from None

    @property
    def protections(self):
        """The state of each protection of a box, by name, with the reason where there is one."""
        listed = self.report.get("protections")
        assert listed is not None, f"{self.name} made no box: {self.output.strip()}"
        return {entry["name"]: (entry["state"], entry["why"] or "") for entry in listed}

    @property
    def rows(self):
        """The rows of a doctor's report, by name."""
        return {row["name"]: row for row in self.report["checks"]}

    @property
    def seen(self):
        """What was seen of held boxes: for each its group, its files and its processes' numbers, outside and in."""
        boxes = []
        for line in self.output.splitlines():
            key, _, value = line.partition(" ")
            if key == "group":
                boxes.append({"group": value, "processes": []})
            elif key == "process":
                boxes[-1]["processes"].append([int(number) for number in value.split()])
            else:
                boxes[-1][key] = value
        return boxes


class Records(dict):
    """All records by name; asking for one that is not there is a failure with a name."""

    def __missing__(self, name):
        raise Missing(f"the guest sent no record of {name}")


def read(path):
    records = Records()
    ended = False
    text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        fields = line.split()
        if fields == ["END"]:
            ended = True
        elif len(fields) == 4:
            # A garbled line is no record, and what it should have been is missed by name.
            with contextlib.suppress(ValueError):
                output, error = (decode(field) for field in fields[2:])
                records[fields[0]] = Record(fields[0], int(fields[1]), output, error)
    return records, ended


def decode(field):
    return "" if field == "-" else base64.b64decode(field).decode(errors="replace")


def main():
    records, ended = read(pathlib.Path(sys.argv[1]))
    failed = 0
    for name, check in checks.CHECKS:
        try:
            check(records)
            print(f"ok      {name}")
        except (AssertionError, Missing, KeyError, IndexError) as problem:
            failed += 1
            print(f"FAILED  {name}: {type(problem).__name__} {problem}")
    if not ended:
        failed += 1
        print("FAILED  the guest played every scene to its end: it did not")
    passed = len(checks.CHECKS) + 1 - failed
    if ended:
        print("ok      the guest played every scene to its end")
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
