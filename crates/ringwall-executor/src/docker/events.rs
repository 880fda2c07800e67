//! What the daemon says of our containers: one `docker events` for all of them.
//!
//! A container that removes itself cannot be asked afterwards whether it ran, ran out of memory or was ended, so its
//! story is followed while it happens. Only the kinds of events count: their other attributes mix with labels that an
//! image's maker chose. A stream that breaks begins again and is first told what the daemon remembers, so nothing is
//! lost that a living daemon knows; a daemon that died knows nothing, and then there is no end to read of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{Client, Process, command};
use super::name::ContainerName;

const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What is known of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) id: Option<ContainerId>,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
    pub(crate) memory: Memory,
    /// How often that was told.
    pub(crate) memory_kills: u64,
    /// Somebody sent a signal through docker.
    pub(crate) signals: u32,
    pub(crate) removed: bool,
    /// Something was done to it that starting it does not take.
    pub(crate) is_touched: bool,
}

/// The daemon's own name for a container: 64 hexadecimal digits, which nobody else has a say in.
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

type Stories = Arc<Mutex<BTreeMap<ContainerName, watch::Sender<Story>>>>;

#[derive(Debug)]
pub(crate) struct Events {
    client: Client,
    maker_label: String,
    stories: Stories,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Events {
    pub(crate) fn new(client: Client, maker_label: String) -> Self {
        Events { client, maker_label, stories: Stories::default(), reader: Mutex::new(None) }
    }

    /// Follows a container that is about to be made.
    pub(crate) fn follow(&self, name: &ContainerName) -> Followed {
        let story = lock(&self.stories).entry(name.clone()).or_default().subscribe();
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.as_ref().is_none_or(JoinHandle::is_finished) {
            let (client, label, stories) = (self.client.clone(), self.maker_label.clone(), self.stories.clone());
            *reader = Some(tokio::spawn(async move { read(client, label, stories).await }));
        }
        Followed { name: name.clone(), story, stories: self.stories.clone() }
    }

    pub(crate) fn is_followed(&self, name: &str) -> bool {
        lock(&self.stories).keys().any(|followed| followed.as_str() == name)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner) {
            reader.abort();
        }
    }
}

/// A container that is followed until this is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    name: ContainerName,
    story: watch::Receiver<Story>,
    stories: Stories,
}

impl Followed {
    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// The story as it goes on.
    pub(crate) fn watch(&self) -> watch::Receiver<Story> {
        self.story.clone()
    }

    /// The story when this part of it is told, or what there is of it when patience ends.
    pub(crate) async fn until(&self, told: impl FnMut(&Story) -> bool, patience: Duration) -> Story {
        let mut story = self.story.clone();
        let _ = tokio::time::timeout(patience, story.wait_for(told)).await;
        *self.story.borrow()
    }

    pub(crate) async fn started(&self) {
        let mut story = self.story.clone();
        if story.wait_for(|story| story.started.is_some()).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        lock(&self.stories).remove(&self.name);
    }
}

/// A client that ends with us. One that follows events would otherwise wait for the next one of a maker that is dead: so
/// a shell waits for the end of a pipe that only we hold open. It holds nothing of the client's, whose end shows at once.
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
        // Whatever the daemon remembers comes first: a container may be older than this stream.
        let words = ["events", "--since=1", "--filter=type=container", "--format={{json .}}"];
        let filter = format!("--filter=label={label}");
        let words = words.into_iter().chain([filter.as_str()]);
        if let Ok(mut process) = start_tied(&client, words)
            // Closed when this process ends, however it does.
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

/// The daemon sets the name after it copied the labels.
#[derive(Debug, Deserialize)]
struct Attributes {
    name: String,
}

fn tell(stories: &Stories, event: &Event, now: Instant) {
    let stories = lock(stories);
    let found = stories.iter().find(|(name, _)| name.as_str() == event.actor.attributes.name);
    let Some((_, story)) = found else { return };
    story.send_if_modified(|story| {
        let before = *story;
        story.id = story.id.or_else(|| ContainerId::read(&event.actor.id));
        story.is_touched |= !["create", "attach", "start"].contains(&event.action.as_str());
        match event.action.as_str() {
            "start" => story.started = story.started.or(Some(now)),
            "oom" => {
                story.memory = Memory::RanOut;
                story.memory_kills = story.memory_kills.saturating_add(1);
            }
            "kill" => story.signals = story.signals.saturating_add(1),
            "die" => story.ended = story.ended.or(Some(now)),
            "destroy" => story.removed = true,
            _ => {}
        }
        *story != before
    });
}

fn lock(stories: &Stories) -> MutexGuard<'_, BTreeMap<ContainerName, watch::Sender<Story>>> {
    stories.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(stdout.read_to_end(&mut Vec::new()).await.unwrap(), 0, "nobody writes any more");
        process.wait().await.unwrap();
        let mut process = start_tied(&client, ["-c", "exit 3"].into_iter()).unwrap();
        let (_alive, mut stdout, _) = process.take_streams().unwrap();
        assert_eq!(
            stdout.read_to_end(&mut Vec::new()).await.unwrap(),
            0,
            "its own end shows, although the shell waits"
        );
    }

    #[tokio::test]
    async fn a_story_is_told_of_its_own_container_alone() {
        let events = Events::new(Client { program: "/bin/false".into(), context: None }, "a=b".to_owned());
        let one = events.follow(&ContainerName::of_exec("e_1").unwrap());
        let other = events.follow(&ContainerName::of_exec("e_2").unwrap());
        for action in ["create", "attach", "start"] {
            tell(&events.stories, &event(action, one.name().as_str()), Instant::now());
        }
        assert!(!one.story.borrow().is_touched, "it was only started");
        for action in ["exec_create: x", "oom", "kill", "die", "destroy"] {
            tell(&events.stories, &event(action, one.name().as_str()), Instant::now());
            assert!(one.story.borrow().is_touched, "{action}");
        }
        tell(&events.stories, &event("start", "foreign"), Instant::now());
        let story = one.until(|story| story.removed, Duration::from_secs(10)).await;
        assert!(story.started.is_some() && story.ended.is_some());
        assert_eq!((story.memory, story.signals), (Memory::RanOut, 1));
        assert_eq!(story.id, None, "an id of another form names nothing");
        assert_eq!(*other.story.borrow(), Story::default());
        assert!(events.is_followed("ringwall-e_1"));
        drop(one);
        assert!(!events.is_followed("ringwall-e_1") && events.is_followed("ringwall-e_2"));
    }
}
