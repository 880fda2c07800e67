//! What can be read without running anything: the agent's skills and files, a session's files, and what execs left.
//!
//! A resource's name says what it is and never whose: that is the connection's. Listed is what is there now and has a name
//! that is known beforehand; what execs left is named in their results.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ringwall_service::{AgentPath, Error, ExecId, Service, Stream};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use super::files::{read_whole, whole};
use super::who::Who;

const SCHEME: &str = "ringwall://";
/// What stands for itself in the path of a resource.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Of an exec's output in one resource.
const MAX_BYTES: u64 = 8 << 20;
/// In one page of the list.
const PAGE: usize = 500;

pub(super) fn artifact(exec_id: &ExecId, path: &str) -> String {
    format!("{SCHEME}execs/{exec_id}/artifacts/{}", encode(path))
}

fn encode(path: &str) -> String {
    utf8_percent_encode(path, ENCODED).to_string()
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, words: &str| {
        ResourceTemplate::new(format!("{SCHEME}{uri}"), name).with_description(words)
    };
    vec![
        template("files/{+path}", "files", "A file of the agent's own"),
        template("skills/{skill}/{+path}", "skills", "A file of a skill of the agent's; SKILL.md says what it is for"),
        template("sessions/{session_id}/{+path}", "sessions", "A file of a session's workspace"),
        template("execs/{exec_id}/artifacts/{+path}", "artifacts", "A file that an exec left"),
        template("execs/{exec_id}/stdout", "stdout", "What an exec printed"),
        template("execs/{exec_id}/stderr", "stderr", "What an exec printed as errors"),
    ]
}

/// One page of what is there, and where the next one begins.
pub(super) async fn list(
    service: &Service,
    who: &Who,
    cursor: Option<&str>,
) -> Result<(Vec<Resource>, Option<String>), Error> {
    let begin: usize = match cursor {
        Some(cursor) => cursor.parse().map_err(|_| invalid("that is not a cursor that a page has given"))?,
        None => 0,
    };
    let mut all: Vec<Resource> = Vec::new();
    // Whoever lists skills also puts right what can be: each then has its SKILL.md in its place.
    service.agent_skills(&who.principal, &who.address()).await?;
    for section in ["skills", "files"] {
        let files = service.list_files(&who.principal, &who.address(), AgentPath::parse(section)?).await?;
        all.extend(files.whole().into_iter().map(of_agent));
    }
    let session = who.session(None);
    let address = who.session_address(None);
    match service.list_session_files(&who.principal, &address, AgentPath::in_session("")?).await {
        Ok(paths) => all.extend(paths.into_iter().map(|path| {
            let uri = format!("{SCHEME}sessions/{}/{}", encode(&session), encode(&path));
            Resource::new(uri, path)
        })),
        // Nobody has used it yet.
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let next = begin.saturating_add(PAGE);
    let following = (next < all.len()).then(|| next.to_string());
    Ok((all.into_iter().skip(begin).take(PAGE).collect(), following))
}

fn of_agent(path: String) -> Resource {
    let uri = format!("{SCHEME}{}", encode(&path));
    let skill = path.strip_prefix("skills/").and_then(|path| path.strip_suffix("/SKILL.md"));
    match skill.filter(|skill| !skill.contains('/')).map(str::to_owned) {
        Some(skill) => {
            let words = format!("What the skill {skill} is for, and how it is used");
            Resource::new(uri, path).with_title(skill).with_description(words).with_mime_type("text/markdown")
        }
        None => Resource::new(uri, path),
    }
}

/// The content of one. What cannot be named is not there.
pub(super) async fn read(service: &Service, who: &Who, uri: &str) -> Result<ResourceContents, Error> {
    let missing = || Error::NotFound { what: format!("resource {uri}") };
    let path = uri.strip_prefix(SCHEME).ok_or_else(missing)?;
    let path = percent_decode_str(path).decode_utf8().map_err(|_| missing())?;
    let (kind, rest) = path.split_once('/').ok_or_else(missing)?;
    let bytes = match kind {
        "files" | "skills" => {
            let path = AgentPath::parse(&path)?;
            whole(service.download(&who.principal, &who.address(), path).await?, uri).await?
        }
        "sessions" => {
            let (session, path) = rest.split_once('/').ok_or_else(missing)?;
            let address = who.session_address(Some(session.to_owned()));
            let path = AgentPath::in_session(path)?;
            whole(service.download_session_file(&who.principal, &address, path).await?, uri).await?
        }
        "execs" => {
            let (exec_id, rest) = rest.split_once('/').ok_or_else(missing)?;
            let exec_id: ExecId = exec_id.parse().map_err(|_| missing())?;
            match (rest, rest.strip_prefix("artifacts/")) {
                ("stdout", _) => service.output(&who.principal, &exec_id, Stream::Stdout, 0, MAX_BYTES).await?.bytes,
                ("stderr", _) => service.output(&who.principal, &exec_id, Stream::Stderr, 0, MAX_BYTES).await?.bytes,
                (_, Some(path)) => {
                    let (file, size) = service.artifact(&who.principal, &exec_id, path).await?;
                    read_whole(file, size, uri).await?
                }
                (_, None) => return Err(missing()),
            }
        }
        _ => return Err(missing()),
    };
    Ok(tell(bytes, uri))
}

/// As text where it is some.
fn tell(bytes: Vec<u8>, uri: &str) -> ResourceContents {
    match String::from_utf8(bytes) {
        Ok(text) if uri.ends_with(".md") => ResourceContents::text(text, uri).with_mime_type("text/markdown"),
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => {
            ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri).with_mime_type("application/octet-stream")
        }
    }
}

fn invalid(message: &str) -> Error {
    Error::InvalidArgument { message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_bytes_are_told_as_they_are() {
        let exec_id: ExecId = "e_00000000000000000000000000000000".parse().unwrap();
        assert_eq!(artifact(&exec_id, "a b/ü.txt"), format!("ringwall://execs/{exec_id}/artifacts/a%20b/%C3%BC.txt"));
        assert!(matches!(tell(b"x".to_vec(), "ringwall://files/x"), ResourceContents::TextResourceContents { .. }));
        assert!(matches!(tell(vec![0xff], "ringwall://files/x"), ResourceContents::BlobResourceContents { .. }));
    }
}
