//! The DevTools events that are used, and the parts of them that are read.
//!
//! Unknown and malformed events are ignored.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::answer::DialogKind;
use crate::protocol::{Header, TargetInfo};

#[derive(Debug)]
pub(crate) enum Event {
    Attached(Attached),
    Detached(Detached),
    Crashed,
    FrameNavigated(FrameNavigated),
    NavigatedWithin(OfFrame),
    StartedLoading(OfFrame),
    StoppedLoading(OfFrame),
    RequestedNavigation(OfFrame),
    Lifecycle(Lifecycle),
    Response(Response),
    Dialog(DialogOpening),
    DownloadBegins(DownloadBegins),
    DownloadProgress(DownloadProgress),
    Paused(Paused),
    ContextCreated(ContextCreated),
}

impl Event {
    pub(crate) fn read(method: &str, params: &RawValue) -> Option<Self> {
        fn of<T: DeserializeOwned>(params: &RawValue) -> Option<T> {
            serde_json::from_str(params.get()).ok()
        }
        Some(match method {
            "Target.attachedToTarget" => Self::Attached(of(params)?),
            "Target.detachedFromTarget" => Self::Detached(of(params)?),
            "Inspector.targetCrashed" => Self::Crashed,
            "Page.frameNavigated" => Self::FrameNavigated(of(params)?),
            "Page.navigatedWithinDocument" => Self::NavigatedWithin(of(params)?),
            "Page.frameStartedLoading" => Self::StartedLoading(of(params)?),
            "Page.frameStoppedLoading" => Self::StoppedLoading(of(params)?),
            "Page.frameRequestedNavigation" => Self::RequestedNavigation(of(params)?),
            "Page.lifecycleEvent" => Self::Lifecycle(of(params)?),
            "Network.responseReceived" => Self::Response(of(params)?),
            "Page.javascriptDialogOpening" => Self::Dialog(of(params)?),
            "Browser.downloadWillBegin" => Self::DownloadBegins(of(params)?),
            "Browser.downloadProgress" => Self::DownloadProgress(of(params)?),
            "Fetch.requestPaused" => Self::Paused(of(params)?),
            "Runtime.executionContextCreated" => Self::ContextCreated(of(params)?),
            _ => return None,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attached {
    pub(crate) session_id: String,
    pub(crate) target_info: TargetInfo,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detached {
    pub(crate) session_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FrameNavigated {
    pub(crate) frame: Frame,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Frame {
    pub(crate) id: String,
    pub(crate) parent_id: Option<String>,
    pub(crate) loader_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfFrame {
    pub(crate) frame_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    pub(crate) frame_id: String,
    pub(crate) loader_id: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    pub(crate) frame_id: Option<String>,
    pub(crate) loader_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) response: Status,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) status: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DialogOpening {
    pub(crate) message: String,
    #[serde(rename = "type")]
    pub(crate) kind: DialogKind,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DownloadBegins {
    pub(crate) guid: String,
    pub(crate) suggested_filename: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DownloadProgress {
    pub(crate) guid: String,
    pub(crate) received_bytes: f64,
    pub(crate) state: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Paused {
    pub(crate) request_id: String,
    pub(crate) response_status_code: Option<u16>,
    #[serde(default)]
    pub(crate) response_headers: Vec<Header>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ContextCreated {
    pub(crate) context: Context,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Context {
    pub(crate) unique_id: String,
    pub(crate) aux_data: ContextOf,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContextOf {
    /// False for an isolated world.
    pub(crate) is_default: bool,
    pub(crate) frame_id: String,
}
