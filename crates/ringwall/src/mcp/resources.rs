//! Resources: the agent's skills and files, files of sessions, and output and artifacts of execs.
//!
//! A URI does not contain user and agent; those of the connection apply. The list contains the
//! agent's files and those of the connection's session. URIs of artifacts are in the results of
//! execs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ringwall_service::{AgentPath, Error, ExecId, Service, Stream};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use super::caller::Caller;
use super::files::{read_download, read_file};

const SCHEME: &str = "ringwall://";
/// The characters that are percent-encoded in the path of a resource.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Limit of an exec's output in one resource.
const MAX_OUTPUT_BYTES: u64 = 8 << 20;
/// Resources per page of the list.
const PAGE_SIZE: usize = 500;

pub(super) fn artifact(exec_id: &ExecId, path: &str) -> String {
    format!("{SCHEME}execs/{exec_id}/artifacts/{}", encode(path))
}

fn encode(path: &str) -> String {
    utf8_percent_encode(path, ENCODED).to_string()
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, description: &str| {
        ResourceTemplate::new(format!("{SCHEME}{uri}"), name).with_description(description)
    };
    vec![
        template("files/{+path}", "files", "A file of the agent"),
        template(
            "skills/{skill}/{+path}",
            "skills",
            "A file of one of the agent's skills; SKILL.md describes the skill",
        ),
        template("sessions/{session_id}/{+path}", "sessions", "A file of a session's workspace"),
        template("execs/{exec_id}/artifacts/{+path}", "artifacts", "An artifact of an exec"),
        template("execs/{exec_id}/stdout", "stdout", "Standard output of an exec"),
        template("execs/{exec_id}/stderr", "stderr", "Standard error of an exec"),
    ]
}

/// One page of the list, and the cursor of the next one.
pub(super) async fn list(
    service: &Service,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<(Vec<Resource>, Option<String>), Error> {
    let begin: usize = match cursor {
        Some(cursor) => cursor.parse().map_err(|_| invalid("cursor: not a cursor of this list"))?,
        None => 0,
    };
    let mut all: Vec<Resource> = Vec::new();
    // Listing skills first moves a misplaced SKILL.md to the root of its skill.
    service.agent_skills(&caller.principal, &caller.address()).await?;
    for section in ["skills", "files"] {
        let files = service.list_files(&caller.principal, &caller.address(), AgentPath::parse(section)?).await?;
        all.extend(files.whole().into_iter().map(of_agent));
    }
    let session = caller.session(None);
    let address = caller.session_address(None);
    match service.list_session_files(&caller.principal, &address, AgentPath::in_session("")?).await {
        Ok(paths) => all.extend(paths.into_iter().map(|path| {
            let uri = format!("{SCHEME}sessions/{}/{}", encode(&session), encode(&path));
            Resource::new(uri, path)
        })),
        // The session was not used yet.
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let next = begin.saturating_add(PAGE_SIZE);
    let following = (next < all.len()).then(|| next.to_string());
    Ok((all.into_iter().skip(begin).take(PAGE_SIZE).collect(), following))
}

fn of_agent(path: String) -> Resource {
    let uri = format!("{SCHEME}{}", encode(&path));
    let skill = path.strip_prefix("skills/").and_then(|path| path.strip_suffix("/SKILL.md"));
    match skill.filter(|skill| !skill.contains('/')).map(str::to_owned) {
        Some(skill) => {
            let description = format!("Description and usage of the skill {skill}");
            Resource::new(uri, path).with_title(skill).with_description(description).with_mime_type("text/markdown")
        }
        None => Resource::new(uri, path),
    }
}

/// Reads a resource. A malformed URI is an unknown resource.
pub(super) async fn read(service: &Service, caller: &Caller, uri: &str) -> Result<ResourceContents, Error> {
    let missing = || Error::NotFound { what: format!("resource {uri}") };
    let path = uri.strip_prefix(SCHEME).ok_or_else(missing)?;
    let path = percent_decode_str(path).decode_utf8().map_err(|_| missing())?;
    let (kind, rest) = path.split_once('/').ok_or_else(missing)?;
    let bytes = match kind {
        "files" | "skills" => {
            let path = AgentPath::parse(&path)?;
            read_download(service.download(&caller.principal, &caller.address(), path).await?, uri).await?
        }
        "sessions" => {
            let (session, path) = rest.split_once('/').ok_or_else(missing)?;
            let address = caller.session_address(Some(session.to_owned()));
            let path = AgentPath::in_session(path)?;
            read_download(service.download_session_file(&caller.principal, &address, path).await?, uri).await?
        }
        "execs" => {
            let (exec_id, rest) = rest.split_once('/').ok_or_else(missing)?;
            let exec_id: ExecId = exec_id.parse().map_err(|_| missing())?;
            match (rest, rest.strip_prefix("artifacts/")) {
                ("stdout", _) => {
                    service.output(&caller.principal, &exec_id, Stream::Stdout, 0, MAX_OUTPUT_BYTES).await?.bytes
                }
                ("stderr", _) => {
                    service.output(&caller.principal, &exec_id, Stream::Stderr, 0, MAX_OUTPUT_BYTES).await?.bytes
                }
                (_, Some(path)) => {
                    let (file, size) = service.artifact(&caller.principal, &exec_id, path).await?;
                    read_file(file, size, uri).await?
                }
                (_, None) => return Err(missing()),
            }
        }
        _ => return Err(missing()),
    };
    Ok(contents(bytes, uri))
}

/// The content as text if it is UTF-8, otherwise in base64.
fn contents(bytes: Vec<u8>, uri: &str) -> ResourceContents {
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
    fn path_is_encoded_and_binary_content_is_a_blob() {
        let exec_id: ExecId = "e_00000000000000000000000000000000".parse().unwrap();
        assert_eq!(artifact(&exec_id, "a b/ü.txt"), format!("ringwall://execs/{exec_id}/artifacts/a%20b/%C3%BC.txt"));
        assert!(matches!(contents(b"x".to_vec(), "ringwall://files/x"), ResourceContents::TextResourceContents { .. }));
        assert!(matches!(contents(vec![0xff], "ringwall://files/x"), ResourceContents::BlobResourceContents { .. }));
    }
}
