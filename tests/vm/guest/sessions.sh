# Root in a login session, as a service manager arranges it: the shell's own group holds processes, so boxes have to
# go beside it, and the session's group must stay what it was.
slice=$groups/user.slice/user-0.slice
session=$slice/session-1.scope
mkdir -p "$session"
for level in "$groups" "$groups/user.slice"; do
    echo "+memory +pids +cpu" >"$level/cgroup.subtree_control"
done
echo "+memory +pids" >"$slice/cgroup.subtree_control"

record session_hog in_group "$session" ringwall run --json --memory-mb 64 -- $hog
make_meeting /home/session_root root
hold session_root in_group "$session" \
    ringwall run --json --workspace /home/session_root --memory-mb 64 --cpus 0.5 --pids 20 -- sh -c "$meet"
observe session_root_seen look_at_groups
release
state_of() { echo "type $(cat "$1/cgroup.type")"; echo "subtree $(cat "$1/cgroup.subtree_control")"; }
observe session_state state_of "$session"

# Root in a container, as it looks from within: one group, which is the top of all that can be seen, and in it the
# process itself.
mkdir "$groups/contained" /run/top
contain='mount --bind /sys/fs/cgroup/contained /run/top && umount -l /sys/fs/cgroup &&
    mount --move /run/top /sys/fs/cgroup && exec "$@"'
record contained_root in_group "$groups/contained" unshare -m sh -c "$contain" sh \
    ringwall run --json --memory-mb 64 -- sh -c 'echo works'
record contained_hog in_group "$groups/contained" unshare -m sh -c "$contain" sh \
    ringwall run --json --memory-mb 64 -- sh -c "$hog & wait; sleep 60"
observe contained_state state_of "$groups/contained"
observe groups_after_sessions box_groups
