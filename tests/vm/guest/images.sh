# An imported image on this kernel's overlayfs: root uses an id-mapped mount, an ordinary user owns the files. Changes
# of one box are not visible in the next.
script='id -u; cat /etc/marker; rm /etc/marker; echo new >/etc/new; cat /etc/new; ls /etc/marker 2>/dev/null; true'
second='cat /etc/marker; ls /etc/new 2>/dev/null; true'

record import_root ringwall image import busybox /vm/image.tar
record image_root ringwall run --json --image busybox -- sh -c "$script"
record image_root_again ringwall run --json --image busybox -- sh -c "$second"
record import_agent as_agent ringwall image import busybox /vm/image.tar
record image_agent as_agent ringwall run --json --image busybox -- sh -c "$script"
record image_agent_again as_agent ringwall run --json --image busybox -- sh -c "$second"
record image_own in_group "$own/terminal.scope" as_agent ringwall run --json --memory-mb 64 --image busybox -- sh -c "$second"

# Root's workspace on ext4, which has id-mapped mounts, and on tmpfs, which has them from Linux 6.3. On an older kernel
# the tmpfs workspace must be refused with a message.
mkdir -p /home/files /tmp/files
record workspace_root ringwall run --json --workspace /home/files -- sh -c 'echo kept >note && cat note'
observe workspace_root_seen stat -c '%u %g' /home/files/note
record workspace_tmpfs ringwall run --workspace /tmp/files -- sh -c 'echo kept >note && cat note'
