//! The command's environment as an `--env-file`, held in memory.
//!
//! Values are secrets. In the client's argv every user of the machine could read them; in the
//! client's environment a name like LD_PRELOAD would affect the client. The file format has no
//! escapes, so a variable that it cannot express is refused with an error that names the variable
//! only.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringwall_policy::{Grant, Net, Secret};
use rustix::fs::MemfdFlags;

use crate::error::Error;
use crate::{box_layout, egress};

/// The client's limit is 64 KiB per line.
const MAX_LINE_LEN: usize = 65_000;

/// A memfd. Keep it until the client has read it.
#[derive(Debug)]
pub(crate) struct EnvironmentFile(OwnedFd);

impl EnvironmentFile {
    pub(crate) fn new(grant: &Grant) -> Result<Self, Error> {
        let text = text(&grant.effective().net, grant.env())?;
        let write = || {
            let mut file = File::from(rustix::fs::memfd_create(c"environment", MemfdFlags::CLOEXEC)?);
            file.write_all(&text)?;
            Ok(EnvironmentFile(file.into()))
        };
        write().map_err(Error::WriteEnvironment)
    }

    /// The path by which the client, a process of the same user, opens the memfd.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// The variables of every box, overridden by those of the grant.
fn text(net: &Net, granted: &BTreeMap<String, Secret>) -> Result<Vec<u8>, Error> {
    let mut variables = BTreeMap::from([
        // The image is read-only, including every home in it.
        ("HOME", OsStr::new("/tmp")),
        ("LANG", OsStr::new("C.UTF-8")),
        ("LOGNAME", OsStr::new(box_layout::USER)),
        ("USER", OsStr::new(box_layout::USER)),
    ]);
    if let Net::Allowlist { .. } = net {
        variables.extend(egress::ENVIRONMENT.map(|(key, value)| (key, OsStr::new(value))));
    }
    variables.extend(granted.iter().map(|(key, value)| (key.as_str(), value.expose())));
    let mut text = Vec::new();
    for (key, value) in variables {
        check(key, value.as_bytes())?;
        text.extend([key.as_bytes(), b"=", value.as_bytes(), b"\n"].concat());
    }
    Ok(text)
}

fn check(key: &str, value: &[u8]) -> Result<(), Error> {
    let refuse = |why| Err(Error::EnvironmentNotForDocker { key: key.chars().take(80).collect(), why });
    // Docker ignores lines that begin with `#` and strips leading spaces.
    if !key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#' && byte != b'=') || key.is_empty() {
        return refuse("its name has characters that docker does not accept in an --env-file");
    }
    if value.contains(&b'\n') || value.ends_with(b"\r") {
        return refuse("its value has more than one line");
    }
    if std::str::from_utf8(value).is_err() {
        return refuse("its value is not UTF-8");
    }
    if key.len() + value.len() > MAX_LINE_LEN {
        return refuse("its value is longer than 64 KB");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_unfit_for_env_file_is_refused_without_value() {
        let long = vec![b'x'; MAX_LINE_LEN];
        let bad: [(&str, &[u8]); 9] = [
            ("A B", b"secret"),
            ("#A", b"secret"),
            ("\u{feff}A", b"secret"),
            ("", b"secret"),
            ("A", b"secret\nB=c"),
            ("A", b"secret\r"),
            ("A", b"secret\xff"),
            ("A=B", b"secret"),
            ("A", &long),
        ];
        for (key, value) in bad {
            let error = check(key, value).expect_err("docker would read this line differently");
            assert!(!format!("{error}{error:?}").contains("secret"), "{error}");
        }
        for (key, value) in [("A", &b""[..]), ("a.b-c", b" two  words "), ("LD_PRELOAD", b"#x=\ty\rz")] {
            assert!(check(key, value).is_ok(), "{key}");
        }
    }
}
