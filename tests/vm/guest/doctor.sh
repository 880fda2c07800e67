# `ringwall doctor` and a plain box, as root and as a user without a delegated cgroup.
observe kernel uname -r
record doctor_root ringwall doctor --json
record doctor_agent as_agent ringwall doctor --json
record plain_root ringwall run --json -- true
record plain_agent as_agent ringwall run --json -- sh -c 'id -u'
