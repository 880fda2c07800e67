//! Kills the server repeatedly during writes, uploads, installations and deletions. After a restart
//! each file and skill is the old or the new version as a whole, nothing acknowledged is lost, and
//! no leftovers remain.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::server::Server;

use crate::client::{Body, Client, file_part, form};
use crate::fixture::{Fixture, is_soak};
use crate::workspace::Workspace;
use crate::zips;

const AGENTS: usize = 2;
const FILES: usize = 12;
/// Size of the deleted skills. Their deletion takes longer and is interrupted more often.
const DELETABLE_FILES: usize = 40;
/// Entries that the server may create in a workspace.
const BESIDE: [&str; 6] = ["files", "skills", "projects", "sessions", ".baseline", ".staging"];
const MAX_LIFETIME: u64 = 400;
/// Exceeded only if the server no longer makes progress.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The last acknowledged version of each file and skill of an agent. Versions only increase.
#[derive(Debug, Default)]
struct Acknowledged {
    written: AtomicU64,
    uploaded: AtomicU64,
    skill: AtomicU64,
    baseline: AtomicU64,
    edited: AtomicU64,
    deletable: [Lifecycle; 3],
}

/// The state of something that is created and deleted in turn: odd versions exist, even versions
/// are deleted.
#[derive(Debug, Default)]
struct Lifecycle {
    acknowledged: AtomicU64,
    /// The last requested version.
    requested: AtomicU64,
}

/// Objects that are deleted, each by another route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deletable {
    File,
    Directory,
    Skill,
}

impl Deletable {
    const ALL: [Self; 3] = [Self::File, Self::Directory, Self::Skill];

    fn path(self) -> &'static str {
        match self {
            Self::File => "files/doomed",
            Self::Directory => "skills/felled",
            Self::Skill => "skills/gone",
        }
    }

    fn make(self, client: &Client, agent: &str, number: u64) -> Option<bool> {
        let Some(name) = self.path().strip_prefix("skills/") else {
            let body = json!({ "file_path": self.path(), "content": version(number) });
            return try_json(client, &format!("/v1/{agent}/write"), &body);
        };
        let archive = skill(name, number, DELETABLE_FILES);
        try_upload(client, &format!("/v1/skills/{agent}/upload"), "x.zip", &archive)
    }

    fn delete(self, client: &Client, agent: &str, presence: Presence) -> Option<bool> {
        let path = match self {
            Self::File | Self::Directory => format!("/v1/{agent}/delete?path={}", self.path()),
            Self::Skill => format!("/v1/skills/{agent}/delete?name=gone"),
        };
        let response = client.try_ask("DELETE", &path, Body::None).ok()?;
        let may_miss = presence == Presence::Unknown;
        assert!(matches!(response.status, 200 | 503) || may_miss && response.status == 404, "{path}: {response:?}");
        Some(response.status != 503)
    }

    /// The version that exists, if any. Checks that it is complete.
    fn found(self, workspace: &Workspace) -> Option<u64> {
        if !workspace.on_disk(self.path()).exists() {
            return None;
        }
        Some(match self {
            Self::File => number_of(&workspace.text(self.path()), self.path()),
            Self::Directory | Self::Skill => number_of_skill(workspace, self.path(), DELETABLE_FILES),
        })
    }
}

/// How certain it is that the object to delete exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Acknowledged,
    Unknown,
}

impl Lifecycle {
    /// Creates and deletes in turn until the server is gone.
    fn act(&self, deletable: Deletable, client: &Client, agent: &str) {
        act(&self.acknowledged, |number| {
            self.requested.store(number, Ordering::SeqCst);
            if !number.is_multiple_of(2) {
                return deletable.make(client, agent, number);
            }
            let is_there = self.acknowledged.load(Ordering::SeqCst) == number - 1;
            deletable.delete(client, agent, if is_there { Presence::Acknowledged } else { Presence::Unknown })
        });
    }

    /// Checks that the state is the last acknowledged one or one that was requested later, and
    /// continues from it.
    fn check(&self, deletable: Deletable, workspace: &Workspace) {
        let (confirmed, requested) = (self.acknowledged.load(Ordering::SeqCst), self.requested.load(Ordering::SeqCst));
        // If the object is missing, the last requested deletion may be the reason.
        let found = deletable.found(workspace).unwrap_or(requested - requested % 2);
        assert!(
            (confirmed..=requested).contains(&found),
            "{deletable:?}: found {found}, acknowledged {confirmed}, requested {requested}"
        );
        self.acknowledged.store(found, Ordering::SeqCst);
    }
}

impl Acknowledged {
    fn counts(&self) -> Vec<u64> {
        let all = [&self.written, &self.uploaded, &self.skill, &self.baseline, &self.edited];
        let deletable = self.deletable.iter().map(|lifecycle| &lifecycle.acknowledged);
        all.into_iter().chain(deletable).map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

/// Several pages of content that show whether a version is complete.
fn version(number: u64) -> String {
    format!("{number:08}\n").repeat(4000)
}

/// Checks that the content is one complete version, and returns its number.
fn number_of(content: &str, what: &str) -> u64 {
    let number = content.get(..8).unwrap_or_else(|| panic!("{what}: {content:?}"));
    assert_eq!(content.len(), 9 * 4000, "{what}: incomplete");
    assert!(content.lines().all(|line| line == number), "{what}: mixed versions");
    number.parse().unwrap()
}

/// Checks that the skill is one complete version, and returns its number.
fn number_of_skill(workspace: &Workspace, path: &str, count: usize) -> u64 {
    let files = workspace.listed(path);
    assert_eq!(files.len(), count + 1, "{path}: {files:?}");
    let contents: BTreeSet<String> =
        files.iter().filter(|file| !file.ends_with("SKILL.md")).map(|file| workspace.text(file)).collect();
    assert_eq!(contents.len(), 1, "{path} has several versions: {contents:?}");
    contents.first().unwrap().parse().unwrap()
}

fn skill(name: &str, number: u64, count: usize) -> Vec<u8> {
    let text = number.to_string();
    let names: Vec<String> = (0..count).map(|file| format!("{name}/d{}/{file}", file % 3)).collect();
    let head = format!("{name}/SKILL.md");
    let mut files = vec![(head.as_str(), "name: x\n")];
    files.extend(names.iter().map(|name| (name.as_str(), text.as_str())));
    zips::of(&files)
}

/// Requests new versions until the server is gone.
fn act(acknowledged: &AtomicU64, mut ask: impl FnMut(u64) -> Option<bool>) {
    let mut number = acknowledged.load(Ordering::SeqCst);
    loop {
        // A version that was not acknowledged may exist, so its number is not used again.
        number += 1;
        match ask(number) {
            Some(true) => acknowledged.store(number, Ordering::SeqCst),
            Some(false) => {}
            None => return,
        }
    }
}

fn try_upload(client: &Client, path: &str, name: &str, bytes: &[u8]) -> Option<bool> {
    let (kind, bytes) = form(&[&file_part(name.as_bytes(), bytes)]);
    let response = client.try_ask("POST", path, Body::Other { kind: &kind, bytes: &bytes }).ok()?;
    assert!(matches!(response.status, 200 | 503), "{path}: {response:?}");
    Some(response.status == 200)
}

fn try_json(client: &Client, path: &str, body: &Value) -> Option<bool> {
    let response = client.try_ask("POST", path, Body::Json(body)).ok()?;
    assert!(matches!(response.status, 200 | 503), "{path}: {response:?}");
    Some(response.status == 200)
}

fn workspaces(server: &Server) -> Vec<Workspace> {
    let owner = Client::of(server, &server.token);
    (0..AGENTS).map(|number| Workspace::new(owner.clone(), "default", &format!("agent{number}"))).collect()
}

pub(crate) fn killed_server_keeps_acknowledged_versions(fixture: &Fixture) {
    let kills = if is_soak() { 150 } else { 10 };
    let state: Vec<Acknowledged> = (0..AGENTS).map(|_| Acknowledged::default()).collect();
    let mut server = fixture.start();
    for workspace in workspaces(&server) {
        workspace.put("files/written", &version(0));
        workspace.put("files/edited", &format!("number {}\n{}", 0, "line\n".repeat(20_000)));
        workspace.upload("uploaded", version(0).as_bytes()).success();
        workspace.push(&skill("own", 0, FILES)).success();
        let route = workspace.skill_route("upload?scope=baseline");
        workspace.client.upload(&route, b"x.zip", &skill("shared", 0, FILES)).success();
    }
    let initial = names(server.data());
    for round in 0..kills {
        run_until_killed(&mut server, &state, round);
        server = fixture.start_in(server.leave());
        for (workspace, acknowledged) in workspaces(&server).iter().zip(&state) {
            check(workspace, acknowledged);
        }
        assert_nothing_stray_beside(&server, &initial);
    }
    println!("{kills} kills; the first agent's last versions: {:?}", state[0].counts());
}

fn run_until_killed(server: &mut Server, state: &[Acknowledged], round: u64) {
    let workspaces = workspaces(server);
    std::thread::scope(|scope| {
        for (workspace, acknowledged) in workspaces.iter().zip(state) {
            let (client, agent) = (&workspace.client, &workspace.agent);
            scope.spawn(move || {
                act(&acknowledged.written, |number| {
                    let body = json!({ "file_path": "files/written", "content": version(number) });
                    try_json(client, &format!("/v1/{agent}/write"), &body)
                });
            });
            scope.spawn(move || {
                let path = format!("/v1/files/{agent}/upload");
                act(&acknowledged.uploaded, |number| try_upload(client, &path, "uploaded", version(number).as_bytes()));
            });
            scope.spawn(move || {
                let path = format!("/v1/skills/{agent}/upload");
                act(&acknowledged.skill, |number| try_upload(client, &path, "x.zip", &skill("own", number, FILES)));
            });
            scope.spawn(move || {
                let path = workspace.skill_route("upload?scope=baseline");
                act(&acknowledged.baseline, |number| {
                    try_upload(client, &path, "x.zip", &skill("shared", number, FILES))
                });
            });
            scope.spawn(move || {
                act(&acknowledged.edited, |number| {
                    let path = workspace.sandbox_route("edit?path=edited&start=1&end=1");
                    let response = client.try_ask("PUT", &path, Body::Text(&format!("number {number}"))).ok()?;
                    assert!(matches!(response.status, 200 | 503), "{response:?}");
                    Some(response.status == 200)
                });
            });
            for (deletable, lifecycle) in Deletable::ALL.into_iter().zip(&acknowledged.deletable) {
                scope.spawn(move || lifecycle.act(deletable, client, agent));
            }
            scope.spawn(move || {
                // Readers and boxes also must see complete versions only.
                loop {
                    let path = format!("/v1/{agent}/content?path=files/written");
                    let Ok(response) = client.try_ask("GET", &path, Body::None) else { return };
                    if response.status == 200 {
                        number_of(response.data["content"].as_str().unwrap(), "read during writes");
                    }
                    let body = json!({ "command": "rm -f files/boxed; echo x > files/boxed" });
                    if client.try_ask("POST", &format!("/v1/{agent}/execute"), Body::Json(&body)).is_err() {
                        return;
                    }
                }
            });
        }
        // Every third life lasts until each kind of request was acknowledged once, also on a slow
        // machine.
        if round.is_multiple_of(3) {
            let (before, deadline) = (state[0].counts(), Instant::now() + TIMEOUT);
            while state[0].counts().iter().zip(&before).any(|(now, before)| now == before) {
                assert!(Instant::now() < deadline, "no request was acknowledged: {:?}", state[0]);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Spreads the time of the kill over the life with steps of the golden ratio.
        std::thread::sleep(Duration::from_millis(20 + round * 618 % MAX_LIFETIME));
        server.signal(Signal::KILL);
        server.ended();
    });
}

fn check(workspace: &Workspace, acknowledged: &Acknowledged) {
    let at_least = |found: u64, of: &AtomicU64, what: &str| {
        let confirmed = of.load(Ordering::SeqCst);
        assert!(found >= confirmed, "{what}: version {found}, but {confirmed} was acknowledged");
        // A version that was not acknowledged may exist; continue from it.
        of.fetch_max(found, Ordering::SeqCst);
    };
    at_least(number_of(&workspace.text("files/written"), "written"), &acknowledged.written, "written");
    at_least(number_of(&workspace.text("files/uploaded"), "uploaded"), &acknowledged.uploaded, "uploaded");
    let edited = workspace.text("files/edited");
    let (first, rest) = edited.split_once('\n').unwrap();
    assert_eq!(rest, "line\n".repeat(20_000), "edited: incomplete");
    at_least(first.strip_prefix("number ").unwrap().parse().unwrap(), &acknowledged.edited, "edited");
    for (name, of) in [("own", &acknowledged.skill), ("shared", &acknowledged.baseline)] {
        at_least(number_of_skill(workspace, &format!("skills/{name}"), FILES), of, name);
    }
    for (deletable, lifecycle) in Deletable::ALL.into_iter().zip(&acknowledged.deletable) {
        lifecycle.check(deletable, workspace);
    }
    let mut names = workspace.listed("files");
    names.retain(|name| !["files/boxed", "files/doomed"].contains(&name.as_str()));
    assert_eq!(names, ["files/edited", "files/uploaded", "files/written"]);
    assert_nothing_stray(workspace);
}

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn set_of<const COUNT: usize>(names: [&str; COUNT]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// Checks on disk: only known names, nothing in `.staging`, and one version of each baseline.
fn assert_nothing_stray(workspace: &Workspace) {
    let strays: Vec<_> = names(&workspace.on_disk("")).difference(&set_of(BESIDE)).cloned().collect();
    assert_eq!(strays, [""; 0], "in the workspace");
    let mut staged = names(&workspace.on_disk(".staging"));
    // The directory for the next box.
    staged.remove("spare");
    assert_eq!(staged, set_of([]), "left in .staging");
    let mut skills = names(&workspace.on_disk("skills"));
    skills.retain(|name| !["felled", "gone"].contains(&name.as_str()));
    assert_eq!(skills, set_of(["own", "shared"]));
    let baseline = workspace.client.data().join("baselines").join(&workspace.agent);
    let mut versions = names(&baseline.join("shared"));
    versions.retain(|name| baseline.join("shared").join(name).is_dir());
    assert_eq!(versions.len(), 1, "old versions are kept: {versions:?}");
    assert_eq!(names(&baseline), set_of(["shared"]));
}

/// Checks the whole data directory: its top as the first server left it, and only known names
/// below.
fn assert_nothing_stray_beside(server: &Server, initial: &BTreeSet<String>) {
    assert_eq!(&names(server.data()), initial, "in the data directory");
    let workspaces = server.data().join("workspaces");
    assert_eq!(names(&workspaces), set_of(["default"]));
    assert_eq!(names(&workspaces.join("default")), set_of(["agent0", "agent1"]));
    let baselines = server.data().join("baselines");
    assert_eq!(names(&baselines), set_of([".current", ".staging", "agent0", "agent1"]));
    assert_eq!(names(&baselines.join(".staging")), set_of([]), "left in .staging");
    for agent in ["agent0", "agent1"] {
        let workspace = workspaces.join("default").join(agent);
        assert_eq!(names(&workspace.join("sessions")), set_of([]));
        // Created by the first box, which may have been killed before it was complete.
        let (projects, project) = (names(&workspace.join("projects")), workspace.join("projects/workspace"));
        assert!(projects.is_subset(&set_of(["workspace"])), "{projects:?}");
        let parts = names(&project);
        assert!(parts.is_subset(&set_of(["artifacts", "inputs", "work"])), "{parts:?}");
        assert_eq!(names(&project.join("inputs")), set_of([]));
        assert_eq!(names(&project.join("work")), set_of([]));
        // Output is kept as long as its exec is in the record.
        for exec in names(&project.join("artifacts")) {
            server.exec(&exec);
        }
    }
}
