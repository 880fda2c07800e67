//! Downloads and uploads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, DownloadEnd, Error, Origin};

use crate::lab::{Lab, css};

const LONG: Duration = Duration::from_secs(60);

pub async fn download_is_complete(lab: Arc<Lab>) {
    lab.show("<a id=d href=/report>report</a><a id=p href='#'>nothing</a>").await;
    let answer = lab.act(Action::Download { from: Origin::Element(css("#d")), timeout: LONG }).await;
    let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
    assert_eq!((file.name.as_str(), file.end), ("report.csv", DownloadEnd::Whole { bytes: 8 }));
    assert_eq!(std::fs::read_to_string(&file.path).unwrap(), "a,b\n1,2\n");
    let error =
        lab.fail(Action::Download { from: Origin::Element(css("#p")), timeout: Duration::from_millis(300) }).await;
    assert!(matches!(error, Error::NoDownload { .. }), "{error}");
    let answer = lab.act(Action::Navigate { url: lab.server.url("/report"), timeout: LONG }).await;
    assert_eq!(answer.downloads.len(), 1, "navigating to a file downloads it");
}

/// The page itself starts a download that never ends and one above the size limit. A requested
/// download still completes, and the large one is reported as failed, so that its partial file can
/// be removed.
pub async fn downloads_of_page_do_not_affect_requested_download(lab: Arc<Lab>) {
    lab.show(
        "<a id=e href=/endless download>x</a><a id=h href=/huge download>y</a><a id=d href=/report>z</a>\
         <button onclick=\"e.click(); h.click()\">go</button>",
    )
    .await;
    let mut told = lab.click("button").await.downloads;
    let end = tokio::time::Instant::now() + LONG;
    while told.is_empty() {
        assert!(tokio::time::Instant::now() < end, "the large download was not canceled");
        tokio::time::sleep(Duration::from_millis(50)).await;
        told = lab.act(Action::Scroll { to: ringwall_browser::Travel::By { x: 0, y: 0 } }).await.downloads;
    }
    let [huge] = &told[..] else { panic!("{told:?}") };
    assert!(matches!(huge.end, DownloadEnd::Failed { why } if why.contains("64 MiB")), "{huge:?}");
    let answer = lab.act(Action::Download { from: Origin::Element(css("#d")), timeout: LONG }).await;
    let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
    assert_eq!((file.name.as_str(), file.end), ("report.csv", DownloadEnd::Whole { bytes: 8 }));
}

pub async fn url_download_saves_displayable_content(lab: Arc<Lab>) {
    lab.open("/plain").await;
    for (path, name, text) in [("/notes.txt", "notes.txt", "only text"), ("/report", "report.csv", "a,b\n1,2\n")] {
        let answer = lab.act(Action::Download { from: Origin::Url(lab.server.url(path)), timeout: LONG }).await;
        assert_eq!(answer.title, "Plain", "the page stays");
        let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
        assert_eq!(file.name, name);
        assert_eq!(std::fs::read_to_string(&file.path).unwrap(), text);
    }
    assert_eq!(lab.open("/notes.txt").await.downloads.len(), 0, "later the same URL is shown again");
}

pub async fn hostile_download_name_is_no_path(lab: Arc<Lab>) {
    lab.open("/plain").await;
    let answer = lab.act(Action::Download { from: Origin::Url(lab.server.url("/escape")), timeout: LONG }).await;
    let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
    assert!(!file.name.contains('/') && !file.name.starts_with('.'), "{}", file.name);
    assert_eq!(Path::new(&file.path).parent().unwrap(), lab.directory.path().join("downloads"));
    assert_eq!(std::fs::read_to_string(&file.path).unwrap(), "mine");
}

pub async fn file_is_uploaded(lab: Arc<Lab>) {
    let path = lab.directory.path().join("up.txt");
    std::fs::write(&path, "carried").unwrap();
    let upload = |selector: &str, paths: &[&Path]| Action::Upload {
        target: css(selector),
        paths: paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect(),
    };
    lab.show("<input type=file id=f><p>text</p>").await;
    lab.act(upload("#f", &[&path])).await;
    assert_eq!(lab.value("f.files[0].text()").await, "carried");
    let error = lab.fail(upload("p", &[&path])).await;
    assert!(matches!(error, Error::OtherElement { .. }), "{error}");
    let error = lab.fail(upload("#f", &[&path, &path])).await;
    assert!(error.to_string().contains("it takes one file"), "{error}");
}
