"""A Jupyter kernel that is warm: for each line of input one cell is run, and a line says how many nanoseconds that took."""
import sys
import time

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()


def run(code):
    began = time.perf_counter_ns()
    asked = client.execute(code)
    value = None
    # A cell is over when the kernel says that it is idle again; what it shows comes before that.
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "execute_result":
            value = message["content"]["data"]["text/plain"]
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    took = time.perf_counter_ns() - began
    if value != "2":
        raise SystemExit(f"the kernel said {value!r}")
    # Not measured: a client that reads only the result does not wait for this message.
    client.get_shell_msg(timeout=30)
    return took


try:
    run("1+1")
    print("ready", flush=True)
    for line in sys.stdin:
        print(run("1+1"), flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
