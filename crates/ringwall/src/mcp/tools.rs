//! The tools that are always there: their names, what they say of themselves, and their schemas.
//!
//! What a client shows a person before a call is made of these words and hints, so they claim nothing that is not so: a
//! box reaches nothing but what it is given, so no tool but the browser's is open to the world.

use std::sync::LazyLock;

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;

use super::answers::{Content, Done, Paths, Ran, Standing};
use super::arguments::{
    CodeArguments, CommandArguments, DeleteArguments, EditArguments, ListArguments, ReadArguments, StatusArguments,
    WriteArguments, schema,
};
use super::browser_tools::BrowserTool;

/// A tool that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuiltIn {
    RunCode,
    RunCommand,
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

impl BuiltIn {
    const OWN: [Self; 8] = [
        Self::RunCode,
        Self::RunCommand,
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

    fn describe(self) -> Tool {
        match self {
            Self::Browser(tool) => tool.describe(),
            Self::RunCode => tool::<CodeArguments, Ran>(
                self,
                "Run code",
                "Runs Python, JavaScript or shell code in an isolated box without a network, in the session's workspace at \
                 /workspace. The code is judged first: what could do harm waits for a person's approval, and outright \
                 destruction is refused.",
                Effect::Changes,
            ),
            Self::RunCommand => tool::<CommandArguments, Ran>(
                self,
                "Run a command",
                "Runs a line of bash in an isolated box, in the session's workspace at /workspace. The box has no network \
                 and sees no files of the host but those that an operator allows; a line that names another path waits \
                 for a person's approval.",
                Effect::Changes,
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

static DESCRIBED: LazyLock<Vec<Tool>> = LazyLock::new(|| BuiltIn::all().map(BuiltIn::describe).collect());

/// All of them, as they are listed.
pub(super) fn described() -> &'static [Tool] {
    &DESCRIBED
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
        .with_annotations(annotations(title, effect))
}

pub(super) fn annotations(title: &str, effect: Effect) -> ToolAnnotations {
    let hints = ToolAnnotations::with_title(title).read_only(effect == Effect::Reads).open_world(false);
    match effect {
        Effect::Reads => hints.destructive(false).idempotent(true),
        Effect::Moves => hints.destructive(false).idempotent(false),
        Effect::Replaces => hints.destructive(true).idempotent(true),
        Effect::Changes => hints.destructive(true).idempotent(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_says_all_of_itself() {
        for tool in described() {
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
