//! An action that was approved for one document is not done to another.

use std::sync::Arc;

use ringwall_browser::{Action, Error, FieldKind};

use crate::lab::{Lab, css};

const PASSWORD: &str = "<title>Ask</title><input id=p type=password>";

fn deeds() -> [Action; 3] {
    [
        Action::Fill { target: css("#p"), text: "secret".to_owned(), expected: FieldKind::Password },
        Action::Press { key: "x".to_owned(), expected: FieldKind::Password },
        Action::Evaluate { script: "p.value = 'scripted'".to_owned() },
    ]
}

pub async fn action_for_replaced_document_is_refused(lab: Arc<Lab>) {
    let path = lab.server.serve(PASSWORD);
    lab.open(&path).await;
    for deed in deeds() {
        lab.click("#p").await;
        let asked = lab.browser.document().await.unwrap();
        assert_eq!(asked.url, lab.server.url(&path));
        lab.browser.perform_on(&asked, deed.clone()).await.unwrap();
        assert_ne!(lab.value("p.value").await, "", "control: the action works on the approved document");
        // Another site, another page of the same site, and the same URL loaded again.
        for next in [lab.server.foreign(&path), lab.server.url(&lab.server.serve(PASSWORD)), lab.server.url(&path)] {
            let asked = lab.browser.document().await.unwrap();
            lab.act(Action::Navigate { url: next, timeout: std::time::Duration::from_secs(20) }).await;
            lab.click("#p").await;
            let error = lab.browser.perform_on(&asked, deed.clone()).await.unwrap_err();
            assert!(matches!(error, Error::OtherPage), "{deed:?}: {error}");
            assert_eq!(lab.value("p.value").await, "", "{deed:?}");
        }
    }
    // A document that changes its own URL stays the same document.
    let asked = lab.browser.document().await.unwrap();
    lab.value("history.pushState(1, '', '/elsewhere'); 1").await;
    let [fill, ..] = deeds();
    lab.browser.perform_on(&asked, fill).await.unwrap();
    assert!(lab.browser.document().await.unwrap().url.ends_with("/elsewhere"));
}

/// A popup in front is another page, and so is the page behind it after the popup has closed.
pub async fn action_for_closed_or_hidden_page_is_refused(lab: Arc<Lab>) {
    let path = lab.server.serve(PASSWORD);
    lab.show(&format!("{PASSWORD}<button onclick=\"window.open('{path}')\">Open</button>")).await;
    let behind = lab.browser.document().await.unwrap();
    lab.click("button").await;
    lab.act(Action::WaitFor { until: ringwall_browser::Until::Load, timeout: std::time::Duration::from_secs(20) })
        .await;
    let front = lab.browser.document().await.unwrap();
    let [fill, _, script] = deeds();
    for deed in [fill.clone(), script.clone()] {
        let error = lab.browser.perform_on(&behind, deed).await.unwrap_err();
        assert!(matches!(error, Error::OtherPage), "{error}");
    }
    lab.act(Action::Evaluate { script: "window.close()".to_owned() }).await;
    let is_back = Action::WaitFor {
        until: ringwall_browser::Until::Element(css("button")),
        timeout: std::time::Duration::from_secs(20),
    };
    lab.act(is_back).await;
    for deed in [fill, script] {
        let error = lab.browser.perform_on(&front, deed.clone()).await.unwrap_err();
        assert!(matches!(error, Error::OtherPage), "{error}");
        lab.browser.perform_on(&behind, deed).await.unwrap();
    }
}

/// Also for pages without scripts, and if scripts of the page override the globals.
pub async fn page_cannot_change_document_url(lab: Arc<Lab>) {
    for body in [
        "<p>plain",
        "<script>window.Location = null; document.URL = 'https://bank.example/'; String = () => 'x'</script>",
    ] {
        let path = lab.server.serve(body);
        lab.open(&path).await;
        assert_eq!(lab.browser.document().await.unwrap().url, lab.server.url(&path));
    }
    let [.., script] = deeds();
    let asked = lab.browser.document().await.unwrap();
    let error = lab.browser.perform_on(&asked, script).await.unwrap_err();
    assert!(matches!(error, Error::Script { .. }), "the script's own failure is reported: {error}");
}

/// An approved action succeeds even if it makes the page navigate.
pub async fn action_that_navigates_succeeds(lab: Arc<Lab>) {
    let next = lab.server.serve("<title>Next</title>");
    let go = format!("location.href = '{next}'");
    lab.show(&format!(
        "<input id=p type=password oninput=\"{go}\"><select id=card onchange=\"{go}\"><option>a<option>b</select>"
    ))
    .await;
    let here = lab.browser.document().await.unwrap().url;
    let [_, press, _] = deeds();
    for deed in
        [press, Action::Select { target: css("#card"), values: vec!["b".to_owned()], expected: FieldKind::Ordinary }]
    {
        lab.act(Action::Navigate { url: here.clone(), timeout: std::time::Duration::from_secs(20) }).await;
        lab.click("#p").await;
        let asked = lab.browser.document().await.unwrap();
        lab.browser.perform_on(&asked, deed.clone()).await.unwrap_or_else(|error| panic!("{deed:?}: {error}"));
        lab.wait_for_url(&next).await;
    }
}
