# Boxes of the unprivileged user, with and without a delegated cgroup.

# No delegation: the box works, and its report names the missing limits.
login=$groups/user.slice/user-1000.slice/session-2.scope
mkdir -p "$login"
record bare_agent in_group "$login" as_agent ringwall run --json --memory-mb 64 --cpus 0.5 --pids 20 -- sh -c 'echo works'
record bare_hog in_group "$login" as_agent ringwall run --json --memory-mb 64 -- sh -c "$hog & wait; sleep 60"
for requirement in memory pids cpu; do
    record "bare_require_$requirement" in_group "$login" as_agent ringwall run --require "$requirement" -- sh -c 'echo ran'
done
record bare_require_landlock in_group "$login" as_agent ringwall run --require landlock -- sh -c 'echo ran'

# Delegates a cgroup as systemd does: the directory and these files get the user's ownership, the parent does not. The
# controllers are enabled in it, but not yet for its children.
delegate() {
    mkdir -p "$1"
    chown 1000:1000 "$1" "$1/cgroup.procs" "$1/cgroup.threads" "$1/cgroup.subtree_control"
}
user=$groups/user.slice/user-1000.slice
echo "+memory +pids +cpu" >"$user/cgroup.subtree_control"
own=$user/user@1000.service
delegate "$own"
delegate "$own/terminal.scope"

record own_doctor in_group "$own/terminal.scope" as_agent ringwall doctor --json
record own_hog in_group "$own/terminal.scope" as_agent ringwall run --json --memory-mb 64 -- $hog
record own_peak in_group "$own/terminal.scope" as_agent \
    ringwall run --json --memory-mb 200 -- dd if=/dev/zero of=/dev/null bs=50M count=1
record own_require in_group "$own/terminal.scope" as_agent \
    ringwall run --require memory --require pids --require cpu -- sh -c 'echo ran'
make_meeting /home/limits_own agent
hold limits_own in_group "$own/terminal.scope" as_agent \
    ringwall run --json --workspace /home/limits_own --memory-mb 64 --cpus 0.5 --pids 20 -- sh -c "$meet"
observe limits_own_seen look_at_groups
release
make_meeting /home/bomb_own agent
hold bomb_own in_group "$own/terminal.scope" as_agent \
    ringwall run --json --workspace /home/bomb_own --pids 20 -- sh -c "$bomb; $meet"
observe bomb_own_seen look_at_groups
release
observe own_state state_of "$own/terminal.scope"

# The process is in the delegated cgroup itself. The kernel enables no controllers for the children of a cgroup that has
# processes. The box must work, its report must be true, and the cgroup must not become a threaded one.
alone=$user/alone.service
delegate "$alone"
record alone_agent in_group "$alone" as_agent ringwall run --json --memory-mb 64 -- sh -c 'echo works'
record alone_hog in_group "$alone" as_agent ringwall run --json --memory-mb 64 -- sh -c "$hog & wait; sleep 60"
observe alone_state state_of "$alone"
observe groups_after_delegation box_groups
