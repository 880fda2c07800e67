//! Clicks, text, keys and choices.

use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, Error, FieldKind, ScrollTarget, Target, WaitCondition};
use serde_json::json;

use crate::fixture::{Fixture, css};

fn press(key: &str) -> Action {
    Action::Press { key: key.to_owned(), expected: FieldKind::Ordinary }
}

pub async fn form_is_filled_and_sent(fixture: Arc<Fixture>) {
    fixture
        .show(
            "<form action=/echo><label>Name <input name=who value=old></label><input type=date name=day>\
         <textarea name=text></textarea><select name=colour><option value=r>Red<option value=g>Green</select>\
         <input type=checkbox name=agree id=agree><div contenteditable id=free>x</div><button>Send</button></form>\
         <script>window.heard = []; for (const name of ['input', 'change'])\
         document.querySelector('[name=who]').addEventListener(name, (event) => heard.push(event.type))</script>",
        )
        .await;
    fixture.fill("label", "Ada & 年").await;
    assert_eq!(fixture.value("heard").await, json!(["input", "change"]));
    fixture.fill("[name=day]", "2026-02-03").await;
    fixture.fill("textarea", "one\ntwo").await;
    fixture.fill("#free", "written").await;
    assert_eq!(fixture.value("document.querySelector('#free').innerText").await, "written");
    let answer = fixture
        .act(Action::Select { target: css("select"), values: vec!["Green".to_owned()], expected: FieldKind::Ordinary })
        .await;
    assert_eq!(answer.data, json!({ "selected": ["g"] }));
    fixture.click("#agree").await;
    let answer = fixture.click("button").await;
    assert_eq!(answer.title, "Echo", "a click waits for its navigation");
    assert_eq!(answer.data, json!({ "navigated": true }));
    let query = answer.url.split_once('?').unwrap().1.to_owned();
    assert_eq!(query, "who=Ada+%26+%E5%B9%B4&day=2026-02-03&text=one%0D%0Atwo&colour=g&agree=on");
}

pub async fn click_finds_element_by_text(fixture: Arc<Fixture>) {
    fixture
        .show(
            "<p>Sign in to go on</p><button onclick=\"document.title='hit'\">Sign <b>in</b></button>\
         <div style='height:5000px'></div><a href='#' onclick=\"document.title='far'\">Imprint</a>",
        )
        .await;
    let click = |text: &str| Action::Click { target: Target::Text(text.to_owned()) };
    assert_eq!(fixture.act(click("sign in")).await.title, "hit");
    assert_eq!(fixture.act(click("Imprint")).await.title, "far", "the element is scrolled into view");
}

pub async fn keys_with_and_without_modifiers_are_pressed(fixture: Arc<Fixture>) {
    fixture.show(
        "<form action=/echo><input name=q autofocus></form><script>window.seen = []; addEventListener('keydown', (event) =>\
         seen.push([event.key, event.ctrlKey, event.shiftKey]))</script>",
    )
    .await;
    fixture.click("input").await;
    for key in ["a", "Shift+b", "Control+A", "c"] {
        fixture.act(press(key)).await;
    }
    assert_eq!(fixture.value("document.querySelector('input').value").await, "c", "Control+A selected the old text");
    let seen = json!([["a", false, false], ["B", false, true], ["A", true, false], ["c", false, false]]);
    assert_eq!(fixture.value("seen").await, seen);
    assert_eq!(fixture.act(press("Enter")).await.url, fixture.server.url("/echo?q=c"));
    let error = fixture.fail(press("Entre")).await;
    assert!(matches!(error, Error::Key { .. }), "{error}");
}

pub async fn unclickable_element_fails_with_reason(fixture: Arc<Fixture>) {
    fixture.show(
        "<button id=off disabled>off</button>\
         <div style='position:relative;width:90px;height:40px'><button id=below style='width:90px;height:40px'>below</button>\
         <div id=above style='position:absolute;inset:0'></div></div>",
    )
    .await;
    for (selector, words) in [
        ("#nowhere", "nothing matches `#nowhere`; get_content with format outline lists what is there"),
        ("#off", "`#off` cannot be acted on: it is disabled"),
        ("#below", "`#below` cannot be acted on: it is covered by <div#above>"),
    ] {
        let error = fixture.fail(Action::Click { target: css(selector) }).await;
        assert_eq!(error.to_string(), words);
    }
    let error = fixture.fail(Action::Click { target: css("a[") }).await;
    assert!(matches!(error, Error::Selector { .. }), "{error}");
    let fill = Action::Fill { target: css("#above"), text: "x".to_owned(), expected: FieldKind::Ordinary };
    let error = fixture.fail(fill).await;
    assert!(matches!(error, Error::OtherElement { .. }), "{error}");
}

pub async fn unknown_option_fails_and_lists_options(fixture: Arc<Fixture>) {
    fixture.show("<select><option>One<option>Two</select>").await;
    let error = fixture
        .fail(Action::Select { target: css("select"), values: vec!["Three".to_owned()], expected: FieldKind::Ordinary })
        .await;
    assert_eq!(error.to_string(), r#"`select` has no option `Three`; it has "One", "Two""#);
}

pub async fn same_site_frame_is_part_of_page(fixture: Arc<Fixture>) {
    let inner =
        fixture.server.serve("<input id=inner><button onclick=\"top.document.title = inner.value\">Set</button>");
    fixture
        .show(&format!(
            "<div style='height:100px'></div><iframe src='{inner}' style='margin:30px;border:7px solid'></iframe>"
        ))
        .await;
    fixture.fill("#inner", "from within").await;
    assert_eq!(fixture.act(Action::Click { target: Target::Text("Set".to_owned()) }).await.title, "from within");
    assert!(fixture.content(ringwall_browser::Format::Outline).await.contains("- button \"Set\""));
}

pub async fn scroll_moves_page(fixture: Arc<Fixture>) {
    fixture.show("<div style='height:9000px'></div><p id=end>end</p>").await;
    let answer = fixture.act(Action::Scroll { to: ScrollTarget::By { x: 0, y: 500 } }).await;
    assert_eq!(answer.data, json!({ "x": 0, "y": 500 }));
    let answer = fixture.act(Action::Scroll { to: ScrollTarget::Element(css("#end")) }).await;
    assert!(answer.data["y"].as_f64().unwrap() > 7000.0, "{}", answer.data);
}

pub async fn wait_ends_when_condition_holds(fixture: Arc<Fixture>) {
    fixture.show(
        "<p>first</p><script>setTimeout(() => document.body.innerHTML += '<p id=late>second  part</p>', 200)</script>",
    )
    .await;
    let wait = |until, millis| Action::WaitFor { until, timeout: Duration::from_millis(millis) };
    fixture.act(wait(WaitCondition::Element(css("#late")), 20_000)).await;
    fixture.act(wait(WaitCondition::Text("Second part".to_owned()), 20_000)).await;
    fixture.act(wait(WaitCondition::Load, 20_000)).await;
    let error = fixture.fail(wait(WaitCondition::Element(css("#never")), 100)).await;
    assert_eq!(error.to_string(), "`#never` did not appear within 0.1 s");
    let error = fixture.fail(wait(WaitCondition::Text("third".to_owned()), 0)).await;
    assert!(matches!(error, Error::NotSeen { .. }), "{error}");
}
