# Pools that the whole machine shares, at full scale: what one box takes must leave some for another user. The control
# takes the same without a box, as an ordinary user, and leaves nothing. The pool of compiled programs is made small
# first; otherwise filling it would take this emulation minutes.
echo 1500000 >/proc/sys/net/core/bpf_jit_limit
for kind in terminals contexts files filters; do
    make_meeting "/home/pool_${kind}_outside" 1000
    hold "pool_${kind}_outside" as_agent pools take $kind "/home/pool_${kind}_outside/ready" "/home/pool_${kind}_outside/go"
    record "pool_${kind}_outside_other" as_agent pools one $kind
    release

    make_meeting "/home/pool_${kind}_box" root
    hold "pool_${kind}_box" ringwall run --json --workspace "/home/pool_${kind}_box" --pids 64 --memory-mb 400 -- \
        pools take $kind /workspace/ready /workspace/go
    record "pool_${kind}_box_other" as_agent pools one $kind
    release
done
