//! Forwards one plain HTTP request without its hop-by-hop headers, and streams the answer back.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::gate::ConnectionRecord;
use super::meter::Metered;
use super::proxy::IDLE_TIMEOUT;
use super::target::Target;

pub(super) type AnyBody = BoxBody<Bytes, hyper::Error>;

/// Hop-by-hop headers: meant for the proxy, not for the server.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Forwards a request on a connection of its own, and returns the answer.
pub(super) async fn forward(
    request: Request<Incoming>,
    target: &Target,
    stream: Metered,
    mut record: ConnectionRecord,
) -> Response<AnyBody> {
    let Some(request) = rewrite(request, target) else {
        return text(StatusCode::BAD_REQUEST, "the address cannot be forwarded");
    };
    let Ok((mut sender, connection)) = http1::handshake(TokioIo::new(stream)).await else {
        let why = "the HTTP connection to the server could not be set up";
        record.failed(why);
        return text(StatusCode::BAD_GATEWAY, why);
    };
    let meter = record.meter.clone();
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        tokio::select! {
            _ = connection => {}
            () = meter.idle(IDLE_TIMEOUT) => {}
        }
    });
    match tokio::time::timeout(IDLE_TIMEOUT, sender.send_request(request)).await {
        Ok(Ok(response)) => {
            let (mut parts, body) = response.into_parts();
            strip(&mut parts.headers);
            Response::from_parts(parts, ForwardedBody { body, _driver: driver, _record: record }.boxed())
        }
        Ok(Err(_)) | Err(_) => {
            let why = "the server did not answer";
            record.failed(why);
            text(StatusCode::BAD_GATEWAY, why)
        }
    }
}

fn rewrite(request: Request<Incoming>, target: &Target) -> Option<Request<Incoming>> {
    let (mut parts, body) = request.into_parts();
    strip(&mut parts.headers);
    parts.headers.insert(HOST, HeaderValue::from_str(&target.authority()).ok()?);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse::<Uri>().ok()?;
    parts.version = Version::HTTP_11;
    Some(Request::from_parts(parts, body))
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// An answer of the proxy itself.
pub(super) fn text(status: StatusCode, message: &str) -> Response<AnyBody> {
    let body = Full::new(Bytes::from(format!("ringwall: {message}\n"))).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The body of an answer, with the connection that delivers it. Dropping it ends both.
struct ForwardedBody {
    body: Incoming,
    _driver: JoinSet<()>,
    _record: ConnectionRecord,
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("proxy-authorization", "Basic eA=="),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
