# Kernel-wide pools: a box that takes all it can must leave some for another user. The control takes the same as an
# ordinary user without a box and leaves nothing. bpf_jit_limit is lowered first, because filling the default would take
# minutes under emulation.
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
