//! Converts a grant to gVisor's `config.json` (OCI runtime specification). Pure; `tests` holds a
//! snapshot of it.
//!
//! All permissions of a box are decided in this file. Its limits are not in the configuration:
//! `runsc` is started in cgroups of ours. The configuration contains the values of the environment
//! and is never written to disk.

use std::ffi::CString;

use ringwall_jail::agent::AGENT;
use ringwall_jail::plan::{MountAccess, Owner, Resource};
use ringwall_policy::{Field, Grant};
use serde_json::{Value, json};

use super::runsc_root::{BOX, project};
use crate::box_layout;
use crate::error::Error;
use crate::host::{Host, SystemKind};
use crate::plan::limits::Stay;
use crate::plan::{limits, lower};
use crate::sources::Sources;

const MIB: u64 = 1024 * 1024;
/// The namespaces of the box in gVisor's kernel, named one by one so that none is added by
/// accident.
const NAMESPACES: [&str; 5] = ["pid", "network", "ipc", "uts", "mount"];

pub(super) fn config(grant: &Grant, host: &Host, sources: &Sources, owner: Owner, stay: Stay) -> Result<Value, Error> {
    let command = match stay {
        Stay::OneCommand => lower::command(grant, lower::home(sources), sources.python, false)?,
        Stay::SessionBox => lower::agent_command(),
    };
    let allowed = &grant.effective().limits;
    let none: [&str; 0] = [];
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": owner.uid, "gid": owner.gid, "additionalGids": none },
            "args": texts("an argument that is not UTF-8", &command.argv)?,
            "env": texts("an environment variable that is not UTF-8", &command.environment)?,
            "cwd": text("a directory that is not UTF-8", &command.directory)?,
            "capabilities": {
                "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none,
            },
            "noNewPrivileges": true,
            "rlimits": limits::resource_limits(allowed.get(Field::Pids) + stay.own_processes(), host).iter().map(|limit| json!({
                "type": resource(limit.resource), "hard": limit.value, "soft": limit.value,
            })).collect::<Vec<_>>(),
        },
        "root": { "path": BOX, "readonly": true },
        "hostname": box_layout::HOSTNAME,
        "mounts": mounts(host, sources, owner, allowed.get(Field::ScratchMb) * MIB, stay),
        "linux": { "namespaces": NAMESPACES.map(|kind| json!({ "type": kind })) },
    }))
}

fn mounts(host: &Host, sources: &Sources, owner: Owner, scratch: u64, stay: Stay) -> Vec<Value> {
    let special = |at: &str, kind: &str| json!({ "destination": at, "type": kind, "source": kind });
    let bind = |at: &str, source: &str, access: &str| json!({ "destination": at, "type": "bind", "source": source, "options": ["rbind", "nosuid", "nodev", access] });
    let memory = |at: &str, mode: &str| {
        let owner = [format!("uid={}", owner.uid), format!("gid={}", owner.gid)];
        let options = ["nosuid".to_owned(), "nodev".to_owned(), format!("mode={mode}"), format!("size={scratch}")];
        let options: Vec<String> = options.into_iter().chain(owner).collect();
        json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": options })
    };
    let mut mounts = vec![special("/proc", "proc"), special("/dev", "tmpfs"), special("/dev/pts", "devpts")];
    let system = host.system.iter().filter(|entry| entry.kind == SystemKind::Directory).map(|entry| &entry.path);
    mounts.extend(system.chain(host.etc.iter().map(|entry| &entry.path)).map(|path| {
        let path = path.to_string_lossy();
        bind(&path, &path, "ro")
    }));
    mounts.extend(
        [("/tmp", "1777"), ("/var/tmp", "1777"), ("/dev/shm", "1777"), (box_layout::HOME, "0755")]
            .map(|(at, mode)| memory(at, mode)),
    );
    mounts.extend(sources.project.iter().filter_map(|place| {
        let (_, access) = place.content.as_ref()?;
        let access = match access {
            MountAccess::ReadOnly => "ro",
            MountAccess::ReadWrite => "rw",
        };
        Some(bind(place.at, &project(place.at), access))
    }));
    if stay == Stay::SessionBox {
        mounts.push(bind(AGENT, AGENT, "ro"));
    }
    mounts
}

fn resource(resource: Resource) -> &'static str {
    match resource {
        Resource::CoreSize => "RLIMIT_CORE",
        Resource::OpenFiles => "RLIMIT_NOFILE",
        Resource::Processes => "RLIMIT_NPROC",
        Resource::LockedMemory => "RLIMIT_MEMLOCK",
        Resource::MessageQueues => "RLIMIT_MSGQUEUE",
        Resource::RealtimePriority => "RLIMIT_RTPRIO",
        Resource::Niceness => "RLIMIT_NICE",
        Resource::PendingSignals => "RLIMIT_SIGPENDING",
    }
}

/// JSON is UTF-8; other text is refused instead of silently replaced.
fn text<'a>(what: &'static str, bytes: &'a CString) -> Result<&'a str, Error> {
    bytes.to_str().map_err(|_| Error::NotForGvisor(what))
}

fn texts<'a>(what: &'static str, words: &'a [CString]) -> Result<Vec<&'a str>, Error> {
    words.iter().map(|word| text(what, word)).collect()
}
