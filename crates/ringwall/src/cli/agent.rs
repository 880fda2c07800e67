//! Flags and requests shared by `ringwall files` and `ringwall skills`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::client::{Client, ServerArguments, encode};
use crate::message::{BAD_ANSWER, Message, escape_invisible, print};

#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Agent that owns the files and skills
    #[arg(long, value_name = "AGENT", default_value = "default")]
    agent: String,
    /// User of the agent, for owners and operators [default: the token's user, or `default`]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Print the result or the error as JSON
    #[arg(long)]
    json: bool,
}

/// One agent of one user on a server.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) client: Client,
    name: String,
    user: Option<String>,
    is_json: bool,
}

impl AgentArguments {
    /// Runs `work` and prints its error in the chosen format.
    pub(crate) fn with(&self, data: &Path, work: impl FnOnce(&Agent) -> Result<(), Message>) -> ExitCode {
        let (name, user, is_json) = (self.agent.clone(), self.user.clone(), self.json);
        let outcome = Client::new(&self.server, data).and_then(|client| work(&Agent { client, name, user, is_json }));
        outcome.map_or_else(|message| message.print_as(is_json), |()| ExitCode::SUCCESS)
    }
}

impl Agent {
    /// The path `/v1/{before}{agent}/{after}` with this query; the user is part of the query.
    pub(crate) fn route(&self, before: &str, after: &str, parameters: &[(&str, &str)]) -> String {
        let user = self.user.as_deref().map(|user| ("user", user));
        let parameters = parameters.iter().copied().chain(user);
        let query: Vec<String> = parameters.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let separator = if query.is_empty() { "" } else { "?" };
        format!("/v1/{before}{}/{after}{separator}{}", encode(&self.name), query.join("&"))
    }

    /// The path to upload baseline skills. It contains a user, although all users of the agent share them.
    pub(crate) fn baseline_route(&self) -> String {
        let user = self.user.as_deref().unwrap_or("default");
        format!("/v1/skills/{}/{}/upload?scope=baseline", encode(user), encode(&self.name))
    }

    /// Sends a request and returns the `data` of the response.
    pub(crate) fn request(&self, method: &str, route: &str, body: Option<&Value>) -> Result<Value, Message> {
        data_of(self.client.json(method, route, &[], body)?)
    }

    /// Prints a result: as JSON, or as the text that `to_text` makes of it.
    pub(crate) fn print_result(&self, data: &Value, to_text: impl FnOnce(&Value) -> String) -> Result<(), Message> {
        print(&if self.is_json { format!("{data}\n") } else { to_text(data) })
    }

    /// Prints a result that is a string.
    pub(crate) fn print_text(&self, data: &Value) -> Result<(), Message> {
        self.print_result(data, |data| {
            let lines = data.as_str().unwrap_or_default().lines();
            lines.map(|line| format!("{}\n", escape_invisible(line))).collect()
        })
    }
}

/// Returns the `data` of a response.
pub(crate) fn data_of(mut response: Value) -> Result<Value, Message> {
    match response.get_mut("data") {
        Some(data) => Ok(data.take()),
        None => Err(Message::failed(BAD_ANSWER, "the server's response has no `data`, so it is not one of this API")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct TestArguments {
        #[command(flatten)]
        agent: AgentArguments,
    }

    /// The paths of a file route, a skill route and the baseline route for these arguments.
    fn routes(flags: &[&str]) -> [String; 3] {
        let arguments = TestArguments::parse_from([&["x"], flags].concat());
        let mut routes = Default::default();
        arguments.agent.with(Path::new("/nonexistent"), |agent| {
            let file = agent.route("", "files", &[("path", "files/ü&x")]);
            routes = [file, agent.route("skills/", "list", &[]), agent.baseline_route()];
            Ok(())
        });
        routes
    }

    #[test]
    fn routes_are_percent_encoded() {
        assert_eq!(
            routes(&["--agent", "a b"]),
            [
                "/v1/a%20b/files?path=files%2F%C3%BC%26x",
                "/v1/skills/a%20b/list",
                "/v1/skills/default/a%20b/upload?scope=baseline"
            ]
        );
        assert_eq!(
            routes(&["--user", "u/"]),
            [
                "/v1/default/files?path=files%2F%C3%BC%26x&user=u%2F",
                "/v1/skills/default/list?user=u%2F",
                "/v1/skills/u%2F/default/upload?scope=baseline"
            ]
        );
    }

    #[test]
    fn response_without_data_is_an_error() {
        assert_eq!(data_of(json!({ "status": "success", "data": [1] })).unwrap(), json!([1]));
        assert!(data_of(json!({ "error": {} })).is_err());
    }
}
