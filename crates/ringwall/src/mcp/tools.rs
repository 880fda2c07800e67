//! The built-in tools: names, descriptions, schemas and annotations.
//!
//! Clients show descriptions and annotations to a person before a call, so they depend on the
//! settings in force: whether boxes have a network, and which host files `run_command` can see.

use std::sync::LazyLock;

use ringwall_policy::NetMode;
use ringwall_risk::Locale;
use ringwall_service::PathControl;
use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;

use super::arguments::{
    CodeArguments, CommandArguments, DeleteArguments, EditArguments, ListArguments, ReadArguments, SkillArguments,
    StatusArguments, WriteArguments, schema,
};
use super::browser::{BROWSER_TOOLS, BrowserTool};
use super::results::{ApprovalState, Content, DoneMessage, Paths, RUN_SUMMARY_SCHEMA};

/// A built-in tool.
#[derive(Debug, Clone, Copy)]
pub(super) enum BuiltIn {
    RunCode,
    RunCommand,
    RunSkill,
    ReadFile,
    WriteFile,
    EditFile,
    ListFiles,
    DeleteFile,
    ApprovalStatus,
    Browser(&'static BrowserTool),
}

/// The effect of a call on existing data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// Destroys data; repeating the call changes nothing more.
    Replaces,
    /// Changes state and destroys nothing.
    Moves,
    /// May destroy data, with each call.
    Changes,
}

/// The network access of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NetworkAccess {
    Closed,
    Open,
}

impl From<NetMode> for NetworkAccess {
    fn from(mode: NetMode) -> Self {
        match mode {
            NetMode::None => Self::Closed,
            NetMode::Allowlist => Self::Open,
        }
    }
}

impl BuiltIn {
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "run_code" => Self::RunCode,
            "run_command" => Self::RunCommand,
            "run_skill" => Self::RunSkill,
            "read_file" => Self::ReadFile,
            "write_file" => Self::WriteFile,
            "edit_file" => Self::EditFile,
            "list_files" => Self::ListFiles,
            "delete_file" => Self::DeleteFile,
            "approval_status" => Self::ApprovalStatus,
            _ => Self::Browser(BROWSER_TOOLS.iter().find(|tool| tool.name == name)?),
        })
    }
}

/// [`described`] adds a sentence about the host files that the box shows.
const RUN_COMMAND: &str =
    "Runs a bash command line in an isolated box. The working directory is the session's workspace at /workspace.";

static CLOSED: LazyLock<Vec<Tool>> = LazyLock::new(|| describe_all(NetworkAccess::Closed));
static OPEN: LazyLock<Vec<Tool>> = LazyLock::new(|| describe_all(NetworkAccess::Open));

fn describe_all(network: NetworkAccess) -> Vec<Tool> {
    let mut tools = vec![
        box_tool::<CodeArguments>(
            "run_code",
            "Run code",
            "Runs Python, JavaScript or shell code in an isolated box. The working directory is the session's \
                 workspace at /workspace. The code is assessed first: high risk needs a person's approval, and \
                 destructive code is refused.",
            network,
        ),
        box_tool::<CommandArguments>("run_command", "Run a command", RUN_COMMAND, network),
        box_tool::<SkillArguments>(
            "run_skill",
            "Run one of the agent's skills",
            "Runs a program with arguments, without a shell, in an isolated box. The working directory is one of \
                 the agent's own skills; use it for the commands that the skill's SKILL.md describes. The box has the \
                 agent's files/ and skills/ at /workspace/files and /workspace/skills, and no files of a session. Files \
                 that it writes to /workspace/files can be read as files/….",
            network,
        ),
        tool::<ReadArguments, Content>(
            "read_file",
            "Read a file",
            "Reads a text file, or a range of its lines. A path is relative to the session's workspace; a path \
                 beneath files/ or skills/ is one of the agent's own files, which outlast sessions.",
            Effect::Reads,
        ),
        tool::<WriteArguments, DoneMessage>(
            "write_file",
            "Write a file",
            "Creates or replaces a text file. Missing directories are created.",
            Effect::Replaces,
        ),
        tool::<EditArguments, DoneMessage>(
            "edit_file",
            "Edit a file",
            "Replaces a text in a text file. If the text does not occur exactly expected_replacements times \
                 (default 1), nothing is changed.",
            Effect::Changes,
        ),
        tool::<ListArguments, Paths>("list_files", "List files", "Lists all files beneath a directory.", Effect::Reads),
        tool::<DeleteArguments, DoneMessage>(
            "delete_file",
            "Delete a file",
            "Deletes a file, or a directory with its content.",
            Effect::Replaces,
        ),
        tool::<StatusArguments, ApprovalState>(
            "approval_status",
            "Check an approval",
            "Returns the state of the approval of an approval_pending result, and the result of the call once it \
                 has run.",
            Effect::Reads,
        ),
    ];
    tools.extend(BROWSER_TOOLS.iter().map(BrowserTool::describe));
    tools
}

/// All built-in tools, as listed with these settings.
pub(super) fn described(network: NetworkAccess, paths: PathControl) -> Vec<Tool> {
    let mut tools = without_paths(network).to_vec();
    for tool in tools.iter_mut().filter(|tool| tool.name == "run_command") {
        let description = format!("{RUN_COMMAND} {}", paths.shown(Locale::English));
        tool.description = tool.description.as_deref().map(|text| text.replacen(RUN_COMMAND, &description, 1).into());
    }
    tools
}

/// All built-in tools without the sentence about the host's files.
pub(super) fn without_paths(network: NetworkAccess) -> &'static [Tool] {
    match network {
        NetworkAccess::Closed => &CLOSED,
        NetworkAccess::Open => &OPEN,
    }
}

/// A tool that runs something in a box.
fn box_tool<I: JsonSchema>(name: &'static str, title: &'static str, description: &str, network: NetworkAccess) -> Tool {
    let sentence = match network {
        NetworkAccess::Closed => "The box has no network.",
        NetworkAccess::Open => "The box reaches only network hosts that the operator or an approval has allowed.",
    };
    Tool::new(name, format!("{description} {sentence}"), schema::<I>())
        .with_title(title)
        .with_raw_output_schema(RUN_SUMMARY_SCHEMA.clone())
        .with_annotations(annotations(title, Effect::Changes, network))
}

fn tool<I: JsonSchema, O: JsonSchema>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
) -> Tool {
    Tool::new(name, description, schema::<I>())
        .with_title(title)
        .with_raw_output_schema(schema::<O>())
        .with_annotations(annotations(title, effect, NetworkAccess::Closed))
}

pub(super) fn annotations(title: &str, effect: Effect, network: NetworkAccess) -> ToolAnnotations {
    let hints = ToolAnnotations::with_title(title)
        .read_only(effect == Effect::Reads)
        .open_world(network == NetworkAccess::Open);
    match effect {
        Effect::Reads => hints.destructive(false).idempotent(true),
        Effect::Moves => hints.destructive(false).idempotent(false),
        Effect::Replaces => hints.destructive(true).idempotent(true),
        Effect::Changes => hints.destructive(true).idempotent(false),
    }
}

#[cfg(test)]
mod tests {
    use ringwall_policy::HostView;

    use super::*;

    /// The default of a new server.
    const FRESH: PathControl = PathControl::Off { view: HostView::ReadOnly, is_writable: false };

    #[test]
    fn run_command_describes_the_visible_host_files() {
        let full = |is_writable| PathControl::Off { view: HostView::Full, is_writable };
        for (control, description) in [
            (PathControl::On, "names another path waits for a person's approval"),
            (FRESH, "/etc, /opt and /srv of the host beside its system directories, read-only"),
            (full(true), "writes wherever Unix permissions let that user write"),
            (full(false), "private files of that user included, read-only"),
        ] {
            let tools = described(NetworkAccess::Closed, control);
            let tool = tools.iter().find(|tool| tool.name == "run_command").unwrap();
            let text = tool.description.as_deref().unwrap();
            assert!(
                text.starts_with(RUN_COMMAND) && text.contains(description) && text.ends_with("no network."),
                "{text}"
            );
            assert_eq!(text.contains("waits for a person"), control == PathControl::On);
        }
    }

    #[test]
    fn tools_that_run_something_describe_their_network() {
        for (network, description) in
            [(NetworkAccess::Closed, "no network"), (NetworkAccess::Open, "reaches only network hosts")]
        {
            let open: Vec<&str> = without_paths(network)
                .iter()
                .filter(|tool| tool.annotations.as_ref().and_then(|hints| hints.open_world_hint) == Some(true))
                .map(|tool| tool.name.as_ref())
                .filter(|name| !name.starts_with("browser_"))
                .collect();
            let runs = ["run_code", "run_command", "run_skill"];
            assert_eq!(open, if network == NetworkAccess::Open { &runs[..] } else { &[] });
            for tool in without_paths(network).iter().filter(|tool| runs.contains(&tool.name.as_ref())) {
                assert!(tool.description.as_deref().is_some_and(|text| text.contains(description)), "{tool:?}");
            }
        }
    }

    /// Read-only, destructive and idempotent: clients decide by these hints whether they ask a
    /// person before a call.
    const HINTS: [(&str, [bool; 3]); 24] = [
        ("run_code", [false, true, false]),
        ("run_command", [false, true, false]),
        ("run_skill", [false, true, false]),
        ("read_file", [true, false, true]),
        ("write_file", [false, true, true]),
        ("edit_file", [false, true, false]),
        ("list_files", [true, false, true]),
        ("delete_file", [false, true, true]),
        ("approval_status", [true, false, true]),
        ("browser_navigate", [false, false, false]),
        ("browser_click", [false, true, false]),
        ("browser_fill", [false, true, false]),
        ("browser_screenshot", [true, false, true]),
        ("browser_content", [true, false, true]),
        ("browser_close", [false, false, false]),
        ("browser_wait_for", [true, false, true]),
        ("browser_press", [false, true, false]),
        ("browser_select", [false, true, false]),
        ("browser_scroll", [false, false, false]),
        ("browser_back", [false, false, false]),
        ("browser_evaluate", [false, true, false]),
        ("browser_download", [false, false, false]),
        ("browser_upload", [false, true, false]),
        ("browser_pdf", [false, false, false]),
    ];

    #[test]
    fn every_tool_has_its_hints() {
        for network in [NetworkAccess::Closed, NetworkAccess::Open] {
            let hints: Vec<(&str, [Option<bool>; 3])> = without_paths(network)
                .iter()
                .map(|tool| {
                    let hints = tool.annotations.as_ref().unwrap();
                    (tool.name.as_ref(), [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint])
                })
                .collect();
            assert_eq!(hints, HINTS.map(|(name, hints)| (name, hints.map(Some))));
        }
    }

    /// docs/mcp-tools.json is the tool list as clients see it. `RINGWALL_WRITE_DOCS=1 cargo test -p
    /// ringwall mcp` updates it.
    #[test]
    fn published_tools_are_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp-tools.json");
        let current = format!("{}\n", serde_json::to_string_pretty(&described(NetworkAccess::Closed, FRESH)).unwrap());
        if std::env::var_os("RINGWALL_WRITE_DOCS").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == current, "docs/mcp-tools.json is out of date; write it with RINGWALL_WRITE_DOCS=1");
        // The network setting changes descriptions and a hint, no schemas.
        for (closed, open) in without_paths(NetworkAccess::Closed).iter().zip(without_paths(NetworkAccess::Open)) {
            assert_eq!((&closed.input_schema, &closed.output_schema), (&open.input_schema, &open.output_schema));
        }
    }

    #[test]
    fn every_tool_has_closed_schemas_and_annotations() {
        for tool in without_paths(NetworkAccess::Closed) {
            assert!(BuiltIn::find(&tool.name).is_some());
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            let output = tool.output_schema.as_ref().expect("an output schema");
            assert_eq!(output["type"], "object", "{}", tool.name);
            let hints = tool.annotations.as_ref().expect("annotations");
            assert!(
                hints.read_only_hint.is_some()
                    && hints.destructive_hint.is_some()
                    && hints.open_world_hint == Some(tool.name.starts_with("browser_"))
            );
        }
        assert!(BuiltIn::find("skill.x").is_none());
    }
}
