# What Ringwall says of this machine, to root and to a user whom nobody gave a part of the cgroup tree.
observe kernel uname -r
record doctor_root ringwall doctor --json
record doctor_agent as_agent ringwall doctor --json
record plain_root ringwall run --json -- true
record plain_agent as_agent ringwall run --json -- sh -c 'id -u'
