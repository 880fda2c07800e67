# What every scene uses: running a command and sending its record, acting as the unprivileged user, entering a cgroup,
# and holding a box still while it is looked at from outside. Read by main; starts nothing itself.
groups=/sys/fs/cgroup

encode() { if [ -s "$1" ]; then base64 -w 0 "$1"; else printf -- -; fi; }

# write_line TEXT: to the serial port, by a process of its own. A write of the shell's is cut short, and the line lost,
# when a child that nobody waits for ends in the middle of it.
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

# observe NAME COMMAND…: like record, for shell functions of these scenes that look and cannot hang.
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

# The directories of boxes, wherever they are in the tree.
box_groups() { find "$groups" -name 'ringwall-*' -type d; }

# Everything there is to see of the boxes that are held now: their limits, and each process with its number inside.
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

# A workspace with two pipes through which a box says that it is there, and is told to go on.
# make_meeting DIRECTORY OWNER
make_meeting() {
    rm -rf "$1"
    mkdir -p "$1"
    mkfifo "$1/ready" "$1/go"
    chown -R "$2:$2" "$1"
}

# The part of a held box's script that meets us; every step of it is a builtin, so a box without a free process can.
meet='echo here >/workspace/ready; read -r word </workspace/go'

# hold NAME COMMAND…: starts the command, whose box has /home/NAME for its workspace and meets there, and waits for it.
# Then `release` lets it go on and sends its record.
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
