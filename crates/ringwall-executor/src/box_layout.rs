//! The inside of every box: its user, search path, mount points, and the files of its `/etc`.

/// The user that every box runs as.
pub(crate) const USER: &str = "sandbox";
pub(crate) const UID: u32 = 1000;
pub(crate) const GID: u32 = 1000;
pub(crate) const HOME: &str = "/home/sandbox";
pub(crate) const HOSTNAME: &str = "ringwall";

/// `PATH` of commands that set none.
pub(crate) const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// `PATH` of commands on an agent's files.
pub(crate) const AGENT_SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Set in commands on a terminal.
pub(crate) const TERMINAL: (&str, &str) = ("TERM", "xterm-256color");

/// Mount point of a session's directory, and parent of the mount points of a project and of an agent's files.
pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const AGENT_FILES: &str = "/workspace/files";
pub(crate) const AGENT_SKILLS: &str = "/workspace/skills";

/// Path and content of the files in `/etc`, for a box whose user has these ids inside.
pub(crate) fn etc_files(uid: u32, gid: u32) -> [(&'static str, String); 4] {
    [
        (
            "/etc/passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\n\
                 {USER}:x:{uid}:{gid}:{USER}:{HOME}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
            ),
        ),
        ("/etc/group", format!("root:x:0:\n{USER}:x:{gid}:\nnogroup:x:65534:\n")),
        ("/etc/hosts", format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n")),
        (
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"
                .to_owned(),
        ),
    ]
}
