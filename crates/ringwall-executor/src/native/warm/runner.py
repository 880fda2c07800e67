# The interpreter of a warm box: waits for code, and then runs it as `python3 -c CODE` would.
# Descriptor 3 is a socket to PID 1, 4 the Landlock rules. The code must not see anything of this program.
import sys

# Only in these versions were tracebacks compared with those of `python3 -c`.
if not (3, 10) <= sys.version_info < (3, 13):
    sys.exit(125)
# The directory in which this interpreter started, which is not the code's.
del sys.path[0]
known = set(sys.modules)
import _ctypes, collections, datetime, functools, gc, io, itertools, json, math, os, re, time
preloaded = {name.partition(".")[0] for name in sys.modules.keys() - known}


class Pointer(_ctypes._SimpleCData):
    _type_ = "P"


class Function(_ctypes.CFuncPtr):
    # FUNCFLAG_CDECL | FUNCFLAG_PYTHONAPI: C calling convention, and the GIL stays locked.
    _flags_ = 1 | 4


program = _ctypes.dlopen(None, 0)
run, call, track, untrack = (
    Function(_ctypes.dlsym(program, name))
    for name in ("PyRun_SimpleStringFlags", "syscall", "PyObject_GC_Track", "PyObject_GC_UnTrack")
)
# As `python3 -c` does: PyCF_IGNORE_COOKIE, because no line of the text declares an encoding.
flags = (0x0800).to_bytes(4, sys.byteorder) + sys.version_info[1].to_bytes(4, sys.byteorder)
LANDLOCK_RESTRICT_SELF = 446

# Called once to load the pages.
run(b"pass", flags)
json.loads(json.dumps([{"a": 1.5}, "b", None]))
re.sub("(a)|b+", "", "ab")
re.purge()
print(end="", flush=True)
# Keeps the collector from scanning these objects, except the dict of __main__, which holds the code's own objects.
gc.collect()
gc.freeze()
own = vars(sys.modules["__main__"])
untrack(Pointer(id(own)))
track(Pointer(id(own)))

os.write(3, b"r")
if os.read(3, 1) == b"l":
    if call(LANDLOCK_RESTRICT_SELF, 4, 0) != 0:
        os._exit(125)
    os.close(4)
os.write(3, b"y")
parts = []
while part := os.read(3, 1 << 20):
    parts.append(part)
os.close(3)
directory, code, *environment = b"".join(parts).split(b"\0")[:-1]
os.chdir(directory)
os.environ.clear()
for entry in environment:
    key, _, value = entry.partition(b"=")
    os.environb[key] = value
sys.path.insert(0, "")
sys.orig_argv[2:] = [code.decode()]
try:
    entries = os.listdir()
except OSError:
    entries = []
# A file in the working directory shadows a loaded module of that name.
if not preloaded.isdisjoint(entry.partition(".")[0] for entry in entries):
    for name in [name for name in sys.modules if name.partition(".")[0] in preloaded]:
        del sys.modules[name]
# Two frames lie below the code's first, and before 3.12 two calls between them count too.
sys.setrecursionlimit(sys.getrecursionlimit() + (2 if sys.version_info >= (3, 12) else 4))

if run(code, flags):
    # The traceback was printed already.
    last = {name: getattr(sys, name) for name in dir(sys) if name.startswith("last_")}
    hook = sys.excepthook

    def silence(*_):
        sys.excepthook = hook
        vars(sys).update(last)

    sys.excepthook = silence
    raise SystemError
