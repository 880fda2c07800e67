//! Moving files between this machine and a server, with a bar on a terminal: a form that is sent as it is read, and an
//! answer that is written as it comes. Neither is ever in memory whole.

use std::fs::Permissions;
use std::io::{self, Cursor, IsTerminal, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::cli::client::{Answer, Client};
use crate::cli::message::Message;

/// Occurs in no file by chance; an archive that holds it on purpose only breaks its own upload.
const BOUNDARY: &str = "ringwall-7d1f0c52b0e94a0ea3d6c1b8f2495e60";

/// Sends bytes as the one file of a form. `name` is what the server will know it by; `bar` is moved by whoever knows how far
/// it is, and gone afterwards.
pub(crate) fn upload(
    client: &Client,
    route: &str,
    name: &str,
    length: Option<u64>,
    bar: &ProgressBar,
    source: impl Read,
) -> Result<Value, Message> {
    if name.is_empty() || name.contains(|letter: char| letter.is_control() || matches!(letter, '"' | '\\' | '/')) {
        return Err(Message::new(format!("{name:?} is not a name that can be sent"))
            .with_hint("give it another name, without quotation marks and backslashes"));
    }
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    let whole = length.map(|length| length + (head.len() + tail.len()) as u64);
    let body = Cursor::new(head).chain(source).chain(Cursor::new(tail));
    let answer = client.send_stream(route, &format!("multipart/form-data; boundary={BOUNDARY}"), whole, body);
    bar.finish_and_clear();
    answer
}

/// Writes an answer to a file of its own, which takes the place of `path` when it is whole.
pub(crate) fn save(answer: Answer, name: &str, path: &Path) -> Result<u64, Message> {
    let failed = |error: io::Error| Message::io(format!("{}: {error}", path.display()));
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    require_directory(directory)?;
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory).map_err(failed)?;
    let length = receive(answer, name, &mut file)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(length)
}

/// Writes an answer to a nameless file, rewound.
pub(crate) fn keep(answer: Answer, name: &str, directory: &Path) -> Result<std::fs::File, Message> {
    let failed = |error: io::Error| Message::io(format!("{}: {error}", directory.display()));
    require_directory(directory)?;
    let mut file = tempfile::tempfile_in(directory).map_err(failed)?;
    receive(answer, name, &mut file)?;
    file.rewind().map_err(failed)?;
    Ok(file)
}

/// Said of a directory that is not there before anything is tried in it, which would be told by a temporary name.
fn require_directory(directory: &Path) -> Result<(), Message> {
    let found = std::fs::metadata(directory);
    found.map(drop).map_err(|error| {
        Message::io(format!("{}: {error}", directory.display())).with_hint("make the directory first, or name another")
    })
}

/// Passes an answer on to standard output as it comes. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn show(answer: Answer, name: &str) -> Result<(), Message> {
    match copy(answer, name, &mut io::stdout().lock()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map(drop).map_err(|error| broken(name, &error)),
    }
}

fn receive(answer: Answer, name: &str, to: &mut impl Write) -> Result<u64, Message> {
    copy(answer, name, to).map_err(|error| broken(name, &error))
}

fn broken(name: &str, error: &io::Error) -> Message {
    Message::io(format!("{name}: {error}"))
}

fn copy(mut answer: Answer, name: &str, to: &mut impl Write) -> io::Result<u64> {
    let bar = bar("receiving", name, answer.length);
    let copied = io::copy(&mut bar.wrap_read(&mut answer.bytes), to).and_then(|length| to.flush().map(|()| length));
    bar.finish_and_clear();
    match copied {
        // An answer that announced more than it brought was cut off.
        Ok(length) if answer.length.is_some_and(|announced| announced != length) => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection broke during the server's answer"))
        }
        copied => copied,
    }
}

/// A bar on a terminal, and nothing elsewhere.
pub(crate) fn bar(doing: &str, name: &str, length: Option<u64>) -> ProgressBar {
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
    bar.with_prefix(doing.to_owned()).with_message(crate::cli::message::inert(name))
}
