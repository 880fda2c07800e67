//! The box's own /etc: who is who, and nothing about the host.

/// The user that every box runs as.
pub(crate) const USER: &str = "sandbox";
pub(crate) const UID: u32 = 1000;
pub(crate) const GID: u32 = 1000;
pub(crate) const HOME: &str = "/home/sandbox";
pub(crate) const HOSTNAME: &str = "ringwall";

/// Path, content, for a box whose user has these ids inside.
pub(crate) fn files(uid: u32, gid: u32) -> [(&'static str, String); 4] {
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
