//! Downloads and uploads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, DownloadEnd, DownloadSource, Error};

use crate::fixture::{Fixture, css};

const LONG: Duration = Duration::from_secs(60);

pub async fn download_is_complete(fixture: Arc<Fixture>) {
    fixture.show("<a id=d href=/report>report</a><a id=p href='#'>nothing</a>").await;
    let answer = fixture.act(Action::Download { from: DownloadSource::Element(css("#d")), timeout: LONG }).await;
    let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
    assert_eq!((file.name.as_str(), file.end), ("report.csv", DownloadEnd::Complete { bytes: 8 }));
    assert_eq!(std::fs::read_to_string(&file.path).unwrap(), "a,b\n1,2\n");
    let error = fixture
        .fail(Action::Download { from: DownloadSource::Element(css("#p")), timeout: Duration::from_millis(300) })
        .await;
    assert!(matches!(error, Error::NoDownload { .. }), "{error}");
    let answer = fixture.act(Action::Navigate { url: fixture.server.url("/report"), timeout: LONG }).await;
    assert_eq!(answer.downloads.len(), 1, "navigating to a file downloads it");
}

/// The page itself starts a download that never ends and one above the size limit. A requested
/// download still completes, and the large one is reported as failed, so that its partial file can
/// be removed.
pub async fn downloads_of_page_do_not_affect_requested_download(fixture: Arc<Fixture>) {
    fixture
        .show(
            "<a id=e href=/endless download>x</a><a id=h href=/huge download>y</a><a id=d href=/report>z</a>\
         <button onclick=\"e.click(); h.click()\">go</button>",
        )
        .await;
    let mut ended = fixture.click("button").await.downloads;
    let end = tokio::time::Instant::now() + LONG;
    while ended.is_empty() {
        assert!(tokio::time::Instant::now() < end, "the large download was not canceled");
        tokio::time::sleep(Duration::from_millis(50)).await;
        ended = fixture.act(Action::Scroll { to: ringwall_browser::ScrollTarget::By { x: 0, y: 0 } }).await.downloads;
    }
    let [huge] = &ended[..] else { panic!("{ended:?}") };
    assert!(matches!(huge.end, DownloadEnd::Failed { why } if why.contains("64 MiB")), "{huge:?}");
    let answer = fixture.act(Action::Download { from: DownloadSource::Element(css("#d")), timeout: LONG }).await;
    let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
    assert_eq!((file.name.as_str(), file.end), ("report.csv", DownloadEnd::Complete { bytes: 8 }));
}

pub async fn url_download_saves_displayable_content(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    for (path, name, text) in [("/notes.txt", "notes.txt", "only text"), ("/report", "report.csv", "a,b\n1,2\n")] {
        let answer =
            fixture.act(Action::Download { from: DownloadSource::Url(fixture.server.url(path)), timeout: LONG }).await;
        assert_eq!(answer.title, "Plain", "the page stays");
        let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
        assert_eq!(file.name, name);
        assert_eq!(std::fs::read_to_string(&file.path).unwrap(), text);
    }
    assert_eq!(fixture.open("/notes.txt").await.downloads.len(), 0, "later the same URL is shown again");
}

pub async fn hostile_download_name_is_no_path(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    let answer =
        fixture.act(Action::Download { from: DownloadSource::Url(fixture.server.url("/escape")), timeout: LONG }).await;
    let [file] = &answer.downloads[..] else { panic!("{answer:?}") };
    assert!(!file.name.contains('/') && !file.name.starts_with('.'), "{}", file.name);
    assert_eq!(Path::new(&file.path).parent().unwrap(), fixture.directory.path().join("downloads"));
    assert_eq!(std::fs::read_to_string(&file.path).unwrap(), "mine");
}

pub async fn file_is_uploaded(fixture: Arc<Fixture>) {
    let path = fixture.directory.path().join("up.txt");
    std::fs::write(&path, "carried").unwrap();
    let upload = |selector: &str, paths: &[&Path]| Action::Upload {
        target: css(selector),
        paths: paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect(),
    };
    fixture.show("<input type=file id=f><p>text</p>").await;
    fixture.act(upload("#f", &[&path])).await;
    assert_eq!(fixture.value("f.files[0].text()").await, "carried");
    let error = fixture.fail(upload("p", &[&path])).await;
    assert!(matches!(error, Error::OtherElement { .. }), "{error}");
    let error = fixture.fail(upload("#f", &[&path, &path])).await;
    assert!(error.to_string().contains("it takes one file"), "{error}");
}
