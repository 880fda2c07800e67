//! Parses text by the grammar of bash, or reports where it is malformed.
//!
//! The parser is limited by the length of the text and by its steps, not by time, so the same text
//! always has the same result. Trees are walked with a cursor and without recursion, so a deeply
//! nested line cannot overflow the stack.

use std::ops::ControlFlow;

use ringwall_risk::shell_syntax::find_fault;
use tree_sitter::{ParseOptions, ParseState, Parser, Point, Tree};

use crate::error::{Error, quote};

/// Maximum length of a text in bytes.
pub(super) const MAX_LEN: usize = 256 * 1024;
/// Limit of the parser's work. It reports every hundred steps, and in the worst case a step
/// examines the whole text, so each report costs the length of the text: 16 KiB may take about
/// 6,000 steps, 256 KiB about 400. Without the limit some lines need minutes.
const MAX_WORK: usize = 1_000_000;
/// Limit of the bytes parsed for one line, including texts in it that are parsed separately.
const MAX_BYTES: usize = 1024 * 1024;
/// Limit of the bytes copied from these texts.
const MAX_COPIED: usize = 16 * 1024 * 1024;

const MAX_ESCAPED_RETURNS: usize = 64;

/// The remaining work for one line.
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
    /// Counts bytes that are read.
    pub(super) fn read(&mut self, length: usize) -> Result<(), Error> {
        self.bytes = self.bytes.checked_sub(length).ok_or(Error::CommandTooComplex)?;
        Ok(())
    }

    /// Counts bytes that were copied.
    pub(super) fn copy(&mut self, length: usize) -> Result<(), Error> {
        self.copies = self.copies.checked_sub(length).ok_or(Error::CommandTooComplex)?;
        Ok(())
    }

    /// Bytes read so far.
    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> usize {
        MAX_BYTES - self.bytes
    }

    /// Bytes read and copied so far plus the parser's steps, each counted with the length of the
    /// text.
    #[cfg(test)]
    pub(super) fn done(&self, length: usize) -> usize {
        let reports = (MAX_WORK - self.work) / length;
        self.bytes_read() + (MAX_COPIED - self.copies) + 100 * reports
    }
}

pub(super) fn parse(text: &str, budget: &mut Budget) -> Result<Tree, Error> {
    if text.len() > MAX_LEN {
        return Err(Error::CommandTooLong { length: text.len(), max: MAX_LEN });
    }
    // The lexer takes NUL for the end of the text.
    if text.contains('\0') {
        return Err(Error::CommandNul);
    }
    // The lexer takes backslash-CR for a line continuation, unlike the shell, and scans all of them
    // for each one without a progress report.
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

fn malformed(text: &str, at: usize, position: Point) -> Error {
    let near = text.get(at..).unwrap_or_default().lines().next().unwrap_or_default();
    Error::CommandMalformed { line: position.row + 1, column: position.column + 1, near: quote(near) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_line_is_reported_with_position() {
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
    fn hostile_shape_ends_within_work_limit() {
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
            // Each shape ends within the work limit. Without the limit this test takes minutes.
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
