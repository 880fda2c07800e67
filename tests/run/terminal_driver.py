"""Runs a program on a new terminal, types, resizes and reads the screen, and prints a JSON object with the result. The
first argument contains the steps as JSON, the others the program.

  ["see", text]          wait until the screen shows text after the text of the last "see"
  ["type", text]         press these keys
  ["resize", rows, cols] change the size of the window
  ["signal", number]     send a signal to the program
"""

import fcntl, json, os, pty, select, signal, struct, sys, termios, time

steps, program = json.loads(sys.argv[1]), sys.argv[2:]
deadline = time.monotonic() + 120
ready, go = os.pipe()
# This process keeps this end open, to compare its settings after the program has ended.
screen, kept = pty.openpty()
child = os.fork()
if child == 0:
    os.read(ready, 1)
    os.setsid()
    fcntl.ioctl(kept, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(kept, number)
    os.execv(program[0], program)


def resize(rows, columns):
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))


resize(31, 97)
before = termios.tcgetattr(kept)
os.write(go, b'g')

shown, seen, missing = b'', 0, None


def read(until):
    """Reads until the condition is true, the program has closed its terminal, or the deadline has passed."""
    global shown
    while not until():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if select.select([screen], [], [], min(left, 0.05))[0]:
            try:
                piece = os.read(screen, 65536)
            except OSError:
                return until()
            shown += piece
        elif ended():
            return until()
    return True


status = None


def ended():
    global status
    if status is None:
        number, result = os.waitpid(child, os.WNOHANG)
        if number:
            status = result
    return status is not None


for step in steps:
    if step[0] == 'see':
        text = step[1].encode()
        if not read(lambda: text in shown[seen:]):
            missing = step[1]
            break
        seen = shown.index(text, seen) + len(text)
    elif step[0] == 'type':
        os.write(screen, step[1].encode())
    elif step[0] == 'resize':
        resize(step[1], step[2])
    elif step[0] == 'signal':
        os.kill(child, step[1])

if missing is not None and not ended():
    os.kill(child, signal.SIGKILL)
finished = read(ended)
if not finished:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
while select.select([screen], [], [], 0)[0]:
    piece = os.read(screen, 65536)
    if not piece:
        break
    shown += piece
print(json.dumps({
    'screen': shown.decode('utf-8', 'replace'),
    'missing': missing,
    'code': os.waitstatus_to_exitcode(status) if finished else None,
    'restored': termios.tcgetattr(kept) == before,
}))
