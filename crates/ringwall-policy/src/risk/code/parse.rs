//! Text becomes a tree, within bounds that follow from its length and never from a clock.
//!
//! A parser reports its steps, but within one step it may look over the whole text. So the text is served in small pieces
//! and the pieces are counted too: whoever makes the parser read on and on meets the end of the text.

use std::cell::Cell;
use std::ops::ControlFlow;

use tree_sitter::{Language, ParseOptions, ParseState, Parser, Point, Tree};

use crate::risk::work::{self, Work};

/// Reports of a hundred steps each that any text may take, and one more for so many bytes of it. The densest code there is, names
/// and commas, takes nine in ten of these.
const REPORTS: usize = 200;
const BYTES_PER_REPORT: usize = 16;
/// No text may take more: a report can leave sixteen kilobytes behind, and as many microseconds tenfold. Half a megabyte of
/// what people write takes less.
const MAX_REPORTS: usize = 16_000;
/// What a report counts as. In text that is full of faults it takes four times as long.
const PER_REPORT: usize = 2000;
const PIECE: usize = 512;
/// How often the text may be read over, on average, beside some reading that any text may take.
const READINGS: usize = 40;
const PIECES: usize = 4000;

/// What a step of a grammar can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    Short,
    /// It may copy all that was read so far.
    Copying,
}

/// None where the text would take more than its share of work.
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
