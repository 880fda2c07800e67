//! Builds the default image from this machine's package mirror; no registry is used.
//!
//! `debootstrap` installs a minimal system into a scratch directory. It runs in its own mount
//! namespace, so its mounts disappear with it. Then a user and the name `python` are added, and
//! docker imports the result. A second build replaces the image.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ringwall_policy::DockerImage;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::client::{Process, command, in_short};
use super::launch::Docker;
use crate::box_layout;
use crate::error::Error;
use crate::image::erase::erase;
use crate::process::find_in_path;

/// The image of docker boxes if none is configured.
pub const DEFAULT_IMAGE: &str = "ringwall/sandbox:latest";

/// Installed in addition to debootstrap's `minbase`.
const PACKAGES: &str = "bash,coreutils,findutils,jq,git,python3";
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy"];
const QUESTION: Duration = Duration::from_secs(9);
const REMOVALS: u32 = 20;

/// Progress of a build, for a progress bar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildStep {
    /// A line of debootstrap's output.
    Install(String),
    Pack,
    Import,
}

impl Docker {
    /// Builds the image and returns its id. Needs root; takes about a minute.
    pub async fn build_image(
        &self,
        image: &DockerImage,
        data: &Path,
        progress: &mut (dyn FnMut(BuildStep) + Send),
    ) -> Result<String, Error> {
        let fail = |step, words: &str| Error::BuildDockerImage { step, words: words.to_owned() };
        let client = self.client()?;
        if !rustix::process::geteuid().is_root() {
            return Err(fail("install a system", "this needs root; run it with sudo"));
        }
        let debootstrap = find_in_path("debootstrap")
            .ok_or_else(|| fail("install a system", "debootstrap is missing; apt-get install debootstrap"))?;
        let mirror = find_mirror()
            .ok_or_else(|| fail("find packages", "/etc/apt names no archive of this machine's own release"))?;
        if let Err(why) = self.probe().await.daemon {
            return Err(super::launch::unavailable(super::Runtime::Default, why));
        }
        let old = client.call(["image", "inspect", "--format={{.Id}}", image.as_str()], QUESTION).await.ok();

        let scratch = Scratch::new(data).map_err(|error| fail("make a directory", &error.to_string()))?;
        let root = scratch.path.join("root");
        install(&debootstrap, &mirror, &root, progress).await?;
        furnish(&root).map_err(|error| fail("add the user", &error.to_string()))?;
        progress(BuildStep::Pack);
        let archive = scratch.path.join("image.tar");
        let mut tar = command(Path::new("tar"));
        tar.args(["--create", "--numeric-owner", "--one-file-system", "--exclude=./var/cache/apt/archives/*.deb"]);
        tar.args(["--exclude=./var/lib/apt/lists/*", "--exclude=./dev/*"]).arg("--file").arg(&archive);
        tar.arg("--directory").arg(&root).arg(".");
        run(tar, "pack the system", &mut |_| {}).await?;
        progress(BuildStep::Import);
        let mut import = command(&client.program);
        import.args(client.leading_words()).args(["import", "--change=CMD [\"bash\"]"]).arg(&archive);
        import.arg(image.as_str());
        let id = run(import, "import the archive", &mut |_| {}).await?.trim().to_owned();
        if let Some(old) = old.map(|old| old.trim().to_owned()).filter(|old| *old != id) {
            // The replaced image has no name any more. Removal fails if a container still uses it.
            let _ = client.call(["image", "rm", &old], QUESTION).await;
        }
        Ok(id)
    }
}

async fn install(
    debootstrap: &Path,
    mirror: &Mirror,
    root: &Path,
    progress: &mut (dyn FnMut(BuildStep) + Send),
) -> Result<(), Error> {
    let mut installer = command(Path::new("unshare"));
    installer.args(["--mount", "--propagation=private", "--"]).arg(debootstrap);
    installer.args(["--variant=minbase", &format!("--include={PACKAGES}")]);
    installer.args(mirror.keys.iter().map(|keys| format!("--keyring={keys}")));
    installer.arg(&mirror.suite).arg(root).arg(&mirror.address);
    installer.envs(PROXIES.iter().filter_map(|key| Some((key, std::env::var_os(key)?))));
    let mut show = |line: &str| progress(BuildStep::Install(line.trim_start_matches("I: ").to_owned()));
    run(installer, "install a system", &mut show).await.map(drop)
}

/// Runs a program to its end, passes each line of stdout to `show` and returns the last one.
async fn run(
    program: tokio::process::Command,
    step: &'static str,
    show: &mut (dyn FnMut(&str) + Send),
) -> Result<String, Error> {
    const MAX_STDERR_LEN: u64 = 16 * 1024;
    let fail = |words: String| Error::BuildDockerImage { step, words };
    let name = program.as_std().get_program().to_string_lossy().into_owned();
    let started = Process::start(program, Stdio::null());
    let mut process = started.map_err(|error| fail(format!("{name} could not be started: {error}")))?;
    let Some((_, stdout, stderr)) = process.take_streams() else { return Err(fail(format!("{name} has no output"))) };
    let mut last = String::new();
    let mut lines = BufReader::new(stdout).lines();
    let read_lines = async {
        while let Ok(Some(line)) = lines.next_line().await {
            show(&line);
            last = line;
        }
    };
    let mut errors = Vec::new();
    let mut beginning = stderr.take(MAX_STDERR_LEN);
    let read_errors = async {
        let _ = beginning.read_to_end(&mut errors).await;
        // Reads and discards the rest; otherwise a program with long error output would block on
        // the full pipe.
        tokio::io::copy(beginning.get_mut(), &mut tokio::io::sink()).await
    };
    let (_, _) = tokio::join!(read_lines, read_errors);
    let status = process.wait().await.map_err(|error| fail(error.to_string()))?;
    if status.success() {
        return Ok(last);
    }
    // debootstrap prints its errors to stdout.
    let errors = in_short(&String::from_utf8_lossy(&errors));
    Err(fail(format!("{name} ended with {status}: {}", if errors.is_empty() { last } else { errors })))
}

/// Adds what a box needs besides the packages: the user, its group and home, and `python`.
fn furnish(root: &Path) -> std::io::Result<()> {
    let (user, uid, gid, home) = (box_layout::USER, box_layout::UID, box_layout::GID, box_layout::HOME);
    append(&root.join("etc/passwd"), &format!("{user}:x:{uid}:{gid}:{user}:{home}:/bin/bash\n"))?;
    append(&root.join("etc/group"), &format!("{user}:x:{gid}:\n"))?;
    let home = root.join(home.trim_start_matches('/'));
    DirBuilder::new().mode(0o755).create(&home)?;
    let handle = rustix::fs::open(&home, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fchown(&handle, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    match std::os::unix::fs::symlink("python3", root.join("usr/bin/python")) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

/// A directory that is deleted on drop.
#[derive(Debug)]
struct Scratch {
    parent: OwnedFd,
    name: String,
    path: PathBuf,
}

impl Scratch {
    fn new(data: &Path) -> std::io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(data)?;
        let parent = rustix::fs::open(data, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let name = format!("docker-image.{}", std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim());
        // Mode 0700 keeps other users out of `root` inside, whose mode is that of a `/`.
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o700))?;
        let path = data.join(&name);
        Ok(Scratch { parent, name, path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A program that was just killed may still create a file.
        for _ in 0..REMOVALS {
            match erase(&self.parent, &self.name) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => return,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// A package archive for debootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    address: String,
    suite: String,
    /// Path of the key ring, if the entry names a file.
    keys: Option<String>,
}

/// The package mirror of this machine: the first suitable entry of apt's sources, in both of apt's
/// formats. There is no default mirror.
fn find_mirror() -> Option<Mirror> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = codename(&release)?;
    let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
    let parts = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut parts: Vec<_> = parts.map(|entry| entry.path()).collect();
    parts.sort();
    files.extend(parts);
    files.iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        let entries = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines(&text),
            Some("sources") => paragraphs(&text),
            _ => return None,
        };
        choose(entries, &codename)
    })
}

/// An entry of apt's sources, which may name several suites.
#[derive(Debug, Default)]
struct Entry {
    types: Vec<String>,
    address: String,
    suites: Vec<String>,
    components: Vec<String>,
    keys: Option<String>,
}

/// The first entry with the release itself and `main`; updates and backports alone cannot make a
/// root file system.
fn choose(entries: Vec<Entry>, codename: &str) -> Option<Mirror> {
    let has = |list: &[String], word: &str| list.iter().any(|one| one == word);
    let fits =
        |entry: &Entry| has(&entry.types, "deb") && has(&entry.suites, codename) && has(&entry.components, "main");
    let entry = entries.into_iter().find(fits)?;
    let keys = entry.keys.filter(|keys| keys.starts_with('/'));
    Some(Mirror { address: entry.address, suite: codename.to_owned(), keys })
}

fn codename(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let value = value.trim_matches(['"', '\'']);
    (!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| value.to_owned())
}

/// Reads `deb [signed-by=…] ADDRESS SUITE COMPONENT…`.
fn lines(text: &str) -> Vec<Entry> {
    let entries = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let (options, line) = match line.split_once('[').zip(line.split_once(']')) {
            Some(((before, _), (inside, after))) => {
                (inside.split_once('[').map_or("", |(_, options)| options), format!("{before}{after}"))
            }
            None => ("", line.to_owned()),
        };
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        Some(Entry {
            types: vec![words.next()?],
            address: words.next()?,
            suites: vec![words.next()?],
            components: words.collect(),
            keys: options.split_ascii_whitespace().find_map(|one| one.strip_prefix("signed-by=")).map(str::to_owned),
        })
    });
    entries.collect()
}

/// Reads `Types: deb`, `URIs: ADDRESS` and so on, with an empty line between entries.
fn paragraphs(text: &str) -> Vec<Entry> {
    let mut entries = vec![Entry::default()];
    for line in text.lines() {
        if line.trim().is_empty() {
            entries.push(Entry::default());
            continue;
        }
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with(['#', ' ', '\t'])) else { continue };
        let words = || value.split_ascii_whitespace().map(str::to_owned);
        if let Some(entry) = entries.last_mut() {
            match key.to_ascii_lowercase().as_str() {
                "types" => entry.types = words().collect(),
                "uris" => entry.address = words().next().unwrap_or_default(),
                "suites" => entry.suites = words().collect(),
                "components" => entry.components = words().collect(),
                "signed-by" => entry.keys = words().next(),
                _ => {}
            }
        }
    }
    entries.retain(|entry| !entry.address.is_empty());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_program_is_reported_with_its_output() {
        let mut shown = Vec::new();
        let mut shell = command(Path::new("/bin/sh"));
        shell.args(["-c", "echo one; echo two"]);
        let last = run(shell, "try", &mut |line| shown.push(line.to_owned())).await.unwrap();
        assert_eq!((last.as_str(), shown.as_slice()), ("two", &["one".to_owned(), "two".to_owned()][..]));
        for script in ["echo no mirror >&2; exit 3", "echo no mirror; exit 3"] {
            let mut shell = command(Path::new("/bin/sh"));
            shell.args(["-c", script]);
            let error = run(shell, "try", &mut |_| {}).await.unwrap_err().to_string();
            assert!(error.starts_with("could not try") && error.ends_with("no mirror"), "{error}");
        }
    }

    #[tokio::test]
    async fn long_stderr_does_not_block_program() {
        let mut shell = command(Path::new("/bin/sh"));
        shell.args(["-c", "head -c 1000000 /dev/zero >&2; echo done"]);
        let ended = tokio::time::timeout(Duration::from_secs(30), run(shell, "try", &mut |_| {})).await;
        assert_eq!(ended.expect("the program ended, because its stderr was read").unwrap(), "done");
    }

    #[test]
    fn scratch_directory_is_deleted_on_drop() {
        let data = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(data.path()).unwrap();
        std::fs::create_dir_all(scratch.path.join("root/a/b")).unwrap();
        std::fs::write(scratch.path.join("root/a/b/c"), "").unwrap();
        drop(scratch);
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);
    }

    fn mirror(address: &str, keys: Option<&str>) -> Option<Mirror> {
        Some(Mirror { address: address.to_owned(), suite: "tree".to_owned(), keys: keys.map(str::to_owned) })
    }

    #[test]
    fn both_formats_of_apt_are_read() {
        let text = "# deb http://old.test/d tree main\ndeb-src http://src.test/d tree main\n\
            deb http://more.test/d tree-updates main\n\
            deb [arch=amd64 signed-by=/keys/a.gpg] http://a.test/d tree main extra # mine\n";
        assert_eq!(choose(lines(text), "tree"), mirror("http://a.test/d", Some("/keys/a.gpg")));
        let text = "Types: deb\nURIs: http://tools.test/x\nSuites: other\nComponents: main\n\n\
            Types: deb deb-src\n# a note: here\nURIs: http://b.test/d http://c.test/d\nSuites: tree tree-updates\n\
            Components: main\nSigned-By:\n -----BEGIN\n URIs: no\n";
        assert_eq!(choose(paragraphs(text), "tree"), mirror("http://b.test/d", None));
        assert_eq!(choose(paragraphs(text), "stone"), None);
        assert_eq!(choose(lines("deb\ndeb x\n[\n]"), "tree"), None);
    }

    #[test]
    fn codename_is_alphanumeric() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=\"tree\"\n").as_deref(), Some("tree"));
        for bad in ["", "VERSION_CODENAME=", "VERSION_CODENAME=--x"] {
            assert_eq!(codename(bad), None, "{bad}");
        }
    }
}
