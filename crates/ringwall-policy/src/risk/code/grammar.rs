//! What a language says of its nodes: the few shapes that matter for what a name can be.

use super::arguments::Arguments;
use super::scopes::Scopes;
use super::syntax::{Id, Opens, Syntax};
use super::value::Value;
use crate::risk::findings::{Findings, Lines};
use crate::risk::rule::Index;

/// A node, as far as it matters.
#[derive(Debug)]
pub(crate) enum Shape {
    Name(String),
    Member(Id, String),
    /// `a[b]`
    Part(Id, Id),
    /// Backwards: `a[::-1]`
    Reversed(Id),
    Call(Id, Vec<Id>),
    Text(String),
    Number(i64),
    /// Texts after one another.
    Joined(Vec<Id>),
    /// A template and what is put into its gaps.
    Filled(Id, Vec<Id>),
    Items(Vec<Id>),
    /// One of these.
    Either(Vec<Id>),
    Same(Id),
    Function,
    Other,
}

/// A call that is being looked at.
pub(crate) struct Call<'c> {
    /// What the called thing can be.
    pub(crate) path: &'c str,
    pub(crate) arguments: &'c Arguments<'c>,
    /// The nodes of the arguments, named ones too.
    pub(crate) nodes: &'c [Id],
    pub(crate) line: usize,
    /// Those of the text in which it stands.
    pub(crate) lines: Lines,
}

impl Call<'_> {
    /// Where the rows of a text are that is handed over first. Where it is not written there as it is, it was put together.
    pub(crate) fn lines_of(&self, syntax: &Syntax<'_>, text: &str) -> Lines {
        let Some(node) = self.nodes.first() else { return Lines::All(self.line) };
        let (row, written) = (syntax.node(*node).row, syntax.text(*node));
        let breaks = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
        match syntax.work.spend_text(written.len()) && breaks(written) == breaks(text) {
            true => self.lines.within(row),
            false => Lines::All(self.lines.of(row)),
        }
    }
}

pub(crate) trait Grammar {
    fn opens(kind: &str) -> Opens;

    fn shape(syntax: &Syntax<'_>, id: Id) -> Shape;

    /// Whether a node of this kind can name something. Asked of every node, where the shape of each would be too much.
    fn refers(kind: &str) -> bool;

    /// Enters the names that a node binds, and marks nodes that are no expressions.
    fn bind(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes);

    /// The modules that a node imports.
    fn imports(syntax: &Syntax<'_>, id: Id) -> Vec<String>;

    /// The path of a member, where many spellings mean one thing.
    fn member(base: &str, name: &str) -> String;

    /// The path of `base["name"]`, if that is the member of something.
    fn part(base: &str, name: &str) -> Option<String>;

    /// What a call gives, where that is known.
    fn result(path: &str, arguments: &Arguments<'_>) -> Option<Value>;

    /// What a method of a text gives.
    fn text_method(text: &str, method: &str, arguments: &Arguments<'_>) -> Option<Value>;

    /// What no name alone tells: rules about arguments, and texts that are run.
    fn inspect_call(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings);

    /// Whatever a node is by itself.
    fn inspect_node(_syntax: &Syntax<'_>, _id: Id, _line: usize, _findings: &mut Findings) {}

    fn index() -> &'static Index;

    /// The ids of the rules for what is not of the language, and for what is too much.
    const SYNTAX: &'static str;
    const TOO_COMPLEX: &'static str;

    /// The path of a function that is written out.
    const FUNCTION: &'static str;
}
