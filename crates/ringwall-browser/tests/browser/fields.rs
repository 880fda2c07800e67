//! Kinds of fields: password and payment fields are recognized, also if a field changes its kind.

use std::sync::Arc;

use ringwall_browser::{Action, Error, FieldKind, Target};

use crate::fixture::{Fixture, css};

fn fill(selector: &str, expected: FieldKind) -> Action {
    Action::Fill { target: css(selector), text: "secret".to_owned(), expected }
}

pub async fn field_kind_follows_type_attributes_and_labels(fixture: Arc<Fixture>) {
    let fields: &[(&str, FieldKind)] = &[
        ("<input>", FieldKind::Ordinary),
        ("<input name=email placeholder='Your e-mail'>", FieldKind::Ordinary),
        ("<textarea name=discard></textarea>", FieldKind::Ordinary),
        ("<input name=compass>", FieldKind::Ordinary),
        ("<input name=account-no>", FieldKind::Ordinary),
        ("<input name=footprint>", FieldKind::Ordinary),
        ("<input name='discard numbers'>", FieldKind::Ordinary),
        ("<input type=password>", FieldKind::Password),
        ("<input type=PassWord>", FieldKind::Password),
        ("<input type=text name=password>", FieldKind::Password),
        ("<input type=text id=userPassword>", FieldKind::Password),
        ("<input autocomplete='section-a current-password'>", FieldKind::Password),
        ("<input autocomplete=new-password>", FieldKind::Password),
        ("<input style='-webkit-text-security:disc'>", FieldKind::Password),
        ("<input aria-label=密码>", FieldKind::Password),
        ("<input name=otp>", FieldKind::Password),
        ("<input id=userOtp>", FieldKind::Password),
        ("<input autocomplete='billing cc-number'>", FieldKind::Payment),
        ("<input autocomplete=cc-exp>", FieldKind::Payment),
        ("<input name=cardNumber>", FieldKind::Payment),
        ("<input name=card_number>", FieldKind::Payment),
        ("<input name=cardnumber>", FieldKind::Payment),
        ("<input id=cvv>", FieldKind::Payment),
        ("<input placeholder='CVC'>", FieldKind::Payment),
        ("<label>Security code <input></label>", FieldKind::Payment),
        ("<select name=cardNumber></select>", FieldKind::Payment),
        ("<select autocomplete=cc-exp-month></select>", FieldKind::Payment),
        ("<select name=month></select>", FieldKind::Ordinary),
    ];
    let body: String =
        fields.iter().enumerate().map(|(index, (field, _))| format!("<div class=f{index}>{field}</div>")).collect();
    fixture.show(&body).await;
    for (index, (field, kind)) in fields.iter().enumerate() {
        let target = css(&format!(".f{index} :is(input, textarea, select)"));
        assert_eq!(fixture.browser.field(&target).await.unwrap(), *kind, "{field}");
    }
    fixture.click(".f7 input").await;
    assert_eq!(fixture.browser.field(&Target::Focused).await.unwrap(), FieldKind::Password);
}

pub async fn fill_of_unexpected_kind_is_refused(fixture: Arc<Fixture>) {
    fixture.show("<input id=p type=password><input id=o>").await;
    let error = fixture.fail(fill("#p", FieldKind::Ordinary)).await;
    let words = "`#p` is a password field, but an ordinary field was expected; nothing was entered";
    assert_eq!(error.to_string(), words);
    assert_eq!(fixture.value("p.value").await, "");
    fixture.fail(fill("#o", FieldKind::Password)).await;
    fixture.act(fill("#p", FieldKind::Password)).await;
    assert_eq!(fixture.value("p.value").await, "secret");
    let error = fixture.fail(Action::Press { key: "x".to_owned(), expected: FieldKind::Ordinary }).await;
    assert!(matches!(error, Error::OtherField { .. }), "{error}");
    fixture.act(Action::Press { key: "x".to_owned(), expected: FieldKind::Password }).await;
    assert_eq!(fixture.value("p.value").await, "secretx");
}

pub async fn select_of_unexpected_kind_is_refused(fixture: Arc<Fixture>) {
    fixture.show("<select id=s autocomplete=cc-exp-month><option>01<option>02</select>").await;
    let choose = |expected| Action::Select { target: css("#s"), values: vec!["02".to_owned()], expected };
    let error = fixture.fail(choose(FieldKind::Ordinary)).await;
    assert!(matches!(error, Error::OtherField { found: FieldKind::Payment, .. }), "{error}");
    assert_eq!(fixture.value("s.value").await, "01");
    fixture.act(choose(FieldKind::Payment)).await;
    assert_eq!(fixture.value("s.value").await, "02");
}

/// Each event turns the field into a password field at another moment of `fill`. Two are harmless:
/// `beforeinput` fires only for a person's input, `select` only after the text was entered into the
/// ordinary field.
pub async fn field_that_changes_kind_is_refused(fixture: Arc<Fixture>) {
    for (event, is_caught) in [("focus", true), ("input", true), ("select", false), ("beforeinput", false)] {
        fixture
            .show(&format!(
                "<input id=f><script>f.addEventListener('{event}', () => {{ f.type = 'password' }})</script>"
            ))
            .await;
        assert_eq!(fixture.browser.field(&css("#f")).await.unwrap(), FieldKind::Ordinary);
        let done = fixture.browser.perform(fill("#f", FieldKind::Ordinary)).await;
        let value = fixture.value("f.value").await;
        match done {
            Ok(_) => assert_eq!((is_caught, value), (false, "secret".into()), "{event}"),
            Err(error) => {
                assert!(matches!(error, Error::OtherField { found: FieldKind::Password, .. }), "{event}: {error}");
                assert_eq!((is_caught, value), (true, "".into()), "{event}");
            }
        }
    }
    fixture.show("<input id=f><input id=p type=password><script>f.onfocus = () => p.focus()</script>").await;
    let error = fixture.fail(fill("#f", FieldKind::Ordinary)).await;
    assert!(error.to_string().contains("does not take the focus"), "{error}");
    assert_eq!(fixture.value("f.value + p.value").await, "");
    fixture.show("<div id=d><input></div>").await;
    assert_eq!(fixture.browser.field(&css("input")).await.unwrap(), FieldKind::Ordinary);
    fixture.value("d.innerHTML = '<input type=password>'; 1").await;
    fixture.fail(fill("input", FieldKind::Ordinary)).await;
}

/// The page overrides the properties by which its fields could be recognized.
pub async fn page_cannot_hide_kind_of_field(fixture: Arc<Fixture>) {
    fixture.show(
        "<input id=p type=password><script>\
         Object.defineProperty(HTMLInputElement.prototype, 'type', { get: () => 'text' });\
         Element.prototype.getAttribute = () => null; String.prototype.toLowerCase = () => 'x';\
         document.querySelector = () => document.body; Object.defineProperty(p, 'value', { set() {}, get: () => '' });</script>",
    )
    .await;
    assert_eq!(fixture.value("p.type").await, "text", "control: the override works for the page's own scripts");
    assert_eq!(fixture.browser.field(&css("#p")).await.unwrap(), FieldKind::Password);
    fixture.fail(fill("#p", FieldKind::Ordinary)).await;
}

pub async fn foreign_frame_counts_as_payment(fixture: Arc<Fixture>) {
    let inner = fixture.server.serve("<body style='margin:0'><input style='width:200px;height:100px'>");
    let inner = fixture.server.foreign(&inner);
    fixture.show(&format!("<iframe src='{inner}' style='width:200px;height:100px'></iframe>")).await;
    fixture.click("iframe").await;
    assert_eq!(fixture.browser.field(&Target::Focused).await.unwrap(), FieldKind::Payment);
    let error = fixture.fail(Action::Press { key: "4".to_owned(), expected: FieldKind::Ordinary }).await;
    assert!(matches!(error, Error::OtherField { .. }), "{error}");
    let outline = fixture.content(ringwall_browser::Format::Outline).await;
    assert!(outline.contains(&format!("(frame of another site: {inner}, not shown)")), "{outline}");
}
