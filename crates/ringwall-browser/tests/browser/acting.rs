//! Clicks, text, keys and choices.

use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, Error, FieldKind, Target, Travel, Until};
use serde_json::json;

use crate::lab::{Lab, css};

fn press(key: &str) -> Action {
    Action::Press { key: key.to_owned(), expected: FieldKind::Ordinary }
}

pub async fn form_is_filled_and_sent(lab: Arc<Lab>) {
    lab.show(
        "<form action=/echo><label>Name <input name=who value=old></label><input type=date name=day>\
         <textarea name=text></textarea><select name=colour><option value=r>Red<option value=g>Green</select>\
         <input type=checkbox name=agree id=agree><div contenteditable id=free>x</div><button>Send</button></form>\
         <script>window.heard = []; for (const name of ['input', 'change'])\
         document.querySelector('[name=who]').addEventListener(name, (event) => heard.push(event.type))</script>",
    )
    .await;
    lab.fill("label", "Ada & 年").await;
    assert_eq!(lab.value("heard").await, json!(["input", "change"]));
    lab.fill("[name=day]", "2026-02-03").await;
    lab.fill("textarea", "one\ntwo").await;
    lab.fill("#free", "written").await;
    assert_eq!(lab.value("document.querySelector('#free').innerText").await, "written");
    let answer = lab
        .act(Action::Select { target: css("select"), values: vec!["Green".to_owned()], expected: FieldKind::Ordinary })
        .await;
    assert_eq!(answer.data, json!({ "selected": ["g"] }));
    lab.click("#agree").await;
    let answer = lab.click("button").await;
    assert_eq!(answer.title, "Echo", "a click waits for its navigation");
    assert_eq!(answer.data, json!({ "navigated": true }));
    let query = answer.url.split_once('?').unwrap().1.to_owned();
    assert_eq!(query, "who=Ada+%26+%E5%B9%B4&day=2026-02-03&text=one%0D%0Atwo&colour=g&agree=on");
}

pub async fn click_finds_element_by_text(lab: Arc<Lab>) {
    lab.show(
        "<p>Sign in to go on</p><button onclick=\"document.title='hit'\">Sign <b>in</b></button>\
         <div style='height:5000px'></div><a href='#' onclick=\"document.title='far'\">Imprint</a>",
    )
    .await;
    let click = |text: &str| Action::Click { target: Target::Text(text.to_owned()) };
    assert_eq!(lab.act(click("sign in")).await.title, "hit");
    assert_eq!(lab.act(click("Imprint")).await.title, "far", "the element is scrolled into view");
}

pub async fn keys_with_and_without_modifiers_are_pressed(lab: Arc<Lab>) {
    lab.show(
        "<form action=/echo><input name=q autofocus></form><script>window.seen = []; addEventListener('keydown', (event) =>\
         seen.push([event.key, event.ctrlKey, event.shiftKey]))</script>",
    )
    .await;
    lab.click("input").await;
    for key in ["a", "Shift+b", "Control+A", "c"] {
        lab.act(press(key)).await;
    }
    assert_eq!(lab.value("document.querySelector('input').value").await, "c", "Control+A selected the old text");
    let seen = json!([["a", false, false], ["B", false, true], ["A", true, false], ["c", false, false]]);
    assert_eq!(lab.value("seen").await, seen);
    assert_eq!(lab.act(press("Enter")).await.url, lab.server.url("/echo?q=c"));
    let error = lab.fail(press("Entre")).await;
    assert!(matches!(error, Error::Key { .. }), "{error}");
}

pub async fn unclickable_element_fails_with_reason(lab: Arc<Lab>) {
    lab.show(
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
        let error = lab.fail(Action::Click { target: css(selector) }).await;
        assert_eq!(error.to_string(), words);
    }
    let error = lab.fail(Action::Click { target: css("a[") }).await;
    assert!(matches!(error, Error::Selector { .. }), "{error}");
    let fill = Action::Fill { target: css("#above"), text: "x".to_owned(), expected: FieldKind::Ordinary };
    let error = lab.fail(fill).await;
    assert!(matches!(error, Error::OtherElement { .. }), "{error}");
}

pub async fn unknown_option_fails_and_lists_options(lab: Arc<Lab>) {
    lab.show("<select><option>One<option>Two</select>").await;
    let error = lab
        .fail(Action::Select { target: css("select"), values: vec!["Three".to_owned()], expected: FieldKind::Ordinary })
        .await;
    assert_eq!(error.to_string(), r#"`select` has no option `Three`; it has "One", "Two""#);
}

pub async fn same_site_frame_is_part_of_page(lab: Arc<Lab>) {
    let inner = lab.server.serve("<input id=inner><button onclick=\"top.document.title = inner.value\">Set</button>");
    lab.show(&format!(
        "<div style='height:100px'></div><iframe src='{inner}' style='margin:30px;border:7px solid'></iframe>"
    ))
    .await;
    lab.fill("#inner", "from within").await;
    assert_eq!(lab.act(Action::Click { target: Target::Text("Set".to_owned()) }).await.title, "from within");
    assert!(lab.content(ringwall_browser::Format::Outline).await.contains("- button \"Set\""));
}

pub async fn scroll_moves_page(lab: Arc<Lab>) {
    lab.show("<div style='height:9000px'></div><p id=end>end</p>").await;
    let answer = lab.act(Action::Scroll { to: Travel::By { x: 0, y: 500 } }).await;
    assert_eq!(answer.data, json!({ "x": 0, "y": 500 }));
    let answer = lab.act(Action::Scroll { to: Travel::To(css("#end")) }).await;
    assert!(answer.data["y"].as_f64().unwrap() > 7000.0, "{}", answer.data);
}

pub async fn wait_ends_when_condition_holds(lab: Arc<Lab>) {
    lab.show(
        "<p>first</p><script>setTimeout(() => document.body.innerHTML += '<p id=late>second  part</p>', 200)</script>",
    )
    .await;
    let wait = |until, millis| Action::WaitFor { until, timeout: Duration::from_millis(millis) };
    lab.act(wait(Until::Element(css("#late")), 20_000)).await;
    lab.act(wait(Until::Text("Second part".to_owned()), 20_000)).await;
    lab.act(wait(Until::Load, 20_000)).await;
    let error = lab.fail(wait(Until::Element(css("#never")), 100)).await;
    assert_eq!(error.to_string(), "`#never` did not appear within 0.1 s");
    let error = lab.fail(wait(Until::Text("third".to_owned()), 0)).await;
    assert!(matches!(error, Error::NotSeen { .. }), "{error}");
}
