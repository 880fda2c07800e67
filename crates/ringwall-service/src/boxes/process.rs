//! The handle by which the service signals and writes to a process of a session box.

use ringwall_executor::session_box::{ProcessInput, SessionProcess};

#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pub(crate) handle: SessionProcess,
    pub(crate) stdin: tokio::sync::Mutex<Option<ProcessInput>>,
}

impl ProcessHandle {
    pub(crate) fn new(handle: SessionProcess, stdin: Option<ProcessInput>) -> Self {
        ProcessHandle { handle, stdin: tokio::sync::Mutex::new(stdin) }
    }
}
