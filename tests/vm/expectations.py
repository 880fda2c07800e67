"""What several checks expect alike. Each function raises AssertionError with what it found instead."""

import re

MIB = 1024 * 1024
LIMITS = ("memory_limit", "pids_limit", "cpu_limit")
# Since when the kernel has each version of Landlock, newest first, up to the newest that a box asks for.
LANDLOCK = [((6, 12), 6), ((6, 10), 5), ((6, 7), 4), ((6, 2), 3), ((5, 19), 2), ((5, 13), 1)]


def same(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def landlock_version(records):
    release = tuple(int(part) for part in re.findall(r"\d+", records["kernel"].output)[:2])
    return next((version for since, version in LANDLOCK if release >= since), 0)


def expect_landlock(records, state, text, whole):
    version = landlock_version(records)
    if version >= LANDLOCK[0][1]:
        same(state, whole)
    else:
        same(state, "partial")
        assert f"version {version} of Landlock" in text, text


def expect_enforced(record, names):
    states = {name: record.protections[name] for name in names}
    same({name: state for name, (state, _) in states.items() if state != "enforced"}, {})


def expect_out_of_memory(record, limit_mb):
    same((record.code, record.report["oom_killed"], record.report["signal"]), (137, True, 9))
    peak = record.report["usage"]["peak_memory_bytes"]
    assert peak >= limit_mb * MIB * 9 // 10, f"peak of {peak} bytes at a limit of {limit_mb} MB"
    return peak


def expect_limits_seen(record, beneath):
    """One box, in a group of its own right beneath the named one, with all of its limits and its PID 1."""
    same(len(record.seen), 1)
    (box,) = record.seen
    same(box["group"].rpartition("/")[0], beneath)
    wanted = {"memory.max": str(64 * MIB), "memory.swap.max": "0", "memory.oom.group": "1"}
    wanted |= {"pids.max": "21", "cpu.max": "50000 100000"}
    same({file: box.get(file) for file in wanted}, wanted)
    inside = sorted(numbers[-1] for numbers in box["processes"])
    # PID 1 and the command. The command's PID depends on whether init forked a helper before it.
    same((inside[0], len(inside)), (1, 2))


def expect_bomb_held(seen, run):
    (box,) = seen.seen
    same(box["pids.max"], "21")
    count = int(box["pids.current"])
    assert 15 <= count <= 21, f"{count} processes at a limit of 21, box and PID 1 together"
    same((run.code, run.report["exit_code"]), (0, 0))


def expect_untouched(record):
    same(record.output.split("\n")[:2], ["type domain", "subtree "])


def expect_without_group(plain, hog):
    same((plain.code, plain.report.get("stdout")), (0, "works\n"))
    state, why = plain.protections["memory_limit"]
    assert state == "partial" and "holds processes" in why, (state, why)
    expect_out_of_memory(hog, 64)


def expect_image(records, who):
    same(records[f"import_{who}"].code, 0)
    first, second = records[f"image_{who}"], records[f"image_{who}_again"]
    same((first.code, first.report.get("stdout")), (0, "1000\nof the image\nnew\n"))
    same((second.code, second.report.get("stdout")), (0, "of the image\n"))
