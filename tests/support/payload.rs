//! Payloads: Python programs of attacks, with a prelude for raw system calls. A payload prints one JSON value. It runs in
//! the box and, as a control, on the host.

use std::ffi::OsString;

use serde_json::Value;

/// Not the first `python3` of PATH, which may be a version manager's shim that does not exist in a box.
pub const PYTHON: &str = "/usr/bin/python3";

/// A Python program and its input data.
#[derive(Clone, Debug)]
pub struct Payload {
    source: String,
    data: Value,
}

impl Payload {
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), data: Value::Null }
    }

    /// Sets the program's variable `DATA`.
    pub fn with(mut self, data: Value) -> Self {
        self.data = data;
        self
    }

    pub fn arguments(&self) -> Vec<OsString> {
        let program = format!("{PRELUDE}\n{}", self.source);
        vec![PYTHON.into(), "-I".into(), "-c".into(), program.into(), self.data.to_string().into()]
    }
}

/// Runs its arguments on a new terminal, copies the output of that terminal to standard output, and exits with their exit
/// code.
pub const ON_A_TERMINAL: &str = r"
import os, pty, sys
child, master = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    try:
        piece = os.read(master, 65536)
    except OSError:
        break
    if not piece:
        break
    os.write(1, piece)
status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status) % 256)
";

/// Runs its arguments and writes the peak resident size of the process, in KiB, as the last line of standard error.
pub const MEASURED: &str = r"
import os, sys
child = os.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
status, usage = os.wait4(child, 0)[1:]
sys.stderr.write('\npeak_kib=%d\n' % usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
";

/// Runs its arguments with a host file, the file's directory and pipes open on descriptors 3 to 9. The first argument is
/// the file.
pub const WITH_OPEN_DESCRIPTORS: &str = r"
import os, sys
os.dup2(os.open(sys.argv[1], os.O_RDWR), 3)
os.dup2(os.open('/', os.O_RDONLY | os.O_DIRECTORY), 7)
os.dup2(os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY | os.O_DIRECTORY), 8)
ends = os.pipe()
for number in (4, 5, 6, 9):
    os.dup2(ends[number % 2], number)
for number in range(3, 10):
    os.set_inheritable(number, True)
os.execvp(sys.argv[2], sys.argv[2:])
";

/// Runs its arguments under a filter that returns TRACE for every call whose sixth argument is `MAGIC`. `judged` uses this
/// oracle because the filter under test does not allow a second filter from inside. As root `no_new_privs` stays unset, as
/// when root starts the product.
pub const WITH_ORACLE: &str = r"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
steps = [(0x20, 0, 0, 56), (0x15, 0, 1, 0x52574f52), (0x06, 0, 0, 0x7ff00000), (0x06, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
holder = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(program)))
if os.geteuid() != 0:
    libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(holder)), 0, 0) != 0:
    sys.exit('no oracle: ' + os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
";

/// `attempt` returns the result of an act as a word. `call` makes a raw system call, `isolated` makes it in a child, so that
/// a filter that kills is reported as its signal. `judged` returns the filter's result without running the call.
///
/// `judged` uses the precedence of seccomp actions: ERRNO of the filter under test outranks TRACE of the oracle, and TRACE
/// without a tracer returns ENOSYS and skips the call. So a denied call returns the filter's errno, an allowed one ENOSYS,
/// and even `reboot` is safe. On the host a child adds the oracle. A box cannot add filters, so [`WITH_ORACLE`] starts it
/// with one that applies to calls with `MAGIC` as sixth argument; a `getpid` with `MAGIC` shows whether it is present.
const PRELUDE: &str = r"
import ctypes, errno, json, os, platform, signal, struct, sys
DATA = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
MACHINE = 0 if platform.machine() == 'x86_64' else 1
_table = dict(
    ioctl=(16, 29), getpid=(39, 172), socket=(41, 198), setsockopt=(54, 208), clone=(56, 220),
    truncate=(76, 45), ptrace=(101, 117), syslog=(103, 116), capset=(126, 91), uselib=(134, None),
    personality=(135, 92), ustat=(136, None), vhangup=(153, 58), modify_ldt=(154, None), pivot_root=(155, 41),
    prctl=(157, 167), adjtimex=(159, 171), chroot=(161, 51), acct=(163, 89), settimeofday=(164, 170),
    mount=(165, 40), umount2=(166, 39), swapon=(167, 224), swapoff=(168, 225), reboot=(169, 142),
    sethostname=(170, 161), setdomainname=(171, 162), iopl=(172, None), ioperm=(173, None),
    init_module=(175, 105), delete_module=(176, 106), quotactl=(179, 60), nfsservctl=(180, 42),
    lookup_dcookie=(212, 18), clock_settime=(227, 112), kexec_load=(246, 104), add_key=(248, 217),
    request_key=(249, 218), keyctl=(250, 219), unshare=(272, 97), move_pages=(279, 239),
    perf_event_open=(298, 241), fanotify_init=(300, 262), fanotify_mark=(301, 263),
    name_to_handle_at=(303, 264), open_by_handle_at=(304, 265), clock_adjtime=(305, 266), setns=(308, 268),
    process_vm_readv=(310, 270), process_vm_writev=(311, 271), kcmp=(312, 272), finit_module=(313, 273),
    seccomp=(317, 277), kexec_file_load=(320, 294), bpf=(321, 280), userfaultfd=(323, 282),
    io_uring_setup=(425, 425), io_uring_enter=(426, 426), io_uring_register=(427, 427), open_tree=(428, 428),
    move_mount=(429, 429), fsopen=(430, 430), fsconfig=(431, 431), fsmount=(432, 432), fspick=(433, 433),
    clone3=(435, 435), pidfd_getfd=(438, 438), process_madvise=(440, 440), mount_setattr=(442, 442),
    quotactl_fd=(443, 443), open_tree_attr=(467, 467), create_module=(174, None), get_kernel_syms=(177, None),
    query_module=(178, None), sysfs=(139, None), _sysctl=(156, None), setrlimit=(160, 164), io_setup=(206, 0),
    prlimit64=(302, 261))
NUMBERS = {name: both[MACHINE] for name, both in _table.items() if both[MACHINE] is not None}

def name_of(number):
    return errno.errorcode.get(number, str(number))

def attempt(act):
    try:
        act()
        return 'ok'
    except OSError as error:
        return name_of(error.errno)
    except MemoryError:
        return 'ENOMEM'

def raw(number, *arguments):
    made = []
    for argument in arguments:
        if argument is None:
            made.append(ctypes.c_long(0))
        elif isinstance(argument, int):
            made.append(ctypes.c_long(argument if argument < 1 << 63 else argument - (1 << 64)))
        elif isinstance(argument, bytes):
            made.append(ctypes.c_char_p(argument))
        else:
            made.append(argument)
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *made)
    return result, ctypes.get_errno()

def call(name, *arguments):
    result, number = raw(NUMBERS[name], *arguments)
    return 'ok' if result != -1 else name_of(number)

def isolated(act):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(act()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        os._exit(0)
    os.close(writer)
    answer = b''
    while piece := os.read(reader, 65536):
        answer += piece
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return answer.decode()

ALLOW, TRACE, KILL = 0x7fff0000, 0x7ff00000, 0x80000000
MAGIC = 0x52574f52

def install_filter(numbers, answer, otherwise=ALLOW):
    steps = [struct.pack('HBBI', 0x20, 0, 0, 0)]
    for number in numbers:
        steps.append(struct.pack('HBBI', 0x15, 0, 1, number))
        steps.append(struct.pack('HBBI', 0x06, 0, 0, answer))
    steps.append(struct.pack('HBBI', 0x06, 0, 0, otherwise))
    program = ctypes.create_string_buffer(b''.join(steps))
    descriptor = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(program))
    libc.prctl(38, 1, 0, 0, 0)
    holder = ctypes.create_string_buffer(descriptor)
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(holder)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), 'second filter')

def judged(name, *arguments):
    def act():
        try:
            install_filter([NUMBERS[name]], TRACE)
        except OSError as error:
            if call('getpid', 0, 0, 0, 0, 0, MAGIC) != 'ENOSYS':
                return 'no oracle: ' + name_of(error.errno)
            return call(name, *(arguments + (None,) * 5)[:5], MAGIC)
        return call(name, *arguments)
    return isolated(act)

def status_fields(path='/proc/self/status'):
    with open(path) as lines:
        return dict((line.split(':', 1)[0], line.split(':', 1)[1].strip()) for line in lines)

def answer(value):
    sys.stdout.write(json.dumps(value) + '\n')
    sys.stdout.flush()
";
