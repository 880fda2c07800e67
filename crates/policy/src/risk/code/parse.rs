//! Text becomes a tree, within bounds that follow from its length and never from a clock.
//!
//! A parser reports its steps, but within one step it may look over the whole text. So the text is served in small pieces
//! and the pieces are counted too: whoever makes the parser read on and on meets the end of the text.

use std::cell::Cell;
use std::ops::ControlFlow;

use tree_sitter::{Language, ParseOptions, ParseState, Parser, Point, Tree};

/// Reports of a hundred steps each that any text may take, and one more for so many bytes of it.
const REPORTS: usize = 500;
const BYTES_PER_REPORT: usize = 16;
const PIECE: usize = 512;
/// How often the text may be read over, on average, beside some reading that any text may take.
const READINGS: usize = 40;
const PIECES: usize = 20_000;

/// None where the text would take more than its share of work.
pub(crate) fn parse(language: &Language, text: &str) -> Option<Tree> {
    let bytes = text.as_bytes();
    let left = Cell::new(PIECES + bytes.len() / PIECE * READINGS);
    let mut reports = REPORTS + bytes.len() / BYTES_PER_REPORT;
    let mut parser = Parser::new();
    parser.set_language(language).ok()?;
    let mut count = |_: &ParseState| {
        reports = reports.saturating_sub(1);
        if reports == 0 || left.get() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut serve = |at: usize, _: Point| {
        let Some(after) = left.get().checked_sub(1) else { return &bytes[..0] };
        left.set(after);
        bytes.get(at..(at + PIECE).min(bytes.len())).unwrap_or_default()
    };
    let options = ParseOptions::new().progress_callback(&mut count);
    let tree = parser.parse_with_options(&mut serve, None, Some(options))?;
    (left.get() > 0).then_some(tree)
}
