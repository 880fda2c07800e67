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
use super::instance::ContainerName;

const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The state of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ContainerState {
    pub(crate) id: Option<ContainerId>,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
    /// Number of `oom` events.
    pub(crate) memory_kills: u64,
    /// Number of signals sent through docker, by us or by others.
    pub(crate) signals: u32,
    pub(crate) removed: bool,
}

/// A container's id: 64 hexadecimal digits that the daemon chose, so it is safe in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContainerId([u8; 64]);

impl ContainerId {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let digits: [u8; 64] = text.as_bytes().try_into().ok()?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(Self(digits))
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// The followed containers, by name.
type States = Arc<Mutex<BTreeMap<String, watch::Sender<ContainerState>>>>;

#[derive(Debug)]
pub(crate) struct Events {
    client: Client,
    owner_label: String,
    states: States,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Events {
    pub(crate) fn new(client: Client, owner_label: String) -> Self {
        Events { client, owner_label, states: States::default(), reader: Mutex::new(None) }
    }

    /// Starts to follow a container. Call before it is created.
    pub(crate) fn follow(&self, name: &ContainerName) -> Followed {
        let state = lock(&self.states).entry(name.to_string()).or_default().subscribe();
        let mut reader = self.reader.lock();
        if reader.as_ref().is_none_or(JoinHandle::is_finished) {
            let (client, label, states) = (self.client.clone(), self.owner_label.clone(), self.states.clone());
            *reader = Some(tokio::spawn(async move { read(client, label, states).await }));
        }
        Followed { name: name.clone(), state, states: self.states.clone() }
    }

    pub(crate) fn is_followed(&self, name: &str) -> bool {
        lock(&self.states).contains_key(name)
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
    state: watch::Receiver<ContainerState>,
    states: States,
}

impl Followed {
    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// A receiver of all further changes.
    pub(crate) fn watch(&self) -> watch::Receiver<ContainerState> {
        self.state.clone()
    }

    /// The state once `condition` accepts it, or the latest one after `timeout`.
    pub(crate) async fn until(
        &self,
        condition: impl FnMut(&ContainerState) -> bool,
        timeout: Duration,
    ) -> ContainerState {
        let mut state = self.state.clone();
        let _ = tokio::time::timeout(timeout, state.wait_for(condition)).await;
        *self.state.borrow()
    }

    pub(crate) async fn started(&self) {
        // Fails only without a sender, which is there until this is dropped.
        let _ = self.state.clone().wait_for(|state| state.started.is_some()).await;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        lock(&self.states).remove(self.name.as_str());
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
    Process::start(shell, Stdio::piped())
}

async fn read(client: Client, label: String, states: States) {
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
                    apply(&states, &event, Instant::now());
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

fn apply(states: &States, event: &Event, now: Instant) {
    let states = lock(states);
    let Some(sender) = states.get(&event.actor.attributes.name) else { return };
    sender.send_if_modified(|state| {
        let before = *state;
        state.id = state.id.or_else(|| ContainerId::read(&event.actor.id));
        match event.action.as_str() {
            "start" => state.started = state.started.or(Some(now)),
            "oom" => state.memory_kills = state.memory_kills.saturating_add(1),
            "kill" => state.signals = state.signals.saturating_add(1),
            "die" => state.ended = state.ended.or(Some(now)),
            "destroy" => state.removed = true,
            _ => {}
        }
        *state != before
    });
}

fn lock(states: &States) -> MutexGuard<'_, BTreeMap<String, watch::Sender<ContainerState>>> {
    states.lock()
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
    fn container_id_has_64_hexadecimal_digits() {
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(ContainerId::read(&good).map(|id| id.to_string()), Some(good.clone()));
        for bad in ["", "1", "../../../../etc", &good[1..], &format!("{good}0"), &good.replace('a', "/")] {
            assert_eq!(ContainerId::read(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn silent_client_ends_when_pipe_is_closed() {
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
    async fn event_changes_state_of_its_own_container_only() {
        let events = Events::new(Client { program: "/bin/false".into(), context: None }, "a=b".to_owned());
        let one = events.follow(&ContainerName::of_exec("e_1").unwrap());
        let other = events.follow(&ContainerName::of_exec("e_2").unwrap());
        for action in ["create", "attach", "start", "exec_create: x", "oom", "kill", "die", "destroy"] {
            apply(&events.states, &event(action, one.name().as_str()), Instant::now());
        }
        apply(&events.states, &event("start", "foreign"), Instant::now());
        let state = one.until(|state| state.removed, Duration::from_secs(10)).await;
        assert!(state.started.is_some() && state.ended.is_some());
        assert_eq!((state.memory_kills, state.signals), (1, 1));
        assert_eq!(state.id, None, "a malformed id is ignored");
        assert_eq!(*other.state.borrow(), ContainerState::default());
        assert!(events.is_followed("ringwall-e_1"));
        drop(one);
        assert!(!events.is_followed("ringwall-e_1") && events.is_followed("ringwall-e_2"));
    }
}
