//! Text becomes a tree, or the place where it stops being a command line.
//!
//! The parser is bounded by the length of what it is given and by the steps that it may take, not by a clock: the same
//! line always has the same answer. Trees are only ever walked by a cursor; no depth of a line is a depth of our stack.

use std::borrow::Cow;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Point, Tree};

use crate::error::{Error, quote};

/// What the kernel takes as one argument, which a line for `bash -c` is.
pub(super) const MAX_LEN: usize = 256 * 1024;
/// How much the parser may do. It reports every hundred steps, and in the worst case each of them looks at the whole text:
/// so a report costs the text's length. Sixteen kilobytes may take 6,000 steps, hundreds of commands; the longest text,
/// which is one large word among few, 700. Without the bound there are lines that need minutes.
const MAX_WORK: usize = 1_000_000;
/// How much may be read for one line, with everything in it that is read once more as a line of its own.
const MAX_BYTES: usize = 1024 * 1024;
/// How much may be copied out of all of that.
const MAX_COPIED: usize = 16 * 1024 * 1024;

const MAX_ESCAPED_RETURNS: usize = 64;

/// What is left of the bounds for one line.
#[derive(Debug)]
pub(super) struct Budget {
    work: usize,
    bytes: usize,
    copies: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { work: MAX_WORK, bytes: MAX_BYTES, copies: MAX_COPIED }
    }
}

impl Budget {
    /// Counts something that is read.
    pub(super) fn read(&mut self, length: usize) -> Result<(), Error> {
        self.bytes = self.bytes.checked_sub(length).ok_or(Error::CommandTooComplex)?;
        Ok(())
    }

    /// Counts something that was copied.
    pub(super) fn copy(&mut self, length: usize) -> Result<(), Error> {
        self.copies = self.copies.checked_sub(length).ok_or(Error::CommandTooComplex)?;
        Ok(())
    }

    /// What was read so far.
    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> usize {
        MAX_BYTES - self.bytes
    }

    /// What was read and copied so far, and the steps of the parser: each counts as much as the text is long.
    #[cfg(test)]
    pub(super) fn done(&self, length: usize) -> usize {
        let reports = (MAX_WORK - self.work) / length;
        self.bytes_read() + (MAX_COPIED - self.copies) + 100 * reports
    }
}

/// The same text, read the same by the shell, with a blank before every backslash that begins a line: the lexer takes such
/// a line for a part of the one before, and a command on it for an argument. A line that goes on is left as it is.
pub(crate) fn set_apart(text: &str) -> Cow<'_, str> {
    const TOGETHER: &str = "\n\\";
    if !text.contains(TOGETHER) {
        return Cow::Borrowed(text);
    }
    let mut apart = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(TOGETHER) {
        let (line, next) = rest.split_at(at);
        apart.push_str(line);
        apart.push('\n');
        let goes_on = line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        if !goes_on {
            apart.push(' ');
        }
        rest = next.get(1..).unwrap_or_default();
    }
    apart.push_str(rest);
    Cow::Owned(apart)
}

pub(super) fn parse(text: &str, budget: &mut Budget) -> Result<Tree, Error> {
    if text.len() > MAX_LEN {
        return Err(Error::CommandTooLong { length: text.len(), longest: MAX_LEN });
    }
    // The lexer takes it for the end of the text.
    if text.contains('\0') {
        return Err(Error::CommandNul);
    }
    // The lexer takes it for a line that goes on, which it is not to the shell, and looks over all of them for each one,
    // without a report.
    if text.matches("\\\r").count() > MAX_ESCAPED_RETURNS {
        return Err(Error::CommandTooComplex);
    }
    budget.read(text.len())?;
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).map_err(|_| Error::CommandTooComplex)?;
    let mut count = |_: &ParseState| match budget.work.checked_sub(text.len()) {
        Some(left) => {
            budget.work = left;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let bytes = text.as_bytes();
    let mut from = |at: usize, _: Point| bytes.get(at..).unwrap_or_default();
    let options = ParseOptions::new().progress_callback(&mut count);
    let tree = parser.parse_with_options(&mut from, None, Some(options)).ok_or(Error::CommandTooComplex)?;
    match find_fault(&tree) {
        None => Ok(tree),
        Some(fault) => Err(malformed(text, fault.start_byte(), fault.start_position())),
    }
}

/// The first place that is no shell.
pub(crate) fn find_fault(tree: &Tree) -> Option<Node<'_>> {
    if !tree.root_node().has_error() {
        return None;
    }
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            return Some(node);
        }
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return Some(tree.root_node());
            }
        }
    }
}

fn malformed(text: &str, at: usize, position: Point) -> Error {
    let near = text.get(at..).unwrap_or_default().lines().next().unwrap_or_default();
    Error::CommandMalformed { line: position.row + 1, column: position.column + 1, near: quote(near) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_with_its_place() {
        let fault = |text| parse(text, &mut Budget::default()).map(drop).map_err(|error| error.to_string());
        assert_eq!(fault("ls | cat"), Ok(()));
        let said = fault("ls\necho a | | cat").expect_err("two pipes");
        assert!(said.contains("line 2") && said.contains("| cat"), "{said}");
        for bad in ["ls )", "echo \"open", "echo 'open", "if ls", "echo $(ls", "&& ls", "ls &&", "a\0b", "for x in"] {
            assert!(fault(bad).is_err(), "{bad}");
        }
        let long = "a".repeat(MAX_LEN);
        assert_eq!(fault(&long), Ok(()));
        assert!(fault(&format!("{long}a")).expect_err("one byte more").contains("262144"));
    }

    #[test]
    fn hostile_shapes_end() {
        let shapes = [
            "(",
            "$(",
            "\"$(",
            "`",
            "cat <<A\n",
            "<<A ",
            "<<-A\n",
            "<<<",
            "{ ",
            "if ",
            "ls | ",
            "ls;",
            "a && ",
            "${a:-",
            "${a#",
            "$[",
            "a=(",
            "for ((",
            "case a in ",
            "[[ ",
            "[[ a =~ (",
            "<(",
            "$((",
            "f() { ",
            "\\\r",
        ];
        for shape in shapes {
            // Whatever is said of it is said soon, by the bound where not before: without it this test takes minutes.
            let mut budget = Budget::default();
            let found = parse(&shape.repeat(MAX_LEN / shape.len()), &mut budget).map(drop);
            let is_early = shape == "\\\r";
            let is_used_up = budget.work < MAX_LEN;
            assert_eq!(found == Err(Error::CommandTooComplex), is_early || is_used_up, "{shape}: {found:?}");
        }
        let deep = format!("{}ls{}", "(".repeat(1000), ")".repeat(1000));
        assert!(parse(&deep, &mut Budget::default()).is_ok());
        let mut spent = Budget { work: 10_000, ..Budget::default() };
        assert_eq!(parse(&deep, &mut spent).map(drop), Err(Error::CommandTooComplex));
        let mut spent = Budget { bytes: 3, ..Budget::default() };
        assert_eq!(parse("true", &mut spent).map(drop), Err(Error::CommandTooComplex));
    }
}
