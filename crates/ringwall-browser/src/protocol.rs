//! The DevTools calls that are used, and the parts of their answers that are read.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

pub(crate) trait Call: Serialize {
    const METHOD: &'static str;
    type Answer: DeserializeOwned;
}

/// An answer whose content is ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct Nothing {}

macro_rules! calls {
    ($($method:literal $name:ident $(<$life:lifetime>)? { $($(#[$meta:meta])* $field:ident : $kind:ty),* $(,)? } -> $answer:ty;)*) => { $(
        #[derive(Debug, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $name $(<$life>)? { $($(#[$meta])* pub(crate) $field: $kind),* }

        impl $(<$life>)? Call for $name $(<$life>)? {
            const METHOD: &'static str = $method;
            type Answer = $answer;
        }
    )* };
}

calls! {
    "Target.setAutoAttach" SetAutoAttach<'a> {
        auto_attach: bool, wait_for_debugger_on_start: bool, flatten: bool, filter: &'a [TargetFilter],
    } -> Nothing;
    "Target.createTarget" CreateTarget<'a> { url: &'a str } -> CreatedTarget;
    "Target.closeTarget" CloseTarget<'a> { target_id: &'a str } -> Nothing;
    "Target.getTargetInfo" GetTargetInfo<'a> { target_id: &'a str } -> TargetInfoAnswer;
    "Browser.setDownloadBehavior" SetDownloadBehavior<'a> {
        behavior: &'a str, download_path: &'a str, events_enabled: bool,
    } -> Nothing;
    "Browser.cancelDownload" CancelDownload<'a> { guid: &'a str } -> Nothing;
    "Browser.close" CloseBrowser {} -> Nothing;
    "Page.enable" EnablePage {} -> Nothing;
    "Page.setLifecycleEventsEnabled" SetLifecycleEvents { enabled: bool } -> Nothing;
    "Page.setInterceptFileChooserDialog" InterceptFileChooser { enabled: bool } -> Nothing;
    "Inspector.enable" EnableInspector {} -> Nothing;
    "Network.enable" EnableNetwork { max_total_buffer_size: u32, max_resource_buffer_size: u32 } -> Nothing;
    "Runtime.enable" EnableRuntime {} -> Nothing;
    "Runtime.disable" DisableRuntime {} -> Nothing;
    "Runtime.runIfWaitingForDebugger" RunIfWaiting {} -> Nothing;
    "Runtime.terminateExecution" TerminateExecution {} -> Nothing;
    "Page.handleJavaScriptDialog" HandleDialog { accept: bool } -> Nothing;
    "Page.navigate" Navigate<'a> { url: &'a str } -> Navigated;
    "Page.stopLoading" StopLoading {} -> Nothing;
    "Page.getNavigationHistory" GetHistory {} -> History;
    "Page.navigateToHistoryEntry" NavigateToEntry { entry_id: i64 } -> Nothing;
    "Page.createIsolatedWorld" CreateWorld<'a> { frame_id: &'a str, world_name: &'a str } -> World;
    "Page.bringToFront" BringToFront {} -> Nothing;
    "Page.getLayoutMetrics" GetLayoutMetrics {} -> LayoutMetrics;
    "Page.captureScreenshot" CaptureScreenshot<'a> {
        format: &'a str, #[serde(skip_serializing_if = "Option::is_none")] clip: Option<Clip>, capture_beyond_viewport: bool,
    } -> Encoded;
    "Page.printToPDF" PrintToPdf { print_background: bool } -> Encoded;
    "Runtime.evaluate" Evaluate<'a> {
        expression: &'a str, return_by_value: bool, await_promise: bool, user_gesture: bool, timeout: u64,
        #[serde(skip_serializing_if = "Option::is_none")] context_id: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none")] unique_context_id: Option<&'a str>,
    } -> Evaluated;
    "Runtime.callFunctionOn" CallFunction<'a> {
        function_declaration: &'a str, arguments: [Argument<'a>; 3], execution_context_id: i64, return_by_value: bool,
        await_promise: bool,
    } -> Evaluated;
    "Runtime.releaseObject" ReleaseObject<'a> { object_id: &'a str } -> Nothing;
    "DOM.setFileInputFiles" SetFiles<'a> { files: &'a [String], object_id: &'a str } -> Nothing;
    "Input.dispatchMouseEvent" MouseEvent<'a> {
        #[serde(rename = "type")] kind: &'a str, x: f64, y: f64, button: &'a str, click_count: u32,
    } -> Nothing;
    "Input.dispatchKeyEvent" KeyEvent<'a> {
        #[serde(rename = "type")] kind: &'a str, modifiers: u32, key: &'a str, code: &'a str, windows_virtual_key_code: u32,
        #[serde(skip_serializing_if = "Option::is_none")] text: Option<&'a str>,
        commands: &'a [&'a str],
    } -> Nothing;
    "Fetch.enable" EnableFetch<'a> { patterns: &'a [RequestPattern<'a>] } -> Nothing;
    "Fetch.disable" DisableFetch {} -> Nothing;
    "Fetch.continueResponse" ContinueResponse<'a> {
        request_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")] response_code: Option<u16>,
        #[serde(skip_serializing_if = "Option::is_none")] response_headers: Option<Vec<Header>>,
    } -> Nothing;
}

#[derive(Debug, Serialize)]
pub(crate) struct TargetFilter {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    pub(crate) exclude: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Argument<'a> {
    pub(crate) value: &'a Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestPattern<'a> {
    pub(crate) url_pattern: &'a str,
    pub(crate) resource_type: &'a str,
    pub(crate) request_stage: &'a str,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Clip {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) scale: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreatedTarget {
    pub(crate) target_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetInfoAnswer {
    pub(crate) target_info: TargetInfo,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetInfo {
    pub(crate) target_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) url: String,
    pub(crate) subtype: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Navigated {
    pub(crate) loader_id: Option<String>,
    pub(crate) error_text: Option<String>,
    #[serde(default)]
    pub(crate) is_download: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct History {
    pub(crate) current_index: usize,
    pub(crate) entries: Vec<HistoryEntry>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HistoryEntry {
    pub(crate) id: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct World {
    pub(crate) execution_context_id: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LayoutMetrics {
    pub(crate) css_content_size: Size,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Size {
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Encoded {
    pub(crate) data: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Evaluated {
    pub(crate) result: Remote,
    pub(crate) exception_details: Option<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remote {
    pub(crate) value: Option<Box<RawValue>>,
    pub(crate) unserializable_value: Option<String>,
    pub(crate) object_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Exception {
    pub(crate) text: String,
    pub(crate) exception: Option<Thrown>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Thrown {
    pub(crate) description: Option<String>,
    pub(crate) value: Option<Value>,
}
