# Limits of root's boxes, started from the root of the cgroup tree, as on a machine without a service manager.
hog='dd if=/dev/zero of=/dev/null bs=200M count=1'

# Controls: the same command succeeds outside a box and in a box with enough memory.
record hog_outside $hog
record hog_fits ringwall run --json --memory-mb 400 -- $hog
record hog_root ringwall run --json --memory-mb 64 -- $hog
# Without --json, for the exit code and the message.
record hog_sentence ringwall run --memory-mb 64 -- $hog
# The OOM killer must end the whole box, not only the process that used the memory.
record hog_child ringwall run --json --memory-mb 64 -- sh -c "$hog; echo survived"
record peak_root ringwall run --json --memory-mb 200 -- dd if=/dev/zero of=/dev/null bs=50M count=1

make_meeting /home/limits_root root
hold limits_root ringwall run --json --workspace /home/limits_root --memory-mb 64 --cpus 0.5 --pids 20 -- sh -c "$meet"
observe limits_root_seen look_at_groups
release

# The inner shell exits when fork fails. The processes it started stay and are counted from outside.
bomb='sh -c "while :; do sleep 1000 & done" 2>/dev/null'
record bomb_outside sh -c 'for i in $(seq 40); do sleep 1000 & done; kill $(jobs -p)'
make_meeting /home/bomb_root root
hold bomb_root ringwall run --json --workspace /home/bomb_root --pids 20 -- sh -c "$bomb; $meet"
observe bomb_root_seen look_at_groups
release

# A busy box is throttled: `nr_throttled` in cpu.stat counts the periods.
throttle() {
    ringwall run --cpus 0.1 --timeout 60 -- sh -c 'while :; do :; done' >/dev/null 2>&1 &
    throttled=$!
    for _ in $(seq 300); do
        periods=$(box_groups | while read -r group; do sed -n 's/^nr_throttled //p' "$group/cpu.stat"; done)
        [ "${periods:-0}" -ge 3 ] && break
        usleep 100000
    done
    box_groups | while read -r group; do cat "$group/cpu.max"; done
    echo "nr_throttled ${periods:-0}"
    kill "$throttled"
    wait "$throttled"
    echo "exit $?"
}
observe throttle_root throttle

# Box processes start in their cgroup (CLONE_INTO_CGROUP): the tracepoint cgroup_attach_task reports no box. The
# control moves a process by hand.
trace=/sys/kernel/tracing
migrations() {
    echo 1 >$trace/events/cgroup/cgroup_attach_task/enable
    mkdir $groups/control
    in_group $groups/control true
    ringwall run --memory-mb 64 -- true || echo "box failed"
    echo 0 >$trace/events/cgroup/cgroup_attach_task/enable
    rmdir $groups/control
    sed -n 's/.*cgroup_attach_task: .*dst_path=\([^ ]*\).*/\1/p' $trace/trace
}
observe migrations_root migrations
observe groups_after_limits box_groups
