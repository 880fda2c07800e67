//! Finds out whether an image has `python` or only `python3`, without running anything of it.
//!
//! A container is created but never started, and `docker cp` is tried for each candidate path. The
//! answer is cached by image id, unless the request has a PATH of its own. Without a clear answer
//! the command keeps its name, and the box reports that it does not exist.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_policy::{Grant, Root};

use super::cleanup;
use super::client::CallFailure;
use super::events::Followed;
use super::instance::ContainerName;
use super::launch::Shared;
use crate::box_layout::SEARCH;
use crate::host::python::{ASKED, INSTALLED, Python};

const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Prints the id and then the variables, one per line.
const INSPECTION: &str = "--format={{.Id}}{{range .Config.Env}}\n{{.}}{{end}}";
/// Part of the daemon's error for a missing file.
const NOT_THERE: &str = "Could not find the file";

/// Cached answers, by image id.
pub(crate) type Pythons = Mutex<HashMap<String, Python>>;

/// The name under which the granted command is looked up.
pub(crate) async fn choose(shared: &Arc<Shared>, grant: &Grant, exec_id: &str) -> Python {
    let Root::Docker(image) = grant.root() else { return Python::AsNamed };
    if grant.argv().first().is_none_or(|name| name != ASKED) {
        return Python::AsNamed;
    }
    let inspected = shared.client.call(["image", "inspect", INSPECTION, image.as_str()], ANSWERED_WITHIN).await;
    let Ok(inspected) = inspected else { return Python::AsNamed };
    let mut lines = inspected.lines();
    let id = lines.next().unwrap_or_default().to_owned();
    let requested = match grant.env().get("PATH").map(|path| path.expose().to_str()) {
        Some(None) => return Python::AsNamed,
        Some(Some(path)) => Some(path),
        None => None,
    };
    let known = || shared.pythons.lock().get(&id).copied();
    if let (None, Some(known)) = (requested, known()) {
        return known;
    }
    let search = requested.or_else(|| lines.find_map(|line| line.strip_prefix("PATH="))).unwrap_or(SEARCH);
    let Some(found) = look(shared, &id, exec_id, search).await else { return Python::AsNamed };
    if requested.is_none() {
        shared.pythons.lock().insert(id, found);
    }
    found
}

async fn look(shared: &Arc<Shared>, image: &str, exec_id: &str, search: &str) -> Option<Python> {
    let container = CreatedContainer::make(shared, image, exec_id).await?;
    let directories: Vec<&str> =
        search.split(':').filter(|one| one.starts_with('/') && !one.chars().any(char::is_control)).collect();
    for (program, python) in [(ASKED, Python::AsNamed), (INSTALLED, Python::Python3)] {
        for directory in &directories {
            if container.has(&format!("{directory}/{program}")).await? {
                return Some(python);
            }
        }
    }
    Some(Python::AsNamed)
}

/// A container that is never started. Removed on drop.
#[derive(Debug)]
struct CreatedContainer {
    shared: Arc<Shared>,
    /// A sweep removes our containers that are not followed.
    followed: Followed,
}

impl CreatedContainer {
    async fn make(shared: &Arc<Shared>, image: &str, exec_id: &str) -> Option<Self> {
        let name = ContainerName::of_exec(&format!("look-{exec_id}")).ok()?;
        let mut words = vec!["create".to_owned(), "--pull=never".to_owned(), "--network=none".to_owned()];
        words.push(format!("--name={name}"));
        words.extend(shared.instance.labels(&name).map(|label| format!("--label={label}")));
        words.extend(["--entrypoint=", "--no-healthcheck", "--", image, ASKED].map(str::to_owned));
        let followed = shared.events.follow(&name);
        shared.unremoved.fetch_add(1, Ordering::AcqRel);
        let container = CreatedContainer { shared: shared.clone(), followed };
        shared.client.call(words, ANSWERED_WITHIN).await.ok()?;
        Some(container)
    }

    /// `None` without a clear answer.
    async fn has(&self, path: &str) -> Option<bool> {
        let source = format!("{}:{path}", self.followed.name());
        read_answer(self.shared.client.call(["cp", &source, "-"], ANSWERED_WITHIN).await)
    }
}

/// If the file is larger than the limit of an answer, the client ends without an error text; then
/// the file exists.
fn read_answer(answer: Result<String, CallFailure>) -> Option<bool> {
    match answer {
        Ok(_) => Some(true),
        Err(CallFailure::Refused(words)) if words.is_empty() => Some(true),
        Err(CallFailure::Refused(words)) if words.contains(NOT_THERE) => Some(false),
        Err(_) => None,
    }
}

impl Drop for CreatedContainer {
    fn drop(&mut self) {
        cleanup::remove_later(&self.shared, self.followed.name().clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_without_daemon_error_about_file_is_unclear() {
        let refused = |words: &str| Err(CallFailure::Refused(words.to_owned()));
        assert_eq!(read_answer(Ok(String::new())), Some(true));
        assert_eq!(read_answer(refused("")), Some(true));
        let words = "Error response from daemon: Could not find the file /bin/python in container x";
        assert_eq!(read_answer(refused(words)), Some(false));
        assert_eq!(read_answer(refused("Error response from daemon: No such container: x")), None);
        assert_eq!(read_answer(Err(CallFailure::TooLate(ANSWERED_WITHIN))), None);
    }
}
