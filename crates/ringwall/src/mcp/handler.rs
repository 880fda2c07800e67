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

use super::approval::Seal;
use super::call::Call;
use super::changes::{Changes, Given, Seen};
use super::code::Held;
use super::tools::World;
use super::who::Who;
use super::{changes, resources, skills, tools};

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
    local: Option<Arc<Who>>,
    /// Code and browser actions that wait for an approval.
    held: Arc<Held>,
    seal: Seal,
    changes: Arc<Changes>,
    /// The tool list that the client of this connection has.
    given: Given,
    /// Number of calls in progress.
    calls: watch::Sender<usize>,
}

/// A call in progress.
struct Answering(watch::Sender<usize>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Mcp {
    /// Serves requests that carry their own principal.
    pub(crate) fn new(service: Service) -> Self {
        let (seal, changes) = (Seal::new(&service), Changes::new(service.clone()));
        let (held, given, calls) = (Arc::default(), Given::default(), watch::Sender::new(0));
        Self { service, local: None, held, seal, changes, given, calls }
    }

    /// A server for a new client, which has no tool list yet.
    pub(crate) fn for_another(&self) -> Self {
        Self { given: Given::default(), ..self.clone() }
    }

    /// A server for a connection with one caller.
    pub(super) fn for_one(&self, who: Who) -> Self {
        Self { local: Some(Arc::new(who)), ..self.for_another() }
    }

    /// Returns when no call is in progress.
    pub(crate) async fn idle(&self) {
        let mut calls = self.calls.subscribe();
        // Cannot fail: `self` holds the sender.
        let _ = calls.wait_for(|count| *count == 0).await;
    }

    fn who(&self, context: &RequestContext<RoleServer>) -> Result<Who, ErrorData> {
        let (who, remote) = match &self.local {
            Some(who) => (who.as_ref().clone(), None),
            None => Who::of(&context.extensions)?,
        };
        Ok(who.with(context.client_info().as_ref(), remote))
    }

    fn begin(&self) -> Answering {
        self.calls.send_modify(|count| *count += 1);
        Answering(self.calls.clone())
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
        tools::without_paths(World::Closed).iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let world = World::from(self.service.net_mode());
        let skills = skills::described(&self.service).await.map_err(of_service)?;
        let paths = self.service.path_control().await.map_err(of_service)?;
        let seen = Seen::of(&skills, world, paths);
        self.changes.note(seen);
        self.given.note(seen);
        let mut all = tools::described(world, paths);
        all.extend(skills);
        Ok(ListToolsResult::with_all_items(all))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _answering = self.begin();
        let who = self.who(&context)?;
        let tool = request.name.clone();
        let (service, held, seal) = (&self.service, &self.held, &self.seal);
        Call { service, who: &who, context: &context, held, seal, tool: &tool }.make(request).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let who = self.who(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let (page, next) = resources::list(&self.service, &who, cursor.as_deref()).await.map_err(of_service)?;
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
        let who = self.who(&context)?;
        let read = resources::read(&self.service, &who, &request.uri).await;
        let read =
            read.map_err(|error| ErrorData { data: Some(json!({ "uri": request.uri })), ..of_service(error) })?;
        Ok(ReadResourceResult::new(vec![read]).into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let who = self.who(context.request_context())?;
        changes::tell_listener(&self.changes, &self.service, &self.given, &who.principal, &context).await;
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // The task ends with the connection.
        tokio::spawn(changes::tell(self.changes.clone(), self.given.clone(), context.peer));
    }
}

/// Converts a service error to a protocol error, for methods other than `tools/call`.
fn of_service(error: Error) -> ErrorData {
    let code = error.code();
    match (code, &error) {
        ("NOT_FOUND", _) => ErrorData::resource_not_found(error.to_string(), None),
        (_, Error::Runtime { .. } | Error::Busy(_) | Error::Stopping) => {
            ErrorData::internal_error(error.to_string(), None)
        }
        _ => ErrorData::invalid_params(format!("{error} ({code})"), None),
    }
}
