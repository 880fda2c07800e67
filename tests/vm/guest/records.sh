# Functions that the scenes share: run a command and send its record, run as the unprivileged user, enter a cgroup,
# hold a box while it is inspected from outside. Sourced by `main`.
groups=/sys/fs/cgroup

encode() { if [ -s "$1" ]; then base64 -w 0 "$1"; else printf -- -; fi; }

# write_line TEXT: writes to the serial port in a child process. If a background child ends during a
# write of the shell itself, the rest of the line is lost.
write_line() {
    printf '%s\n' "$1" >/run/line
    cat /run/line >/dev/ttyS1
}

# send NAME CODE OUTPUT-FILE ERROR-FILE: a record, as one line.
send() { write_line "$1 $2 $(encode "$3") $(encode "$4")"; }

# record NAME COMMAND…: runs it and sends how it ended. No command may hang the whole machine.
record() {
    record_name=$1
    shift
    record_code=0
    timeout -s KILL 60 "$@" >/run/output 2>/run/error </dev/null || record_code=$?
    send "$record_name" "$record_code" /run/output /run/error
}

# observe NAME COMMAND…: like record but without a time limit, so that COMMAND may be a shell function.
observe() {
    observe_name=$1
    shift
    observe_code=0
    "$@" >/run/seen 2>/run/unseen </dev/null || observe_code=$?
    send "$observe_name" "$observe_code" /run/seen /run/unseen
}

# Prefixes for a command: the user `agent`, and a process of its own in the named group.
cat >/usr/bin/as_agent <<'SCRIPT'
#!/bin/sh
cd /home/agent && exec su -s /bin/sh -c 'exec "$@"' -- agent sh "$@"
SCRIPT
cat >/usr/bin/in_group <<'SCRIPT'
#!/bin/sh
directory=$1
shift
echo $$ >"$directory/cgroup.procs" && exec "$@"
SCRIPT
chmod 755 /usr/bin/as_agent /usr/bin/in_group

# Lists the cgroup directories of all boxes.
box_groups() { find "$groups" -name 'ringwall-*' -type d; }

# Prints each box's cgroup, its limits, and the NSpid line of each process.
look_at_groups() {
    box_groups | while read -r group; do
        echo "group ${group#"$groups"}"
        for file in memory.max memory.swap.max memory.oom.group pids.max pids.current cpu.max; do
            [ -e "$group/$file" ] && echo "$file $(cat "$group/$file")"
        done
        while read -r pid; do
            echo "process $(sed -n 's/^NSpid:[[:space:]]*//p' "/proc/$pid/status")"
        done <"$group/cgroup.procs"
    done
}

# make_meeting DIRECTORY OWNER: makes a workspace with two FIFOs. The box writes to `ready` when it runs, then waits for
# a line on `go`.
make_meeting() {
    rm -rf "$1"
    mkdir -p "$1"
    mkfifo "$1/ready" "$1/go"
    chown -R "$2:$2" "$1"
}

# The box's side of the meeting. Builtins only, so that it works at the process limit.
meet='echo here >/workspace/ready; read -r word </workspace/go'

# hold NAME COMMAND…: starts a command whose box has the workspace /home/NAME and runs $meet, and returns when the box
# is ready. `release` lets the box continue and sends the command's record.
hold() {
    held_name=$1
    shift
    timeout -s KILL 90 "$@" >/run/held-output 2>/run/held-error </dev/null &
    held=$!
    timeout -s KILL 60 cat "/home/$held_name/ready" >/run/met 2>&1
}

release() {
    timeout -s KILL 20 sh -c "echo go >/home/$held_name/go"
    held_code=0
    wait "$held" || held_code=$?
    send "$held_name" "$held_code" /run/held-output /run/held-error
}
