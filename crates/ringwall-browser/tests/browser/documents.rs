//! An action that was approved for one document is not done to another.

use std::sync::Arc;

use ringwall_browser::{Action, Error, FieldKind};

use crate::fixture::{Fixture, css};

const PASSWORD: &str = "<title>Ask</title><input id=p type=password>";

fn actions() -> [Action; 3] {
    [
        Action::Fill { target: css("#p"), text: "secret".to_owned(), expected: FieldKind::Password },
        Action::Press { key: "x".to_owned(), expected: FieldKind::Password },
        Action::Evaluate { script: "p.value = 'scripted'".to_owned() },
    ]
}

pub async fn action_for_replaced_document_is_refused(fixture: Arc<Fixture>) {
    let path = fixture.server.serve(PASSWORD);
    fixture.open(&path).await;
    for action in actions() {
        fixture.click("#p").await;
        let checked = fixture.browser.document().await.unwrap();
        assert_eq!(checked.url, fixture.server.url(&path));
        fixture.browser.perform_on(&checked, action.clone()).await.unwrap();
        assert_ne!(fixture.value("p.value").await, "", "control: the action works on the approved document");
        // Another site, another page of the same site, and the same URL loaded again.
        for next in [
            fixture.server.foreign(&path),
            fixture.server.url(&fixture.server.serve(PASSWORD)),
            fixture.server.url(&path),
        ] {
            let checked = fixture.browser.document().await.unwrap();
            fixture.act(Action::Navigate { url: next, timeout: std::time::Duration::from_secs(20) }).await;
            fixture.click("#p").await;
            let error = fixture.browser.perform_on(&checked, action.clone()).await.unwrap_err();
            assert!(matches!(error, Error::OtherPage), "{action:?}: {error}");
            assert_eq!(fixture.value("p.value").await, "", "{action:?}");
        }
    }
    // A document that changes its own URL stays the same document.
    let checked = fixture.browser.document().await.unwrap();
    fixture.value("history.pushState(1, '', '/elsewhere'); 1").await;
    let [fill, ..] = actions();
    fixture.browser.perform_on(&checked, fill).await.unwrap();
    assert!(fixture.browser.document().await.unwrap().url.ends_with("/elsewhere"));
}

/// A popup in front is another page, and so is the page behind it after the popup has closed.
pub async fn action_for_closed_or_hidden_page_is_refused(fixture: Arc<Fixture>) {
    let path = fixture.server.serve(PASSWORD);
    fixture.show(&format!("{PASSWORD}<button onclick=\"window.open('{path}')\">Open</button>")).await;
    let behind = fixture.browser.document().await.unwrap();
    fixture.click("button").await;
    fixture
        .act(Action::WaitFor {
            until: ringwall_browser::WaitCondition::Load,
            timeout: std::time::Duration::from_secs(20),
        })
        .await;
    let front = fixture.browser.document().await.unwrap();
    let [fill, _, script] = actions();
    for action in [fill.clone(), script.clone()] {
        let error = fixture.browser.perform_on(&behind, action).await.unwrap_err();
        assert!(matches!(error, Error::OtherPage), "{error}");
    }
    fixture.act(Action::Evaluate { script: "window.close()".to_owned() }).await;
    let is_back = Action::WaitFor {
        until: ringwall_browser::WaitCondition::Element(css("button")),
        timeout: std::time::Duration::from_secs(20),
    };
    fixture.act(is_back).await;
    for action in [fill, script] {
        let error = fixture.browser.perform_on(&front, action.clone()).await.unwrap_err();
        assert!(matches!(error, Error::OtherPage), "{error}");
        fixture.browser.perform_on(&behind, action).await.unwrap();
    }
}

/// Also for pages without scripts, and if scripts of the page override the globals.
pub async fn page_cannot_change_document_url(fixture: Arc<Fixture>) {
    for body in [
        "<p>plain",
        "<script>window.Location = null; document.URL = 'https://bank.example/'; String = () => 'x'</script>",
    ] {
        let path = fixture.server.serve(body);
        fixture.open(&path).await;
        assert_eq!(fixture.browser.document().await.unwrap().url, fixture.server.url(&path));
    }
    let [.., script] = actions();
    let checked = fixture.browser.document().await.unwrap();
    let error = fixture.browser.perform_on(&checked, script).await.unwrap_err();
    assert!(matches!(error, Error::Script { .. }), "the script's own failure is reported: {error}");
}

/// An approved action succeeds even if it makes the page navigate.
pub async fn action_that_navigates_succeeds(fixture: Arc<Fixture>) {
    let next = fixture.server.serve("<title>Next</title>");
    let go = format!("location.href = '{next}'");
    fixture
        .show(&format!(
            "<input id=p type=password oninput=\"{go}\"><select id=card onchange=\"{go}\"><option>a<option>b</select>"
        ))
        .await;
    let here = fixture.browser.document().await.unwrap().url;
    let [_, press, _] = actions();
    for action in
        [press, Action::Select { target: css("#card"), values: vec!["b".to_owned()], expected: FieldKind::Ordinary }]
    {
        fixture.act(Action::Navigate { url: here.clone(), timeout: std::time::Duration::from_secs(20) }).await;
        fixture.click("#p").await;
        let checked = fixture.browser.document().await.unwrap();
        fixture
            .browser
            .perform_on(&checked, action.clone())
            .await
            .unwrap_or_else(|error| panic!("{action:?}: {error}"));
        fixture.wait_for_url(&next).await;
    }
}
