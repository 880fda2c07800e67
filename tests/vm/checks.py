"""What the guest's records have to say. Each function is one check; its first line is the name that is printed.

Verdicts come from outside the box wherever there is an outside: the group's own files, the kernel's trace, what is
left afterwards. A control beside each act shows that it succeeds where nothing stops it.
"""

from expectations import (
    LIMITS,
    MIB,
    expect_bomb_held,
    expect_enforced,
    expect_image,
    expect_landlock,
    expect_limits_seen,
    expect_out_of_memory,
    expect_untouched,
    expect_without_group,
    same,
)

CHECKS = []


def check(function):
    CHECKS.append((function.__doc__.splitlines()[0].rstrip("."), function))
    return function


@check
def doctor_as_root(records):
    """doctor, as root: a box can be made, with cgroup version 2."""
    doctor = records["doctor_root"]
    same((doctor.code, doctor.report["can_make_boxes"], doctor.report["mode"]), (0, True, "root"))
    cgroups = doctor.rows["cgroups"]
    same((cgroups["state"], cgroups["detail"]), ("ok", "version 2; boxes' cgroups are created in /sys/fs/cgroup"))


@check
def doctor_landlock(records):
    """doctor reports an older Landlock as partial, with its version."""
    for name in ("doctor_root", "doctor_agent"):
        row = records[name].rows["landlock"]
        expect_landlock(records, row["state"], row["detail"], "ok")


@check
def doctor_as_user(records):
    """doctor, as a user without delegation: a box can be made; the missing groups are said, with a way to get them."""
    doctor = records["doctor_agent"]
    same((doctor.code, doctor.report["can_make_boxes"], doctor.report["mode"]), (0, True, "rootless"))
    cgroups = doctor.rows["cgroups"]
    same(cgroups["state"], "missing")
    assert cgroups["detail"].startswith("version 2; "), cgroups
    assert "Delegate" in cgroups["fix"], cgroups


@check
def doctor_delegated(records):
    """doctor, as a user with delegation: the groups of boxes are made below the user's own."""
    cgroups = records["own_doctor"].rows["cgroups"]
    same(cgroups["state"], "ok")
    assert cgroups["detail"].endswith("/user.slice/user-1000.slice/user@1000.service"), cgroups


@check
def protections_listed(records):
    """A box on this kernel has its namespaces, no_new_privs, no capabilities and seccomp, as root and rootless."""
    spaces = [f"{space}_namespace" for space in ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")]
    for name in ("plain_root", "plain_agent"):
        same(records[name].code, 0)
        expect_enforced(records[name], [*spaces, "no_capabilities", "no_new_privileges", "seccomp", "resource_limits"])
    expect_enforced(records["plain_root"], LIMITS)


@check
def landlock_in_a_box(records):
    """A box reports an older Landlock as partial, and does not hide it."""
    for name in ("plain_root", "plain_agent"):
        expect_landlock(records, *records[name].protections["landlock"], "enforced")


@check
def memory_root(records):
    """Memory, root: the hog is killed in a small box, and not in a large one or outside."""
    same((records["hog_outside"].code, records["hog_fits"].code), (0, 0))
    same(records["hog_fits"].report["oom_killed"], False)
    peak = expect_out_of_memory(records["hog_root"], 64)
    assert peak <= 64 * MIB, peak
    expect_enforced(records["hog_root"], LIMITS)


@check
def memory_sentence(records):
    """Memory, root: exit code 137 and a sentence without --json."""
    same(records["hog_sentence"].code, 137)
    assert "out of memory (limit 64 MB)" in records["hog_sentence"].error, records["hog_sentence"].error


@check
def memory_whole_box(records):
    """Memory, root: the box ends as a whole when one of its processes is killed for memory."""
    expect_out_of_memory(records["hog_child"], 64)
    same(records["hog_child"].report["stdout"], "")


@check
def peak_memory(records):
    """Peak memory is the group's own count, root and delegated."""
    for name in ("peak_root", "own_peak"):
        same(records[name].code, 0)
        peak = records[name].report["usage"]["peak_memory_bytes"]
        assert 50 * MIB <= peak <= 60 * MIB, f"{name}: {peak}"


@check
def limits_root(records):
    """Limits, root: memory.max, pids.max and cpu.max are set from outside, and PID 1 of the box is in the group."""
    expect_limits_seen(records["limits_root_seen"], "")
    same(records["limits_root"].code, 0)
    expect_enforced(records["limits_root"], LIMITS)


@check
def pids_root(records):
    """Processes, root: a fork bomb stays within its limit, and the box can still be ended."""
    same(records["bomb_outside"].code, 0)
    expect_bomb_held(records["bomb_root_seen"], records["bomb_root"])


@check
def cpu_root(records):
    """Processor, root: the kernel throttles a box that never rests."""
    quota, throttled, ending = records["throttle_root"].output.splitlines()
    same((quota, ending), ("10000 100000", "exit 143"))
    assert int(throttled.split()[1]) >= 3, throttled


POOLS = ("terminals", "contexts", "files", "filters")


@check
def pools_outside(records):
    """Pools, the control: an ordinary user without a box takes all of each, and another process gets nothing."""
    for kind in POOLS:
        taken, _ = records[f"pool_{kind}_outside"].output.split()
        assert int(taken) > 0, f"{kind}: nothing was taken"
        other = records[f"pool_{kind}_outside_other"]
        assert other.code != 0, f"{kind}: {taken} taken, and there was more"


@check
def pools_in_a_box(records):
    """Pools: a box that takes all that it can of each leaves some for others."""
    most = {"terminals": 64, "contexts": 0, "filters": 0}
    for kind in POOLS:
        box = records[f"pool_{kind}_box"]
        same((kind, box.code), (kind, 0))
        taken = int(box.report["stdout"].split()[0])
        assert taken <= most.get(kind, taken), f"{kind}: {taken} taken"
        same((kind, records[f"pool_{kind}_box_other"].code), (kind, 0))


@check
def no_migration(records):
    """PID 1 is born in its group: the kernel's trace of migrations shows a move by hand and no box."""
    same(records["migrations_root"].output.split(), ["/control"])


@check
def session_limits(records):
    """Limits, root in a login session: boxes go beside the session's group, with all limits."""
    expect_out_of_memory(records["session_hog"], 64)
    expect_limits_seen(records["session_root_seen"], "/user.slice/user-0.slice")
    expect_enforced(records["session_root"], LIMITS)


@check
def session_untouched(records):
    """A group that holds processes stays what it was: no controllers handed on, still an ordinary group."""
    for name in ("session_state", "contained_state", "own_state", "alone_state"):
        expect_untouched(records[name])


@check
def bare_reported(records):
    """Rootless without delegation: the box works, and each limit says what it is and why."""
    bare = records["bare_agent"]
    same((bare.code, bare.report["stdout"]), (0, "works\n"))
    found = [bare.protections[name] for name in LIMITS]
    same([state for state, _ in found], ["partial", "partial", "not_available"])
    for _, why in found:
        assert "delegation is needed" in why, why


@check
def bare_memory(records):
    """Rootless without delegation: the watchdog ends a hog."""
    expect_out_of_memory(records["bare_hog"], 64)


@check
def bare_required(records):
    """Rootless without delegation: --require memory, pids or cpu refuses with exit code 2, and nothing ran."""
    for requirement in ("memory", "pids", "cpu"):
        record = records[f"bare_require_{requirement}"]
        same((record.code, record.output), (2, ""))
        assert "required by the policy" in record.error and "hint:" in record.error, record.error


@check
def landlock_required(records):
    """--require landlock takes an older Landlock, which still guards every file."""
    same((records["bare_require_landlock"].code, records["bare_require_landlock"].output), (0, "ran\n"))


@check
def delegated_memory(records):
    """Rootless with delegation: the kernel kills the hog."""
    assert expect_out_of_memory(records["own_hog"], 64) <= 64 * MIB
    expect_enforced(records["own_hog"], LIMITS)


@check
def delegated_limits(records):
    """Rootless with delegation: all limits are set in a group below the user's own."""
    expect_limits_seen(records["limits_own_seen"], "/user.slice/user-1000.slice/user@1000.service")
    expect_enforced(records["limits_own"], LIMITS)


@check
def delegated_pids(records):
    """Rootless with delegation: a fork bomb stays within its limit."""
    expect_bomb_held(records["bomb_own_seen"], records["bomb_own"])


@check
def delegated_required(records):
    """Rootless with delegation: --require memory, pids and cpu is met."""
    same((records["own_require"].code, records["own_require"].output), (0, "ran\n"))


@check
def alone_works(records):
    """Rootless, right in the delegated group: the box works, and the report says why there is no group for it."""
    expect_without_group(records["alone_agent"], records["alone_hog"])


@check
def contained_works(records):
    """Root, right in the topmost group of a container: the box works, and the report says why there is no group."""
    expect_without_group(records["contained_root"], records["contained_hog"])


@check
def image_as_root(records):
    """An image under the overlay, root: read, written and removed inside, and unchanged for the next box."""
    expect_image(records, "root")


@check
def image_as_user(records):
    """An image under the overlay, rootless: read, written and removed inside, and unchanged for the next box."""
    expect_image(records, "agent")
    same((records["image_own"].code, records["image_own"].report["stdout"]), (0, "of the image\n"))


@check
def workspace_on_disk(records):
    """A workspace on ext4, root: what the box wrote belongs to the directory's owner."""
    same((records["workspace_root"].code, records["workspace_root"].report.get("stdout")), (0, "kept\n"))
    same(records["workspace_root_seen"].output, "0 0\n")


@check
def workspace_in_memory(records):
    """A workspace on tmpfs, root: it works, or is refused in words where the kernel cannot map its owner."""
    record = records["workspace_tmpfs"]
    if record.code == 0:
        same(record.output, "kept\n")
    else:
        same((record.code, record.output), (2, ""))
        assert "hint:" in record.error and "id-mapped" in record.error, record.error


@check
def nothing_left(records):
    """Fifty boxes as root and fifty with delegation leave no group, mount or process."""
    same((records["fifty_root"].output, records["fifty_own"].output), ("", ""))
    same(records["inventory_after"].output, records["inventory_before"].output)
    for scene in ("limits", "sessions", "delegation"):
        same(records[f"groups_after_{scene}"].output, "")


@check
def killed_starter(records):
    """SIGKILL of ringwall run takes the box along, and its group."""
    same(len(records["orphan_seen"].seen), 1)
    same((records["orphan_after"].output, records["orphan_processes"].output), ("", ""))


@check
def swept(records):
    """A group whose makers were all killed at once is removed by the next box."""
    same(len(records["swept_left"].output.splitlines()), 1)
    same((records["swept_next"].code, records["swept_after"].output), (0, ""))
