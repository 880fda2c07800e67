//! What the protocol asks of a server, for whoever asks: tools, resources, and news of the tools.

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

const INSTRUCTIONS: &str = "Ringwall runs code and commands in isolated boxes, under a policy, and on record. Code and commands of one \
    session share the files at /workspace; paths of the file tools are relative to it, while files/ and skills/ are the \
    agent's own and outlast sessions. A result with the status approval_pending waits for a person: poll approval_status \
    with its approval_id, and do not run the same again. skill.* tools are commands that the operator vouches for. The \
    agent's own skills are run by run_skill; each one's SKILL.md, a resource, says how.";

/// Serves one connection, or many requests of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Mcp {
    service: Service,
    /// Everybody is somebody else where there is none.
    local: Option<Arc<Who>>,
    /// What waits for a person.
    held: Arc<Held>,
    seal: Seal,
    changes: Arc<Changes>,
    /// The list of tools that this client has; one that is nobody's for requests that stand for themselves.
    given: Given,
    /// How many calls are being answered.
    calls: watch::Sender<usize>,
}

/// One call that is being answered.
struct Answering(watch::Sender<usize>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Mcp {
    /// For requests that say themselves who sends them.
    pub(crate) fn new(service: Service) -> Self {
        let (seal, changes) = (Seal::new(&service), Changes::new(service.clone()));
        let (held, given, calls) = (Arc::default(), Given::default(), watch::Sender::new(0));
        Self { service, local: None, held, seal, changes, given, calls }
    }

    /// The same for another client, of which nothing is known yet.
    pub(crate) fn for_another(&self) -> Self {
        Self { given: Given::default(), ..self.clone() }
    }

    /// For one person's own.
    pub(super) fn for_one(&self, who: Who) -> Self {
        Self { local: Some(Arc::new(who)), ..self.for_another() }
    }

    /// Comes back when no call is being answered.
    pub(crate) async fn idle(&self) {
        let mut calls = self.calls.subscribe();
        // The sender is our own, so there is always somebody to wait for.
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
        // Its schema does not depend on the settings.
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
        // It ends with the connection.
        tokio::spawn(changes::tell(self.changes.clone(), self.given.clone(), context.peer));
    }
}

/// What is no tool's failure is the protocol's.
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
