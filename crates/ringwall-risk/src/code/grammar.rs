//! The interface of a language: the shapes of its nodes that determine what a name can be.

use super::arguments::Arguments;
use super::scopes::Scopes;
use super::syntax::{Id, Opens, Syntax};
use super::value::Value;
use crate::findings::{Findings, Lines};
use crate::rule::Index;

/// The shape of a node.
#[derive(Debug)]
pub(crate) enum Shape {
    Name(String),
    Member(Id, String),
    /// `a[b]`
    Part(Id, Id),
    /// `a[::-1]`
    Reversed(Id),
    Call(Id, Vec<Id>),
    Text(String),
    Number(i64),
    /// Texts to be joined.
    Joined(Vec<Id>),
    /// A format template and its arguments.
    Filled(Id, Vec<Id>),
    Items(Vec<Id>),
    /// One of these.
    Either(Vec<Id>),
    Same(Id),
    Function,
    Other,
}

/// A call to be inspected.
pub(crate) struct Call<'c> {
    /// A possible path of the called function.
    pub(crate) path: &'c str,
    pub(crate) arguments: &'c Arguments<'c>,
    /// The nodes of the arguments, including named ones.
    pub(crate) nodes: &'c [Id],
    pub(crate) line: usize,
    /// The lines of the text that contains the call.
    pub(crate) lines: Lines,
}

impl Call<'_> {
    /// The lines of the text in the first argument. If the source has another number of line
    /// breaks, the text was computed, and all of its lines are that of the argument.
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

    /// True if a node of this kind can refer to something. Cheaper than `shape`, because it is
    /// called for every node.
    fn refers(kind: &str) -> bool;

    /// Adds the names that a node binds, and marks nodes that are not expressions.
    fn bind(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes);

    /// The modules that a node imports.
    fn imports(syntax: &Syntax<'_>, id: Id) -> Vec<String>;

    /// The path of a member, in one form for all spellings.
    fn member(base: &str, name: &str) -> String;

    /// The path of `base["name"]`, if that is a member.
    fn part(base: &str, name: &str) -> Option<String>;

    /// The result of a call, if it is known.
    fn result(path: &str, arguments: &Arguments<'_>) -> Option<Value>;

    /// The result of a method of a text.
    fn text_method(text: &str, method: &str, arguments: &Arguments<'_>) -> Option<Value>;

    /// Rules about arguments, and nested texts.
    fn inspect_call(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings);

    /// Rules about a node itself.
    fn inspect_node(_syntax: &Syntax<'_>, _id: Id, _line: usize, _findings: &mut Findings) {}

    fn index() -> &'static Index;

    /// The ids of the rules for syntax errors and for exceeded limits.
    const SYNTAX: &'static str;
    const TOO_COMPLEX: &'static str;

    /// The path of a function literal.
    const FUNCTION: &'static str;
}
