//! Follows the state of all our containers with one `docker events`.
//!
//! A container that removes itself cannot be asked afterwards whether it ran, ran out of memory or
//! was signalled. Only the kinds of events, the container's id and its name are used; the other
//! attributes are mixed with labels from the image. A stream that breaks is restarted and first
//! replays the events that the daemon remembers, so none is lost while the daemon lives. A
//! restarted daemon remembers none, and then the end of a container is not reported.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{Client, Process, command};
use super::name::ContainerName;

const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The state of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ContainerState {
    pub(crate) id: Option<ContainerId>,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
    pub(crate) memory: Memory,
    /// Number of `oom` events.
    pub(crate) memory_kills: u64,
    /// Number of signals sent through docker, by us or by others.
    pub(crate) signals: u32,
    pub(crate) removed: bool,
}

/// A container's id: 64 hexadecimal digits that the daemon chose, so it is safe in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContainerId([u8; 32]);

impl ContainerId {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let is_one = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        for (index, byte) in bytes.iter_mut().enumerate().filter(|_| is_one) {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        is_one.then_some(Self(bytes))
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Memory {
    #[default]
    Enough,
    RanOut,
}

type Stories = Arc<Mutex<BTreeMap<ContainerName, watch::Sender<ContainerState>>>>;

#[derive(Debug)]
pub(crate) struct Events {
    client: Client,
    owner_label: String,
    stories: Stories,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Events {
    pub(crate) fn new(client: Client, owner_label: String) -> Self {
        Events { client, owner_label, stories: Stories::default(), reader: Mutex::new(None) }
    }

    /// Starts to follow a container. Call before it is created.
    pub(crate) fn follow(&self, name: &ContainerName) -> Followed {
        let container_state = lock(&self.stories).entry(name.clone()).or_default().subscribe();
        let mut reader = self.reader.lock();
        if reader.as_ref().is_none_or(JoinHandle::is_finished) {
            let (client, label, stories) = (self.client.clone(), self.owner_label.clone(), self.stories.clone());
            *reader = Some(tokio::spawn(async move { read(client, label, stories).await }));
        }
        Followed { name: name.clone(), container_state, stories: self.stories.clone() }
    }

    pub(crate) fn is_followed(&self, name: &str) -> bool {
        lock(&self.stories).keys().any(|followed| followed.as_str() == name)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get_mut() {
            reader.abort();
        }
    }
}

/// The state of one container, followed until this is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    name: ContainerName,
    container_state: watch::Receiver<ContainerState>,
    stories: Stories,
}

impl Followed {
    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// A receiver of all further changes.
    pub(crate) fn watch(&self) -> watch::Receiver<ContainerState> {
        self.container_state.clone()
    }

    /// The state once `told` accepts it, or the latest one after `timeout`.
    pub(crate) async fn until(&self, told: impl FnMut(&ContainerState) -> bool, timeout: Duration) -> ContainerState {
        let mut container_state = self.container_state.clone();
        let _ = tokio::time::timeout(timeout, container_state.wait_for(told)).await;
        *self.container_state.borrow()
    }

    pub(crate) async fn started(&self) {
        let mut container_state = self.container_state.clone();
        if container_state.wait_for(|container_state| container_state.started.is_some()).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        lock(&self.stories).remove(&self.name);
    }
}

/// Starts a client that ends when this process does. A client that follows events would notice a
/// closed stdout only at the next event, so a shell reads a pipe that only we hold open, and kills
/// the client at its end. The shell closes its copies of the client's stdout and stderr, so that
/// their end shows when the client ends.
pub(super) fn start_tied<'a>(client: &Client, words: impl Iterator<Item = &'a str>) -> std::io::Result<Process> {
    const SCRIPT: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
exec >&- 2>&-
read -r nothing <&3
kill -9 $!
"#;
    let mut shell = command(Path::new("/bin/sh"));
    shell.args(["-c", SCRIPT, "ringwall-events"]).arg(&client.program);
    shell.args(client.leading_words()).args(words);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Process::start(shell)
}

async fn read(client: Client, label: String, stories: Stories) {
    loop {
        // `--since` replays what the daemon remembers: a container may be older than this stream.
        let words = ["events", "--since=1", "--filter=type=container", "--format={{json .}}"];
        let filter = format!("--filter=label={label}");
        let words = words.into_iter().chain([filter.as_str()]);
        if let Ok(mut process) = start_tied(&client, words)
            // The kernel closes it when this process ends, also by SIGKILL.
            && let Some((_alive, stdout, _)) = process.take_streams()
        {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(event) = serde_json::from_str::<Event>(&line) {
                    tell(&stories, &event, Instant::now());
                }
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    actor: Actor,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Actor {
    #[serde(rename = "ID")]
    id: String,
    attributes: Attributes,
}

/// The daemon writes `name` after it copied the labels, so no label can replace it.
#[derive(Debug, Deserialize)]
struct Attributes {
    name: String,
}

fn tell(stories: &Stories, event: &Event, now: Instant) {
    let stories = lock(stories);
    let found = stories.iter().find(|(name, _)| name.as_str() == event.actor.attributes.name);
    let Some((_, container_state)) = found else { return };
    container_state.send_if_modified(|container_state| {
        let before = *container_state;
        container_state.id = container_state.id.or_else(|| ContainerId::read(&event.actor.id));
        match event.action.as_str() {
            "start" => container_state.started = container_state.started.or(Some(now)),
            "oom" => {
                container_state.memory = Memory::RanOut;
                container_state.memory_kills = container_state.memory_kills.saturating_add(1);
            }
            "kill" => container_state.signals = container_state.signals.saturating_add(1),
            "die" => container_state.ended = container_state.ended.or(Some(now)),
            "destroy" => container_state.removed = true,
            _ => {}
        }
        *container_state != before
    });
}

fn lock(stories: &Stories) -> MutexGuard<'_, BTreeMap<ContainerName, watch::Sender<ContainerState>>> {
    stories.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: &str, name: &str) -> Event {
        let text = format!(
            r#"{{"Action":"{action}","Actor":{{"ID":"1","Attributes":{{"exitCode":"0","name":"{name}"}}}},"time":1}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_id_has_one_form() {
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(ContainerId::read(&good).map(|id| id.to_string()), Some(good.clone()));
        for bad in ["", "1", "../../../../etc", &good[1..], &format!("{good}0"), &good.replace('a', "/")] {
            assert_eq!(ContainerId::read(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_client_that_hears_nothing_ends_with_us() {
        use tokio::io::AsyncReadExt;
        let client = Client { program: "/bin/sh".into(), context: None };
        let mut process = start_tied(&client, ["-c", "echo begun; exec sleep 1000"].into_iter()).unwrap();
        let (alive, mut stdout, _) = process.take_streams().unwrap();
        let mut begun = [0; 6];
        stdout.read_exact(&mut begun).await.unwrap();
        drop(alive);
        assert_eq!(stdout.read_to_end(&mut Vec::new()).await.unwrap(), 0, "every writer has ended");
        process.wait().await.unwrap();
        let mut process = start_tied(&client, ["-c", "exit 3"].into_iter()).unwrap();
        let (_alive, mut stdout, _) = process.take_streams().unwrap();
        assert_eq!(
            stdout.read_to_end(&mut Vec::new()).await.unwrap(),
            0,
            "the client's end is seen although the shell still waits"
        );
    }

    #[tokio::test]
    async fn a_story_is_told_of_its_own_container_alone() {
        let events = Events::new(Client { program: "/bin/false".into(), context: None }, "a=b".to_owned());
        let one = events.follow(&ContainerName::of_exec("e_1").unwrap());
        let other = events.follow(&ContainerName::of_exec("e_2").unwrap());
        for action in ["create", "attach", "start", "exec_create: x", "oom", "kill", "die", "destroy"] {
            tell(&events.stories, &event(action, one.name().as_str()), Instant::now());
        }
        tell(&events.stories, &event("start", "foreign"), Instant::now());
        let container_state = one.until(|container_state| container_state.removed, Duration::from_secs(10)).await;
        assert!(container_state.started.is_some() && container_state.ended.is_some());
        assert_eq!((container_state.memory, container_state.signals), (Memory::RanOut, 1));
        assert_eq!(container_state.id, None, "a malformed id is ignored");
        assert_eq!(*other.container_state.borrow(), ContainerState::default());
        assert!(events.is_followed("ringwall-e_1"));
        drop(one);
        assert!(!events.is_followed("ringwall-e_1") && events.is_followed("ringwall-e_2"));
    }
}
