//! Fixture: workspaces on disk, grants for them, and runs in warm and cold boxes.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;

use ringwall_executor::warm::{WarmBox, WarmKind, WarmSpec};
use ringwall_executor::{Ending, Executor, Host, Options, Outcome, Protection, RunningBox};
use ringwall_policy::{
    Ceilings, Field, Grant, Layer, LayerName, Layers, NetList, NetMode, NetRequest, Owner, PathAccess, PathControl,
    Request, Root, Secret, SessionMounts, UnknownHost, Verdict, Workspace, decide, profile,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The owners of the workspaces.
pub(crate) const UIDS: [u32; 2] = [20_101, 20_102];

pub(crate) struct Fixture {
    pub(crate) executor: Arc<Executor>,
    pub(crate) runtime: Runtime,
    directory: TempDir,
}

/// The result of a command.
#[derive(Debug, PartialEq)]
pub(crate) struct CommandOutput {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) ending: Ending,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let directory = TempDir::with_prefix("ringwall-test-warm-boxes-").unwrap();
        Self::on(Host::probe(), directory)
    }

    /// An executor whose base rootfs could not be prepared, because a file of the host was missing
    /// at that moment.
    pub(crate) fn without_base_rootfs() -> Self {
        let directory = TempDir::with_prefix("ringwall-test-warm-boxes-").unwrap();
        let (file, aside) = (directory.path().join("file"), directory.path().join("aside"));
        std::fs::write(&file, "").unwrap();
        let mut host = Host::probe();
        let mut entry = host.etc.iter().find(|entry| entry.path.as_c_str() == c"/etc/ld.so.cache").unwrap().clone();
        entry.path = CString::new(file.as_os_str().as_bytes()).unwrap();
        host.etc.push(entry);
        let fixture = Self::on(host, directory);
        std::fs::rename(&file, &aside).unwrap();
        let early = fixture.runtime.block_on(fixture.executor.start(fixture.grant(&["true"]), Options::default()));
        assert!(early.is_err(), "a box started without the missing file");
        std::fs::rename(&aside, &file).unwrap();
        fixture
    }

    fn on(host: Host, directory: TempDir) -> Self {
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let runtime = Runtime::new().unwrap();
        let executor = {
            let _inside = runtime.enter();
            Arc::new(Executor::new(host, &directory.path().join("data")).unwrap())
        };
        let fixture = Fixture { executor, runtime, directory };
        for uid in UIDS {
            let path = fixture.workspace(uid);
            std::fs::create_dir(&path).unwrap();
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
        fixture
    }

    pub(crate) fn workspace(&self, uid: u32) -> PathBuf {
        self.directory.path().join(uid.to_string())
    }

    pub(crate) fn grant(&self, argv: &[&str]) -> Grant {
        self.grant_of(UIDS[0], argv, &[], &[])
    }

    pub(crate) fn python(&self, code: &str) -> Grant {
        self.grant(&["python3", "-c", code])
    }

    pub(crate) fn grant_of(&self, uid: u32, argv: &[&str], env: &[(&str, &str)], limits: &[(Field, u64)]) -> Grant {
        let mut operator = Layer::new(LayerName::CommandLine);
        operator.limits.extend(limits.iter().copied());
        self.decided(uid, argv, env, operator)
    }

    /// A grant with network access and an empty host list.
    pub(crate) fn open_grant(&self, argv: &[&str]) -> Grant {
        let mut operator = Layer::new(LayerName::CommandLine);
        let allow = Some(NetList::default());
        operator.net = Some(NetRequest { mode: NetMode::Allowlist, allow, unknown: Some(UnknownHost::Deny) });
        self.decided(UIDS[0], argv, &[], operator)
    }

    fn decided(&self, uid: u32, argv: &[&str], env: &[(&str, &str)], operator: Layer) -> Grant {
        let mounts = SessionMounts {
            work: self.workspace(uid),
            owner: Owner::new(uid, uid).unwrap(),
            control: PathControl::On(PathAccess::default()),
            hidden: Vec::new(),
        };
        let request = Request {
            argv: argv.iter().map(Into::into).collect(),
            env: env.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(*value))).collect(),
            cwd: None,
            root: Root::Host,
            workspace: Workspace::Session(Box::new(mounts)),
            read_only: vec![],
        };
        let host = self.executor.host();
        let ceilings = profile::machine_ceilings(host.memory_mb, host.cpus, host.pids);
        let layers = Layers {
            system: profile::RUN,
            ceilings: Ceilings { limits: ceilings, set_by: LayerName::Machine },
            operator,
            narrowing: vec![],
        };
        match decide(&request, &layers) {
            Verdict::Allow(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    /// A warm box for this grant.
    pub(crate) fn warm_box(&self, kind: WarmKind, grant: &Grant) -> WarmBox {
        let shape = self.executor.shape_for(grant).expect("a warm box can serve the grant");
        self.runtime.block_on(self.executor.prepare_warm_box(&WarmSpec { kind, shape })).unwrap()
    }

    pub(crate) fn warm(&self, kind: WarmKind, grant: Grant) -> CommandOutput {
        let warm_box = self.warm_box(kind, &grant);
        self.serve(warm_box, grant)
    }

    pub(crate) fn serve(&self, warm_box: WarmBox, grant: Grant) -> CommandOutput {
        let running = self.runtime.block_on(self.executor.start_warm_box(warm_box, grant)).unwrap();
        self.follow(running, b"").0
    }

    pub(crate) fn cold(&self, grant: Grant) -> CommandOutput {
        let running = self.runtime.block_on(self.executor.start(grant, Options::default())).unwrap();
        self.follow(running, b"").0
    }

    pub(crate) fn follow(&self, mut running: RunningBox, input: &[u8]) -> (CommandOutput, Outcome) {
        let [stdin, stdout, stderr] = running.take_streams().into_pipes().unwrap();
        let _ = File::from(stdin).write_all(input);
        let readers = [stdout, stderr].map(|pipe| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                File::from(pipe).read_to_end(&mut text).unwrap();
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        let outcome = self.runtime.block_on(running.wait()).unwrap();
        let [stdout, stderr] = readers.map(|reader| reader.join().unwrap());
        (CommandOutput { stdout, stderr, ending: outcome.ending }, outcome)
    }

    /// The protections of a warm and of a cold box.
    pub(crate) fn protections(&self, grant: impl Fn() -> Grant, kind: WarmKind) -> [Vec<Protection>; 2] {
        let warm_box = self.warm_box(kind, &grant());
        let warm = self.runtime.block_on(self.executor.start_warm_box(warm_box, grant())).unwrap();
        let cold = self.runtime.block_on(self.executor.start(grant(), Options::default())).unwrap();
        [warm, cold].map(|running| self.follow(running, b"").1.protections)
    }
}
