# No processes, mounts or cgroups stay after 50 boxes or a killed `ringwall run`. If all our processes are killed at
# once, the next box removes the cgroups that are left.

# Finds processes by their comm. pidof also matches the program's path, which all our processes share.
pids_of() {
    for name in "$@"; do
        grep -lx "$name" /proc/[0-9]*/comm 2>/dev/null | cut -d / -f 3
    done
}

inventory() {
    echo "groups $(find $groups -type d | wc -l)"
    echo "mounts $(wc -l </proc/self/mountinfo)"
    echo "of ringwall $(pids_of ringwall ringwall-jail | wc -l)"
    echo "in boxes $(grep -lE '^NSpid:([[:space:]]+[0-9]+){2}' /proc/[0-9]*/status 2>/dev/null | wc -l)"
}

many='for box in $(seq 50); do ringwall run --memory-mb 64 -- true || echo "box $box failed"; done'
observe inventory_before inventory
observe fifty_root sh -c "$many"
observe fifty_own in_group "$own/terminal.scope" as_agent sh -c "$many"
observe inventory_after inventory

until_no_box() {
    for _ in $(seq 100); do
        [ -z "$(box_groups)" ] && break
        usleep 100000
    done
    box_groups
}

make_meeting /home/orphan root
hold orphan ringwall run --workspace /home/orphan -- sh -c "$meet"
observe orphan_seen look_at_groups
kill -9 $(pids_of ringwall)
wait "$held"
observe orphan_after until_no_box
observe orphan_processes pids_of ringwall ringwall-jail

make_meeting /home/swept root
hold swept ringwall run --workspace /home/swept -- sh -c "$meet"
kill -9 $(pids_of ringwall ringwall-jail)
wait "$held"
observe swept_left box_groups
# Waits until the cgroups are empty: the kernel removes a killed process from its cgroup with a delay.
emptied() {
    for _ in $(seq 100); do
        box_groups | while read -r group; do cat "$group/cgroup.events"; done | grep -q 'populated 1' || break
        usleep 100000
    done
}
emptied
record swept_next ringwall run -- true
observe swept_after box_groups
