//! Requests that wait too long for a workspace's lock fail with the contract's text; other agents
//! are not affected.
//!
//! No request waits for its client while it holds the lock, so the test blocks one in the kernel:
//! while a process lists a directory, the kernel holds the directory's lock, and here it must write
//! the names to memory that is backed by userfaultfd and never supplied. Meanwhile the server
//! cannot create a name in that directory. Blocking the kernel this way requires root.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use tests::support::wait::wait_until;

use crate::fixture::Fixture;
use crate::zips;

/// Uses the system calls userfaultfd and getdents64. Ends at the end of its input.
const HOLD_DIRECTORY: &str = r#"
import ctypes, fcntl, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
LENGTH = 4 * 4096
faults = libc.syscall({"x86_64": 323, "aarch64": 282}[os.uname().machine], os.O_CLOEXEC)
if faults < 0:
    sys.exit("userfaultfd: " + os.strerror(ctypes.get_errno()))
fcntl.ioctl(faults, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
memory = libc.mmap(None, ctypes.c_size_t(LENGTH), 3, 0x22, -1, 0)
fcntl.ioctl(faults, 0xC020AA00, bytearray(struct.pack("QQQQ", memory, LENGTH, 1, 0)))
directory = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
number = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
reading = lambda: libc.syscall(number, directory, ctypes.c_void_p(memory), ctypes.c_size_t(LENGTH))
threading.Thread(target=reading, daemon=True).start()
os.read(faults, 32)
print("held", flush=True)
sys.stdin.read()
os._exit(0)
"#;

/// While this exists, no name can be created in the directory.
struct DirectoryLock {
    holder: Child,
    input: Option<ChildStdin>,
}

impl DirectoryLock {
    fn new(directory: &Path) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", HOLD_DIRECTORY]).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut response = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut response).unwrap();
        assert_eq!(response, "held\n", "this needs userfaultfd");
        Self { input: holder.stdin.take(), holder }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.holder.wait();
    }
}

pub(crate) fn long_wait_for_workspace_is_server_busy(fixture: &Fixture) {
    let (agent, other) = (fixture.workspace(), fixture.workspace());
    agent.put("files/a", "a");
    agent.push(&zips::skill("s", "1")).success();
    other.put("files/a", "other");
    let held = DirectoryLock::new(&agent.on_disk("files"));
    let expected_message = |operation: &str| format!("Server busy: {operation} operation timed out. Please try again.");
    std::thread::scope(|scope| {
        let agent = &agent;
        let first = scope.spawn(|| agent.write("files/new/x", "x"));
        // The first write holds the lock once its file is in `.staging`.
        wait_until("the write to start", || std::fs::read_dir(agent.on_disk(".staging")).unwrap().count() > 0);
        let skill = zips::skill("s", "2");
        let reads = [
            scope.spawn(|| agent.content("files/a")),
            scope.spawn(|| agent.list("files")),
            scope.spawn(|| agent.client.get(&format!("/v1/{}/download?path=files/a", agent.agent))),
            scope.spawn(|| agent.client.get(&format!("/v1/skills/{}/list", agent.agent))),
            scope.spawn(|| agent.client.get(&agent.sandbox_route("content?path=a"))),
        ];
        let updates = [
            scope.spawn(|| agent.write("files/a", "b")),
            scope.spawn(|| agent.edit("files/a", "a", "b", None)),
            scope.spawn(|| agent.delete("files/a")),
            scope.spawn(|| agent.upload("a", b"b")),
            scope.spawn(move || agent.push(&skill)),
            scope.spawn(|| agent.delete_skill("s")),
            scope.spawn(|| agent.client.put(&agent.sandbox_route("edit?path=a"), "b")),
        ];
        assert_eq!(other.text("files/a"), "other");
        other.put("files/b", "b");
        assert_eq!(other.run("cat files/b").stdout, "b");
        for read in reads {
            assert_eq!(read.join().unwrap().expect_error(503), expected_message("Read"));
        }
        for update in updates {
            assert_eq!(update.join().unwrap().expect_error(503), expected_message("Update"));
        }
        assert!(!first.is_finished(), "the first write ended early");
        drop(held);
        first.join().unwrap().success();
    });
    assert_eq!(agent.listed("files"), ["files/a", "files/new/x"]);
    assert_eq!(agent.text("files/a"), "a", "rejected requests changed nothing");
    assert_eq!(agent.text("skills/s/main.py"), "1");
}
