//! Outlines, text, screenshots, PDFs and script values.

use std::sync::Arc;

use ringwall_browser::{Action, Error, FieldKind, Format, ScreenshotArea, Target};
use serde_json::json;

use crate::fixture::{Fixture, css};

pub async fn outline_references_can_be_acted_on(fixture: Arc<Fixture>) {
    fixture.show(
        "<title>Shop</title><nav><a href=/plain>Home</a></nav><main><h1>Our <i>shop</i></h1><p>Buy <b>now</b> or later.</p>\
         <form><label>E-mail <input type=email value=a@b.c required></label>\
         <label><input type=checkbox checked> News</label><input type=password placeholder=Password value=hunter2>\
         <select aria-label=Size><option>S<option selected>M</select><button disabled>Order</button></form>\
         <ul><li>one<li><a href=#two>two</a></ul><div style='display:none'><button>no</button></div>\
         <div onclick=\"document.title='clicked'\">Click me</div><img src=x alt='A cat'><button aria-label=Close>×</button></main>",
    )
    .await;
    let outline = fixture.content(Format::Outline).await;
    let first: u64 = outline.split_once("[ref=e").unwrap().1.split(']').next().unwrap().parse().unwrap();
    let r = |offset: u64| format!("[ref=e{}]", first + offset);
    let expected = [
        "- navigation".to_owned(),
        format!("  - link \"Home\" {} -> /plain", r(0)),
        "- main".to_owned(),
        "  - heading \"Our shop\" [level=1]".to_owned(),
        "  - paragraph".to_owned(),
        "    - text: Buy now or later.".to_owned(),
        "  - form".to_owned(),
        "    - text: E-mail".to_owned(),
        format!("    - textbox \"E-mail\" [required] {}: \"a@b.c\"", r(1)),
        format!("    - checkbox \"News\" [checked] {}", r(2)),
        "    - text: News".to_owned(),
        format!("    - textbox \"Password\" [password] {}: (hidden)", r(3)),
        format!("    - combobox \"Size\" {}: \"M\" of \"S\", \"M\"", r(4)),
        format!("    - button \"Order\" [disabled] {}", r(5)),
        "  - list".to_owned(),
        "    - listitem".to_owned(),
        "      - text: one".to_owned(),
        "    - listitem".to_owned(),
        format!("      - link \"two\" {} -> #two", r(6)),
        format!("  - clickable \"Click me\" {}", r(7)),
        "  - image \"A cat\"".to_owned(),
        format!("  - button \"Close\" {}", r(8)),
    ];
    assert_eq!(outline, expected.join("\n"));
    let target = Target::Reference(format!("e{}", first + 7));
    assert_eq!(fixture.act(Action::Click { target }).await.title, "clicked");
    let target = Target::Reference(format!("e{}", first + 1));
    fixture.act(Action::Fill { target, text: "d@e.f".to_owned(), expected: FieldKind::Ordinary }).await;
    assert!(fixture.content(Format::Outline).await.contains("\"d@e.f\""));
}

/// Frames of other sites are listed with any role attribute or sandbox. A frame of the same
/// site is part of the page.
pub async fn foreign_frames_are_listed_in_outline(fixture: Arc<Fixture>) {
    let inner = fixture.server.serve("<p>inside");
    let (own, foreign) = (inner.clone(), fixture.server.foreign(&inner));
    fixture
        .show(&format!(
            "<iframe role=presentation src='{foreign}?a'></iframe><iframe src='{own}'></iframe>\
         <iframe sandbox srcdoc='<p>apart'></iframe><object type=text/html data='{foreign}?o'></object>"
        ))
        .await;
    let outline = fixture.content(Format::Outline).await;
    let listed = outline.lines().filter(|line| line.contains("not shown")).count();
    assert_eq!((listed, outline.matches("inside").count()), (3, 1), "{outline}");
    for url in [format!("{foreign}?a"), "about:srcdoc".to_owned(), format!("{foreign}?o")] {
        assert!(outline.contains(&format!("(frame of another site: {url}, not shown)")), "{url}: {outline}");
    }
}

pub async fn outdated_reference_is_refused(fixture: Arc<Fixture>) {
    let reference = |outline: &str| {
        let name = outline.split_once("[ref=").unwrap().1.split(']').next().unwrap();
        Action::Click { target: Target::Reference(name.to_owned()) }
    };
    fixture.show("<button>Go</button>").await;
    let old = reference(&fixture.content(Format::Outline).await);
    fixture.act(old.clone()).await;
    let new = reference(&fixture.content(Format::Outline).await);
    let error = fixture.fail(old).await;
    assert!(error.to_string().contains("is not of this page's last outline"), "{error}");
    fixture.act(new.clone()).await;
    fixture.value("document.querySelector('button').remove()").await;
    let error = fixture.fail(new.clone()).await;
    assert!(matches!(error, Error::StaleReference { .. }), "removed: {error}");
    fixture.show("<button>Go</button>").await;
    let error = fixture.fail(new).await;
    assert!(matches!(error, Error::StaleReference { .. }), "another document: {error}");
    for wrong in ["12", "e", "e-1", "button"] {
        let error = fixture.fail(Action::Click { target: Target::Reference(wrong.to_owned()) }).await;
        assert!(matches!(error, Error::Reference { .. }), "{error}");
    }
}

pub async fn text_and_html_are_read(fixture: Arc<Fixture>) {
    fixture.show("<!doctype html><title>T</title><p>one</p><p hidden>unseen</p>").await;
    assert_eq!(fixture.content(Format::Text).await.trim(), "one");
    let html = fixture.content(Format::Html).await;
    assert!(html.starts_with("<!DOCTYPE html>\n<html>") && html.contains("<p hidden=\"\">unseen</p>"), "{html}");
}

/// Width and height of a PNG.
fn size(picture: &[u8]) -> (u32, u32) {
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
    let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

pub async fn screenshot_has_requested_extent(fixture: Arc<Fixture>) {
    let body = "<body style='margin:0'><div id=a style='width:120px;height:50px;background:red'></div>";
    fixture.show(&format!("{body}<div style='height:3000px'>")).await;
    let shot = |of| Action::Screenshot { of };
    let (width, height) = size(&fixture.act(shot(ScreenshotArea::Viewport)).await.screenshot.unwrap());
    assert!(width > 600 && (300..2000).contains(&height), "{width}×{height}");
    assert_eq!(size(&fixture.act(shot(ScreenshotArea::FullPage)).await.screenshot.unwrap()), (width, 3050));
    assert_eq!(size(&fixture.act(shot(ScreenshotArea::Element(css("#a")))).await.screenshot.unwrap()), (120, 50));
    fixture.show(&format!("{body}<div style='height:900000px'>")).await;
    let answer = fixture.act(shot(ScreenshotArea::FullPage)).await;
    let (width, height) = size(&answer.screenshot.unwrap());
    assert!(u64::from(width) * u64::from(height) <= 16_000_000, "{width}×{height}");
    assert_eq!(answer.data, json!({ "truncated": true }));
}

pub async fn page_is_printed_as_pdf(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    assert!(fixture.act(Action::Pdf).await.pdf.unwrap().starts_with(b"%PDF-"));
}

pub async fn script_returns_value_or_fails(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    assert_eq!(fixture.value("({ a: [1, 'x', null] })").await, json!({ "a": [1, "x", null] }));
    assert_eq!(fixture.value("Promise.resolve(document.title)").await, "Plain");
    assert_eq!(fixture.value("undefined").await, json!(null));
    assert_eq!(fixture.value("10n ** 20n").await, "100000000000000000000n");
    for (script, words) in [("throw new Error('no')", "Error: no"), ("1 +", "SyntaxError"), ("throw 7", "7")] {
        let error = fixture.fail(Action::Evaluate { script: script.to_owned() }).await;
        assert!(matches!(&error, Error::Script { .. }) && error.to_string().contains(words), "{error}");
    }
}

pub async fn large_or_cyclic_script_value_fails(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    let run = |script: &str| Action::Evaluate { script: script.to_owned() };
    let error = fixture.fail(run("'x'.repeat(2e6)")).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let error = fixture.fail(run("'x'.repeat(7e7)")).await;
    assert!(matches!(error, Error::TooLarge { .. }), "larger than a message may be: {error}");
    assert_eq!(fixture.value("'\\ud800' + 'x'").await, "\u{fffd}x");
    fixture.browser.perform(run("let deep = []; for (let i = 0; i < 900; i++) deep = [deep]; deep")).await.unwrap_err();
    fixture.fail(run("const ring = {}; ring.ring = ring; ring")).await;
    assert_eq!(fixture.value("document.title").await, "Plain");
}
