//! Parses text within limits that follow from its length, not from a clock.
//!
//! A parser reports every hundred steps, but one step may scan the whole text. The text is
//! therefore served in small pieces, and the pieces are limited too: at the limit the parser gets
//! the end of the text.

use std::cell::Cell;
use std::ops::ControlFlow;

use tree_sitter::{Language, ParseOptions, ParseState, Parser, Point, Tree};

use crate::work::{self, Work};

/// Reports that any text may take, plus one per `BYTES_PER_REPORT` bytes. The densest code, names
/// and commas, takes 90 % of these.
const REPORTS: usize = 200;
const BYTES_PER_REPORT: usize = 16;
/// Limit for all texts: memory and time grow with the reports, by about 16 KB and up to 160 µs
/// each. Half a megabyte of ordinary code takes less.
const MAX_REPORTS: usize = 16_000;
/// Work that a report counts as. In text full of syntax errors a report takes four times as long.
const PER_REPORT: usize = 2000;
const PIECE: usize = 512;
/// How often the text may be read on average, and the pieces that any text may take in addition.
const READINGS: usize = 40;
const PIECES: usize = 4000;

/// The cost of a grammar's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    Short,
    /// A step may copy all that was read so far.
    Copying,
}

/// `None` if the text would exceed a limit.
pub(crate) fn parse(language: &Language, text: &str, steps: Steps, work: &Work) -> Option<Tree> {
    let bytes = text.as_bytes();
    let left = Cell::new(PIECES + bytes.len() / PIECE * READINGS);
    let mut reports = MAX_REPORTS.min(REPORTS + bytes.len() / BYTES_PER_REPORT);
    if steps == Steps::Copying {
        reports = reports.min(1 + work::MAX_COPIED / bytes.len().max(1));
    }
    let mut parser = Parser::new();
    parser.set_language(language).ok()?;
    let mut count = |_: &ParseState| {
        reports = reports.saturating_sub(1);
        let copied = if steps == Steps::Copying { bytes.len() } else { 0 };
        if reports == 0 || left.get() == 0 || !work.spend(PER_REPORT) || !work.spend_copying(copied) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut serve = |at: usize, _: Point| {
        let Some(after) = left.get().checked_sub(1).filter(|_| work.spend_text(PIECE)) else { return &bytes[..0] };
        left.set(after);
        bytes.get(at..(at + PIECE).min(bytes.len())).unwrap_or_default()
    };
    let options = ParseOptions::new().progress_callback(&mut count);
    let tree = parser.parse_with_options(&mut serve, None, Some(options))?;
    (left.get() > 0 && !work.is_spent()).then_some(tree)
}
