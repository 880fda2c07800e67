//! The work for hostile texts grows linearly, and ordinary code takes a small part of the limit.
//!
//! Work is counted and not timed, so the results are the same on every machine. If compiled with
//! `RINGWALL_SOAK=1`, the longest texts are as long as a content may be.

use super::super::assess::{Assessment, MAX_CONTENT, assess_within};
use super::super::level::Content;
use super::{PER_BYTE, Work};
use crate::shapes::Shape;

const IS_SOAK: bool = option_env!("RINGWALL_SOAK").is_some();
/// The lengths that are compared.
const SMALL: usize = if IS_SOAK { MAX_CONTENT / 8 } else { 2 * 1024 };
const LARGE: usize = 8 * SMALL;

/// The work without a limit; a limit would hide how it grows.
fn work(content: Content, text: &str) -> (usize, Assessment) {
    let work = Work::without_bound();
    let before = work.left();
    let assessment = assess_within(&work, content, text);
    (before - work.left(), assessment)
}

fn is_too_complex(assessment: &Assessment) -> bool {
    assessment.findings.iter().any(|finding| finding.rule.id.ends_with(".too_complex"))
}

/// All shapes that take more than ten times the work for eight times the length.
fn out_of_proportion(content: Content) -> Vec<String> {
    let mut wrong = Vec::new();
    for shape in Shape::all().iter().filter(|shape| shape.language == content.key()) {
        if IS_SOAK && shape.text(SMALL).starts_with("{a:") {
            // It takes more of the parser's stack than a test thread has; `tests/quality.rs` provides
            // it.
            continue;
        }
        let (small, _) = work(content, &shape.text(SMALL));
        let (large, _) = work(content, &shape.text(LARGE));
        if large > 10 * small {
            wrong.push(format!("{shape:?}: {small}, {large}"));
        }
    }
    wrong
}

#[test]
fn python_takes_linear_work() {
    assert_eq!(out_of_proportion(Content::Python), [""; 0]);
}

#[test]
fn javascript_takes_linear_work() {
    assert_eq!(out_of_proportion(Content::Javascript), [""; 0]);
}

#[test]
fn shell_and_browser_take_linear_work() {
    assert_eq!(out_of_proportion(Content::Shell), [""; 0]);
    assert_eq!(out_of_proportion(Content::Browser), [""; 0]);
}

/// The snippets of a collection for one language, repeated up to a length.
fn ordinary(language: &str, collection: &str, length: usize) -> String {
    let own = collection.trim_end().split("\n=====\n").filter_map(|block| {
        let (head, code) = block.split_once('\n')?;
        head.starts_with(language).then_some(code)
    });
    let all: String = own.flat_map(|code| [code, "\n"]).collect();
    all.repeat(1 + length / all.len())
}

#[test]
fn ordinary_code_takes_less_than_a_third_of_limit() {
    let collection = include_str!("../tests/snippets/agents.txt");
    for content in [Content::Python, Content::Javascript] {
        let text = ordinary(content.key(), collection, 64 * 1024);
        let (done, assessment) = work(content, &text);
        assert!(
            !is_too_complex(&assessment) && 3 * done < PER_BYTE * text.len(),
            "{content:?}: {done}, {}",
            text.len()
        );
    }
}

#[test]
fn exhausted_limit_is_reported_and_asks() {
    let text = "self.x = os\n".repeat(100);
    let work = Work::for_length(0);
    assert!(work.spend(work.left() - 1000));
    let assessment = assess_within(&work, Content::Python, &text);
    assert!(work.is_spent() && is_too_complex(&assessment) && assessment.requires_confirmation());
    assert!(!work.spend(0), "later calls fail too");
}

#[test]
fn same_content_has_same_work_and_result() {
    let text = "import os\nx = [os.a, os.b]\nfor y in x: y.z(x[0])\nself.x = x\nself.x.y\n".repeat(50);
    let (done, first) = work(Content::Python, &text);
    let (again, second) = work(Content::Python, &text);
    assert_eq!((done, first.level, first.findings), (again, second.level, second.findings));
}
