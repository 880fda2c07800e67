//! The console in a real browser: a server of its own, and `web/tests` against it with Debian's Chromium.
//!
//! The checks of the pages are in `web/tests`; this test starts them and prints their output if they fail. It skips nothing:
//! without Node, the npm packages, Chromium or a binary that contains the console it fails and names the command to run.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tests::support::server::Server;

#[test]
fn console_passes_browser_tests() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    assert!(web.join("node_modules/playwright-core").exists(), "the console's packages are missing: run `make build`");
    // Sessions can have a callback only if the secret is set.
    let secret = [("RINGWALL_APPROVALS_WEBHOOK_SECRET", "only a trial's, and long enough")];
    let server = Server::start_under(TempDir::with_prefix("rw-console-").unwrap(), &[], &secret);
    let page = server.ask_with("GET", "/", &[], None);
    let page = String::from_utf8_lossy(&page.bytes).into_owned();
    assert!(page.contains("/assets/"), "the binary was built without the console: run `make build`\n{page}");
    // Each asset that the page names exists, has a content type, and may be cached.
    let names: Vec<&str> = page.split('"').filter(|word| word.starts_with("/assets/")).collect();
    assert!(names.len() >= 3, "{page}");
    for name in names {
        let file = server.ask_with("GET", name, &[], None);
        let header = |key: &str| file.headers.get(key).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(
            (file.status, header("cache-control").as_deref()),
            (200, Some("public, max-age=31536000, immutable"))
        );
        assert_ne!(header("content-type").as_deref(), Some("application/octet-stream"), "{name}");
    }
    let run = Command::new("node")
        .arg("tests/run.mjs")
        .current_dir(&web)
        .env("RINGWALL_URL", format!("http://{}", server.address))
        .env("RINGWALL_TOKEN", &server.token)
        .env("RINGWALL_LINK", &server.link)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{words}{}", String::from_utf8_lossy(&run.stderr));
    println!("{words}");
}
