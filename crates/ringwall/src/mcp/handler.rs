//! The MCP server: implements the protocol's methods for tools, resources and tool list changes.

use std::sync::Arc;

use ringwall_service::{Error, Service};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::watch;

use super::call::{Call, PendingCalls};
use super::caller::Caller;
use super::elicitation::Seal;
use super::tool_list::{ClientList, ListDigest, ToolListWatcher};
use super::tools::NetworkAccess;
use super::{resources, skills, tool_list, tools};

const INSTRUCTIONS: &str = "Ringwall runs code and commands in isolated boxes, under a policy, and records every run. Code and commands \
    of one session share the files at /workspace. Paths of the file tools are relative to it; paths beneath files/ and \
    skills/ are the agent's own files and outlast sessions. A result with status approval_pending waits for a person: \
    poll approval_status with its approval_id, and do not run the same again. Tools whose names begin with skill are \
    commands that the operator has installed. Run the agent's own skills with run_skill; the SKILL.md of each skill, \
    which is a resource, describes its use.";

/// The server of one connection, or of all sessionless requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Mcp {
    service: Service,
    /// The caller on standard streams. Over HTTP each request has its own.
    local: Option<Arc<Caller>>,
    /// Code and browser actions that wait for an approval.
    pending_calls: Arc<PendingCalls>,
    seal: Seal,
    tool_list: Arc<ToolListWatcher>,
    /// The tool list that the client of this connection has.
    client_list: ClientList,
    /// Number of calls in progress.
    calls: watch::Sender<usize>,
}

/// A call in progress.
struct CallGuard(watch::Sender<usize>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Mcp {
    /// Serves requests that carry their own principal.
    pub(crate) fn new(service: Service) -> Self {
        let (seal, tool_list) = (Seal::new(&service), ToolListWatcher::new(service.clone()));
        let (pending_calls, client_list, calls) = (Arc::default(), ClientList::default(), watch::Sender::new(0));
        Self { service, local: None, pending_calls, seal, tool_list, client_list, calls }
    }

    /// A server for a new client, which has no tool list yet.
    pub(crate) fn for_new_client(&self) -> Self {
        Self { client_list: ClientList::default(), ..self.clone() }
    }

    /// A server for a connection with one caller.
    pub(super) fn for_caller(&self, caller: Caller) -> Self {
        Self { local: Some(Arc::new(caller)), ..self.for_new_client() }
    }

    /// Returns when no call is in progress.
    pub(crate) async fn idle(&self) {
        let mut calls = self.calls.subscribe();
        // Cannot fail: `self` holds the sender.
        let _ = calls.wait_for(|count| *count == 0).await;
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let (caller, remote) = match &self.local {
            Some(caller) => (caller.as_ref().clone(), None),
            None => Caller::from_extensions(&context.extensions)?,
        };
        Ok(caller.with_client(context.client_info().as_ref(), remote))
    }

    fn begin(&self) -> CallGuard {
        self.calls.send_modify(|count| *count += 1);
        CallGuard(self.calls.clone())
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_resources().build();
        let mut info = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        info.server_info = Implementation::new("ringwall", env!("CARGO_PKG_VERSION"));
        info.server_info.title = Some("Ringwall".to_owned());
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // rmcp reads only the schemas, which do not depend on the settings.
        tools::without_paths(NetworkAccess::Closed).iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let network = NetworkAccess::from(self.service.net_mode());
        let skills = skills::described(&self.service).await.map_err(protocol_error)?;
        let paths = self.service.path_control().await.map_err(protocol_error)?;
        let digest = ListDigest::of(&skills, network, paths);
        self.tool_list.note(digest);
        self.client_list.note(digest);
        let mut all = tools::described(network, paths);
        all.extend(skills);
        Ok(ListToolsResult::with_all_items(all))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _guard = self.begin();
        let caller = self.caller(&context)?;
        let tool = request.name.clone();
        let (service, pending_calls, seal) = (&self.service, &self.pending_calls, &self.seal);
        Call { service, caller: &caller, context: &context, pending_calls, seal, tool: &tool }.make(request).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = self.caller(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let (page, next) = resources::list(&self.service, &caller, cursor.as_deref()).await.map_err(protocol_error)?;
        let mut listed = ListResourcesResult::with_all_items(page);
        listed.next_cursor = next;
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context)?;
        let read = resources::read(&self.service, &caller, &request.uri).await;
        let read =
            read.map_err(|error| ErrorData { data: Some(json!({ "uri": request.uri })), ..protocol_error(error) })?;
        Ok(ReadResourceResult::new(vec![read]).into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = self.caller(context.request_context())?;
        tool_list::notify_listener(&self.tool_list, &self.service, &self.client_list, &caller.principal, &context)
            .await;
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // The task ends with the connection.
        tokio::spawn(tool_list::notify_client(self.tool_list.clone(), self.client_list.clone(), context.peer));
    }
}

/// Converts a service error to a protocol error, for methods other than `tools/call`.
fn protocol_error(error: Error) -> ErrorData {
    let code = error.code();
    match (code, &error) {
        ("NOT_FOUND", _) => ErrorData::resource_not_found(error.to_string(), None),
        (_, Error::Runtime { .. } | Error::Busy(_) | Error::Stopping) => {
            ErrorData::internal_error(error.to_string(), None)
        }
        _ => ErrorData::invalid_params(format!("{error} ({code})"), None),
    }
}
