//! The tools that are always there: their names, what they say of themselves, and their schemas.
//!
//! A client shows these words and hints to a person before a call, so they are true for the settings in force: whether boxes
//! reach hosts of the network, and what `run_command` shows of the host's files.

use std::sync::LazyLock;

use ringwall_policy::{Locale, NetMode};
use ringwall_service::PathControl;
use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;

use super::answers::{Content, Done, Paths, RAN, Standing};
use super::arguments::{
    CodeArguments, CommandArguments, DeleteArguments, EditArguments, ListArguments, ReadArguments, SkillArguments,
    StatusArguments, WriteArguments, schema,
};
use super::browser_tools::BrowserTool;

/// A tool that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    Browser(BrowserTool),
}

/// What a call does to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// The same again changes nothing more.
    Replaces,
    /// Something is different afterwards, and nothing lost.
    Moves,
    Changes,
}

/// Whether what a call runs can reach anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum World {
    Closed,
    Open,
}

impl From<NetMode> for World {
    fn from(mode: NetMode) -> Self {
        match mode {
            NetMode::None => Self::Closed,
            NetMode::Allowlist => Self::Open,
        }
    }
}

impl BuiltIn {
    const OWN: [Self; 9] = [
        Self::RunCode,
        Self::RunCommand,
        Self::RunSkill,
        Self::ReadFile,
        Self::WriteFile,
        Self::EditFile,
        Self::ListFiles,
        Self::DeleteFile,
        Self::ApprovalStatus,
    ];

    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::OWN.into_iter().chain(BrowserTool::ALL.map(Self::Browser))
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RunCode => "run_code",
            Self::RunCommand => "run_command",
            Self::RunSkill => "run_skill",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::ListFiles => "list_files",
            Self::DeleteFile => "delete_file",
            Self::ApprovalStatus => "approval_status",
            Self::Browser(tool) => tool.name(),
        }
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::all().find(|tool| tool.name() == name)
    }

    fn describe(self, world: World) -> Tool {
        match self {
            Self::Browser(tool) => tool.describe(),
            Self::RunCode => in_a_box::<CodeArguments>(
                self,
                "Run code",
                "Runs Python, JavaScript or shell code in an isolated box, in the session's workspace at /workspace. The \
                 code is judged first: what could do harm waits for a person's approval, and outright destruction is \
                 refused.",
                world,
            ),
            Self::RunCommand => in_a_box::<CommandArguments>(self, "Run a command", RUN_COMMAND, world),
            Self::RunSkill => in_a_box::<SkillArguments>(
                self,
                "Run a skill of the agent's",
                "Runs a program with its arguments, without a shell, in an isolated box, in the directory of one of the \
                 agent's own skills: what its SKILL.md says to run. The box has the agent's files/ and skills/ at \
                 /workspace/files and /workspace/skills, and no session's files; what it leaves in /workspace/files \
                 can be read as files/….",
                world,
            ),
            Self::ReadFile => tool::<ReadArguments, Content>(
                self,
                "Read a file",
                "Reads a text file, whole or some lines of it. A path is relative to the session's workspace; one that \
                 begins with files/ or skills/ is of the agent's own files, which stay when sessions go.",
                Effect::Reads,
            ),
            Self::WriteFile => tool::<WriteArguments, Done>(
                self,
                "Write a file",
                "Creates a text file or replaces it whole, with the directories on the way to it.",
                Effect::Replaces,
            ),
            Self::EditFile => tool::<EditArguments, Done>(
                self,
                "Edit a file",
                "Replaces a piece of a text file. The piece has to be there exactly as often as expected, once unless \
                 said; otherwise nothing is changed.",
                Effect::Changes,
            ),
            Self::ListFiles => {
                tool::<ListArguments, Paths>(self, "List files", "Lists every file beneath a directory.", Effect::Reads)
            }
            Self::DeleteFile => tool::<DeleteArguments, Done>(
                self,
                "Delete a file",
                "Deletes a file, or a directory with everything in it.",
                Effect::Replaces,
            ),
            Self::ApprovalStatus => tool::<StatusArguments, Standing>(
                self,
                "Ask how an approval stands",
                "Says whether a person has answered what an approval_pending result was about, and what became of it.",
                Effect::Reads,
            ),
        }
    }
}

/// [`described`] adds what the box shows of the host.
const RUN_COMMAND: &str = "Runs a line of bash in an isolated box, in the session's workspace at /workspace.";

static CLOSED: LazyLock<Vec<Tool>> = LazyLock::new(|| describe_all(World::Closed));
static OPEN: LazyLock<Vec<Tool>> = LazyLock::new(|| describe_all(World::Open));

fn describe_all(world: World) -> Vec<Tool> {
    BuiltIn::all().map(|tool| tool.describe(world)).collect()
}

/// All of them, as they are listed.
pub(super) fn described(world: World, paths: PathControl) -> Vec<Tool> {
    let mut tools = without_paths(world).to_vec();
    for tool in tools.iter_mut().filter(|tool| tool.name == BuiltIn::RunCommand.name()) {
        let words = format!("{RUN_COMMAND} {}", paths.shown(Locale::English));
        tool.description = tool.description.as_deref().map(|said| said.replacen(RUN_COMMAND, &words, 1).into());
    }
    tools
}

/// The same without the words about the host's files.
pub(super) fn without_paths(world: World) -> &'static [Tool] {
    match world {
        World::Closed => &CLOSED,
        World::Open => &OPEN,
    }
}

/// One that runs something of the caller's.
fn in_a_box<I: JsonSchema>(which: BuiltIn, title: &'static str, words: &str, world: World) -> Tool {
    let network = match world {
        World::Closed => "The box has no network.",
        World::Open => "Of the network it reaches the hosts that an operator or a person has allowed, and no others.",
    };
    Tool::new(which.name(), format!("{words} {network}"), schema::<I>())
        .with_title(title)
        .with_raw_output_schema(RAN.clone())
        .with_annotations(annotations(title, Effect::Changes, world))
}

fn tool<I: JsonSchema, O: JsonSchema>(
    which: BuiltIn,
    title: &'static str,
    words: &'static str,
    effect: Effect,
) -> Tool {
    Tool::new(which.name(), words, schema::<I>())
        .with_title(title)
        .with_raw_output_schema(schema::<O>())
        .with_annotations(annotations(title, effect, World::Closed))
}

pub(super) fn annotations(title: &str, effect: Effect, world: World) -> ToolAnnotations {
    let hints = ToolAnnotations::with_title(title).read_only(effect == Effect::Reads).open_world(world == World::Open);
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

    /// As a new server has it.
    const FRESH: PathControl = PathControl::Off { view: HostView::ReadOnly, is_writable: false };

    #[test]
    fn run_command_says_what_its_box_shows_of_the_host() {
        let full = |is_writable| PathControl::Off { view: HostView::Full, is_writable };
        for (control, words) in [
            (PathControl::On, "names another path waits for a person's approval"),
            (FRESH, "/etc, /opt and /srv of the host beside its system directories, read-only"),
            (full(true), "writes wherever Unix permissions let that user write"),
            (full(false), "private files of that user included, read-only"),
        ] {
            let tools = described(World::Closed, control);
            let tool = tools.iter().find(|tool| tool.name == "run_command").unwrap();
            let said = tool.description.as_deref().unwrap();
            assert!(said.starts_with(RUN_COMMAND) && said.contains(words) && said.ends_with("no network."), "{said}");
            assert_eq!(said.contains("waits for a person"), control == PathControl::On);
        }
    }

    #[test]
    fn what_runs_something_says_whether_it_reaches_anybody() {
        for (world, words) in [(World::Closed, "no network"), (World::Open, "reaches the hosts")] {
            let open: Vec<&str> = without_paths(world)
                .iter()
                .filter(|tool| tool.annotations.as_ref().and_then(|hints| hints.open_world_hint) == Some(true))
                .map(|tool| tool.name.as_ref())
                .filter(|name| !name.starts_with("browser_"))
                .collect();
            let runs = ["run_code", "run_command", "run_skill"];
            assert_eq!(open, if world == World::Open { &runs[..] } else { &[] });
            for tool in without_paths(world).iter().filter(|tool| runs.contains(&tool.name.as_ref())) {
                assert!(tool.description.as_deref().is_some_and(|said| said.contains(words)), "{tool:?}");
            }
        }
    }

    /// What a client shows a person before a call, or decides whether to ask at all by: read-only, destructive, idempotent.
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
    fn every_tool_says_what_it_does_to_what_is_there() {
        for world in [World::Closed, World::Open] {
            let told: Vec<(&str, [Option<bool>; 3])> = without_paths(world)
                .iter()
                .map(|tool| {
                    let hints = tool.annotations.as_ref().unwrap();
                    (tool.name.as_ref(), [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint])
                })
                .collect();
            assert_eq!(told, HINTS.map(|(name, hints)| (name, hints.map(Some))));
        }
    }

    /// What every tool takes, gives and says: whoever changes one sees all that a client sees of it.
    /// `RINGWALL_WRITE_DOCS=1 cargo test -p ringwall mcp` writes it anew.
    #[test]
    fn the_published_tools_are_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp-tools.json");
        let current = format!("{}\n", serde_json::to_string_pretty(&described(World::Closed, FRESH)).unwrap());
        if std::env::var_os("RINGWALL_WRITE_DOCS").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == current, "docs/mcp-tools.json is out of date; write it with RINGWALL_WRITE_DOCS=1");
        // Of what a way out changes, words and a hint are all.
        for (closed, open) in without_paths(World::Closed).iter().zip(without_paths(World::Open)) {
            assert_eq!((&closed.input_schema, &closed.output_schema), (&open.input_schema, &open.output_schema));
        }
    }

    #[test]
    fn every_tool_says_all_of_itself() {
        for tool in without_paths(World::Closed) {
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
        assert_eq!(BuiltIn::find("skill.x"), None);
    }
}
