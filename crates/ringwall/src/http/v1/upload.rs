//! Receives a multipart form with one file. The file is written while it arrives, so it is never in
//! memory as a whole; other fields are texts of at most 1 KiB. Size and slowness are limited.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use multer::{Constraints, Field, Multipart, SizeLimit};
use tokio::time::timeout;

use crate::http::transport::body::too_large;
use crate::http::transport::problem::Problem;

pub(crate) const SETTING: &str = "files.upload_max_mb";

/// The longest pause in the upload.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// After this time the average must reach [`MIN_BYTES_PER_SECOND`] bytes per second.
const GRACE_PERIOD: Duration = Duration::from_secs(60);
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;
/// Room for boundaries, headers and other fields.
const FORM_OVERHEAD_BYTES: u64 = 64 << 10;
const MAX_FIELD_BYTES: usize = 1024;
const FILE: &str = "file";
const SCOPE: &str = "scope";

/// The fields of the form besides the content of the file.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) file_name: String,
    /// The field `scope`. Other fields are ignored.
    pub(crate) scope: Option<String>,
}

/// Receives a form and writes its file to `into`.
pub(crate) async fn receive(
    headers: &HeaderMap,
    body: Body,
    max_bytes: u64,
    into: &mut impl Write,
) -> Result<Received, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind)
        .map_err(|_| Problem::invalid("The body must be multipart/form-data with a file in the field 'file'."))?;
    // Rejects a too large `Content-Length` before reading.
    if axum::body::HttpBody::size_hint(&body).lower() > max_bytes + FORM_OVERHEAD_BYTES {
        return Err(too_large(max_bytes, SETTING));
    }
    let limits = SizeLimit::new().whole_stream(max_bytes + FORM_OVERHEAD_BYTES).for_field(FILE, max_bytes);
    let constraints = Constraints::new().size_limit(limits);
    let mut parts = Multipart::with_constraints(body.into_data_stream(), boundary, constraints);
    let mut speed = UploadSpeed { begun: Instant::now(), bytes: 0 };
    let (mut file_name, mut scope) = (None, None);
    while let Some(mut field) = speed.next_field(&mut parts, max_bytes).await? {
        match field.name() {
            Some(FILE) if file_name.is_some() => return Err(Problem::invalid("The field 'file' is given twice.")),
            Some(FILE) => {
                file_name = Some(field.file_name().unwrap_or_default().to_owned());
                while let Some(piece) = speed.chunk(&mut field, max_bytes).await? {
                    tokio::task::block_in_place(|| into.write_all(&piece)).map_err(write_error)?;
                }
            }
            name => {
                let is_scope = name == Some(SCOPE);
                let mut bytes = Vec::new();
                while let Some(piece) = speed.chunk(&mut field, max_bytes).await? {
                    bytes.extend_from_slice(&piece);
                    if bytes.len() > MAX_FIELD_BYTES {
                        return Err(Problem::invalid(format!("A field has more than {MAX_FIELD_BYTES} bytes.")));
                    }
                }
                let text = String::from_utf8(bytes).map_err(|_| Problem::invalid("A field is not UTF-8."))?;
                if is_scope && scope.replace(text).is_some() {
                    return Err(Problem::invalid("The field 'scope' is given twice."));
                }
            }
        }
    }
    let file_name = file_name.ok_or_else(|| Problem::invalid("Missing parameter: the field 'file'."))?;
    Ok(Received { file_name, scope })
}

/// Measures the speed of an upload.
struct UploadSpeed {
    begun: Instant,
    bytes: u64,
}

impl UploadSpeed {
    async fn next_field<'a>(&self, parts: &mut Multipart<'a>, max_bytes: u64) -> Result<Option<Field<'a>>, Problem> {
        match timeout(MAX_PAUSE, parts.next_field()).await {
            Ok(Ok(field)) => Ok(field),
            Ok(Err(error)) => Err(explain(&error, max_bytes)),
            Err(_) => Err(too_slow()),
        }
    }

    async fn chunk(&mut self, field: &mut Field<'_>, max_bytes: u64) -> Result<Option<axum::body::Bytes>, Problem> {
        let piece = match timeout(MAX_PAUSE, field.chunk()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => return Err(explain(&error, max_bytes)),
            Err(_) => return Err(too_slow()),
        };
        self.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let took = self.begun.elapsed();
        if took > GRACE_PERIOD && self.bytes / took.as_secs().max(1) < MIN_BYTES_PER_SECOND {
            return Err(too_slow());
        }
        Ok(piece)
    }
}

fn explain(error: &multer::Error, max_bytes: u64) -> Problem {
    match error {
        multer::Error::FieldSizeExceeded { .. } | multer::Error::StreamSizeExceeded { .. } => {
            too_large(max_bytes, SETTING)
        }
        // Its message comes from the connection; those of the other errors describe the form.
        multer::Error::StreamReadFailed(_) => Problem::invalid("The body could not be read completely."),
        other => Problem::invalid(format!("The body is not a multipart form: {other}")),
    }
}

/// DISK_QUOTA if the workspace is full; otherwise BUSY, with the cause in the log.
fn write_error(error: io::Error) -> Problem {
    if error.kind() == io::ErrorKind::QuotaExceeded && error.raw_os_error().is_none() {
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "DISK_QUOTA", error.to_string());
    }
    tracing::error!(%error, "could not write an upload");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", "The upload could not be written. Please try again.")
}

fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", "The body arrived too slowly.")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn received(body: &str, max_bytes: u64) -> Result<(Vec<u8>, String, Option<String>), StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "multipart/form-data; boundary=X".parse().unwrap());
        let mut bytes = Vec::new();
        let body = Body::from(body.replace('\n', "\r\n"));
        let received = receive(&headers, body, max_bytes, &mut bytes).await;
        let Received { file_name, scope } = received.map_err(|problem| problem.status())?;
        Ok((bytes, file_name, scope))
    }

    fn part(name: &str, file_name: Option<&str>, content: &str) -> String {
        let file = file_name.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
        format!("--X\nContent-Disposition: form-data; name=\"{name}\"{file}\n\n{content}\n")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn file_and_scope_are_received() {
        let body = part("scope", None, "baseline") + &part("file", Some("a/b.zip"), "12345") + "--X--\n";
        let (bytes, name, scope) = received(&body, 5).await.unwrap();
        assert_eq!((bytes.as_slice(), name.as_str()), (b"12345".as_slice(), "a/b.zip"));
        assert_eq!(scope.as_deref(), Some("baseline"));
        assert_eq!(received(&body, 4).await.unwrap_err(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn malformed_form_is_rejected() {
        let file = part("file", Some("a"), "1");
        for body in [
            String::new(),
            "nothing".to_owned(),
            file.clone(),
            part("other", None, "1") + "--X--\n",
            file.clone() + &file + "--X--\n",
            part("scope", None, "a") + &part("scope", None, "a") + &file + "--X--\n",
            part("text", None, &"x".repeat(MAX_FIELD_BYTES + 1)) + &file + "--X--\n",
        ] {
            assert_eq!(received(&body, 100).await.unwrap_err(), StatusCode::BAD_REQUEST, "{body}");
        }
        let plain = receive(&HeaderMap::new(), Body::from("x"), 100, &mut Vec::new()).await.unwrap_err();
        assert_eq!(plain.status(), StatusCode::BAD_REQUEST);
    }
}
