//! Uploads and downloads files with a progress bar, without holding a whole file in memory.

use std::fs::Permissions;
use std::io::{self, Cursor, IsTerminal, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::client::{Client, Download};
use crate::message::Message;

/// Does not occur in files by chance. A file that contains it on purpose only breaks its own upload.
const BOUNDARY: &str = "ringwall-7d1f0c52b0e94a0ea3d6c1b8f2495e60";

/// Sends `source` as the only file of a multipart form, under the name `name`. The caller advances
/// `bar`; this function removes it at the end.
pub(crate) fn upload(
    client: &Client,
    route: &str,
    name: &str,
    length: Option<u64>,
    bar: &ProgressBar,
    source: impl Read,
) -> Result<Value, Message> {
    if name.is_empty() || name.contains(|letter: char| letter.is_control() || matches!(letter, '"' | '\\' | '/')) {
        return Err(Message::new(format!("the name {name:?} cannot be sent"))
            .with_hint("rename the file; quotation marks, backslashes and control characters are not allowed"));
    }
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    let whole = length.map(|length| length + (head.len() + tail.len()) as u64);
    let body = Cursor::new(head).chain(source).chain(Cursor::new(tail));
    let response = client.send_stream(route, &format!("multipart/form-data; boundary={BOUNDARY}"), whole, body);
    bar.finish_and_clear();
    response
}

/// Writes the body to a temporary file, which replaces `path` when it is complete.
pub(crate) fn save(response: Download, name: &str, path: &Path) -> Result<u64, Message> {
    let failed = |error: io::Error| Message::io(format!("{}: {error}", path.display()));
    let directory = parent_of(path);
    require_directory(directory)?;
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory).map_err(failed)?;
    let length = write_body(response, name, &mut file)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(length)
}

/// Writes the body to an unnamed file and rewinds it.
pub(crate) fn save_unnamed(response: Download, name: &str, directory: &Path) -> Result<std::fs::File, Message> {
    let failed = |error: io::Error| Message::io(format!("{}: {error}", directory.display()));
    require_directory(directory)?;
    let mut file = tempfile::tempfile_in(directory).map_err(failed)?;
    write_body(response, name, &mut file)?;
    file.rewind().map_err(failed)?;
    Ok(file)
}

/// The directory of a path; `.` for a name alone.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checked first, because a later error would name a temporary file instead of the directory.
fn require_directory(directory: &Path) -> Result<(), Message> {
    let found = std::fs::metadata(directory);
    found.map(drop).map_err(|error| {
        Message::io(format!("{}: {error}", directory.display()))
            .with_hint("create the directory first, or choose another one")
    })
}

/// Writes the body to standard output. A reader that closes the pipe early, such as `head`, is not an
/// error.
pub(crate) fn print_body(response: Download, name: &str) -> Result<(), Message> {
    match copy(response, name, &mut io::stdout().lock()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map(drop).map_err(|error| failure(name, &error)),
    }
}

fn write_body(response: Download, name: &str, to: &mut impl Write) -> Result<u64, Message> {
    copy(response, name, to).map_err(|error| failure(name, &error))
}

fn failure(name: &str, error: &io::Error) -> Message {
    Message::io(format!("{name}: {error}"))
}

fn copy(mut response: Download, name: &str, to: &mut impl Write) -> io::Result<u64> {
    let bar = progress_bar("receiving", name, response.length);
    let copied = io::copy(&mut bar.wrap_read(&mut response.bytes), to).and_then(|length| to.flush().map(|()| length));
    bar.finish_and_clear();
    match copied {
        Ok(length) if response.length.is_some_and(|announced| announced != length) => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection broke during the server's response"))
        }
        copied => copied,
    }
}

/// A progress bar; hidden unless standard error is a terminal.
pub(crate) fn progress_bar(doing: &str, name: &str, length: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => {
            (ProgressBar::new(length), "{prefix} {msg} [{bar:30}] {percent:>3}% of {decimal_total_bytes}, {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {prefix} {msg}: {decimal_bytes}, {elapsed}"),
    };
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    };
    bar.with_prefix(doing.to_owned()).with_message(crate::message::escape_invisible(name))
}
