//! A sandbox browser and code in the same session box, each as the attacker: code must not reach
//! the browser's control socket, and a web page must not open files.

use serde_json::{Value, json};
use tests::support::wait::wait_until;

use crate::fixture::Fixture;
use crate::pages::{Pages, expect_failure, expect_success};

/// The title of a file that no web page may show.
const LOCAL: &str = "Local";

/// Tries every way to another process's descriptors and memory and prints the results: for the
/// control at a child of its own with a pipe and a socket, then at each process of the browser.
const TAKE_HOLD: &str = r#"
import ctypes, json, os, socket
def attempt(act):
    try:
        act()
        return "ok"
    except OSError as error:
        return "refused"
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
def take_hold(pid):
    told = {}
    for number in (3, 4):
        for mode in ("rb", "wb"):
            def reopen():
                with open(f"/proc/{pid}/fd/{number}", mode, buffering=0) as control:
                    if mode == "wb":
                        control.write(b'{"id":999,"method":"Browser.close"}\0')
            told[f"{mode} {number}"] = attempt(reopen)
        told[f"look {number}"] = attempt(lambda: os.readlink(f"/proc/{pid}/fd/{number}"))
    for name in ("mem", "environ", "maps"):
        told[name] = attempt(lambda: open(f"/proc/{pid}/{name}", "rb").close())
    told["ptrace"] = attempt(lambda: checked(libc.ptrace(16, pid, 0, 0)))
    descriptor = os.pidfd_open(pid)
    told["pidfd_getfd"] = attempt(lambda: checked(libc.syscall(438, descriptor, 3, 0)))
    os.close(descriptor)
    return told
pipe, (ours, theirs) = os.pipe(), socket.socketpair()
child = os.fork()
if child == 0:
    os.dup2(pipe[0], 103)
    os.dup2(theirs.fileno(), 104)
    os.dup2(103, 3)
    os.dup2(104, 4)
    ours.send(b"x")
    signal = __import__("signal").pause()
theirs.recv(1)
def is_browser(pid):
    try:
        return b"/chromium" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[0]
    except OSError:
        return False
browsers = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_browser(name)]
print(json.dumps({"own": take_hold(child), "browsers": {pid: take_hold(pid) for pid in browsers}}))
os.kill(child, 9)
"#;

#[test]
fn sandbox_browser_and_code_of_session_box_are_protected_from_each_other() {
    let pages = Pages::serve(0);
    let host = pages.host();
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_NET_MODE", "allowlist"),
        ("RINGWALL_NET_ALLOW", &host),
        ("RINGWALL_EGRESS_ALLOWED_HOSTS", &host),
    ]);
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let local = json!({ "url": "file:///workspace/local.html" });
    fixture.run_in_session_box(&format!("echo '<title>{LOCAL}</title>kept here' > local.html"));
    let opened = expect_success(fixture.browse_in("navigate", local.clone(), json!({ "needs_file_access": true })));
    assert_eq!(opened["title"], LOCAL, "control: the file can be opened directly");

    code_has_no_hold_on_it(&fixture);
    a_page_of_the_web_opens_no_file(&fixture, &pages);
    a_page_of_the_box_opens_the_boxs_own(&fixture);
    assert_eq!(expect_success(fixture.browse("navigate", local))["title"], LOCAL);
}

fn code_has_no_hold_on_it(fixture: &Fixture) {
    let before = fixture.chromium_processes();
    let [browser] = before[..] else { panic!("{before:?}") };
    for number in [3, 4] {
        let control = std::fs::read_link(format!("/proc/{browser}/fd/{number}")).unwrap();
        // Unlike a pipe, a socket cannot be opened through /proc/PID/fd.
        assert!(control.to_str().unwrap().starts_with("socket:"), "{}", control.display());
    }
    let response: Value =
        serde_json::from_str(&fixture.run_in_session_box(&format!("python3 - <<'END'\n{TAKE_HOLD}\nEND"))).unwrap();
    for way in ["rb 3", "wb 3", "look 3", "look 4", "mem", "environ", "maps"] {
        assert_eq!(response["own"][way], "ok", "the control: {way}: {response}");
    }
    assert_eq!(
        (&response["own"]["rb 4"], &response["own"]["wb 4"]),
        (&json!("refused"), &json!("refused")),
        "{response}"
    );
    let browsers = response["browsers"].as_object().unwrap();
    assert!(browsers.len() > 2, "control: the browser was found: {response}");
    for (process, ways) in browsers {
        for (way, outcome) in ways.as_object().unwrap() {
            assert_eq!(outcome, "refused", "{process}: {way}");
        }
    }
    // The verdict from outside: the same browser still shows the same page.
    assert_eq!(expect_success(fixture.browse("get_content", json!({})))["title"], LOCAL);
    assert_eq!(fixture.chromium_processes(), before);
}

/// Tries a link, a script, a window, a frame and a redirect. As a control, each works with a web
/// page as its target.
fn a_page_of_the_web_opens_no_file(fixture: &Fixture, pages: &Pages) {
    let open = |path: &str| fixture.browse("navigate", json!({ "url": pages.at(path) }));
    let click = |selector: &str| expect_success(fixture.browse("click", json!({ "selector": selector })));
    for way in ["link", "script", "window"] {
        expect_success(open("/leads?/form"));
        click(&format!("#{way}"));
        wait_until(way, || expect_success(fixture.browse("get_content", json!({})))["title"] == "Form");
        expect_success(open("/leads?file:///workspace/local.html"));
        let answer = click(&format!("#{way}"));
        assert!(!answer["url"].as_str().unwrap().starts_with("file:"), "{way}: {answer}");
        let shown = expect_success(fixture.browse("get_content", json!({ "format": "html" })));
        assert!(!shown["content"].as_str().unwrap().contains("kept here"), "{way}: {shown}");
    }
    // `load` waits for frames, so the text is there if and only if the frame was loaded.
    for (target, is_framed) in [("/form", true), ("file:///workspace/local.html", false)] {
        expect_success(open(&format!("/leads?{target}")));
        let shown = expect_success(fixture.browse("get_content", json!({})));
        assert_eq!(shown["content"].as_str().unwrap().contains("framed"), is_framed, "{shown}");
    }
    assert_eq!(expect_success(open("/to?/form"))["title"], "Form");
    let refused = expect_failure(open("/to?file:///workspace/local.html"));
    assert!(refused.contains("ERR_UNSAFE_REDIRECT"), "{refused}");
}

/// A page in the session's files can open files of the box, as code can, but no file of the host.
fn a_page_of_the_box_opens_the_boxs_own(fixture: &Fixture) {
    let secret = fixture.server.data().join("owner.token");
    assert!(secret.exists(), "control: the file exists on the host");
    let lines = format!("<a id=a href=/etc/passwd>a</a> <a id=b href=file://{}>b</a>", secret.display());
    fixture.run_in_session_box(&format!("echo '{lines}' > leads.html"));
    let open = || expect_success(fixture.browse("navigate", json!({ "url": "file:///workspace/leads.html" })));
    open();
    expect_success(fixture.browse("click", json!({ "selector": "#a" })));
    let shown = expect_success(fixture.browse("get_content", json!({})))["content"].clone();
    assert_eq!(shown.as_str().unwrap().trim(), fixture.run_in_session_box("cat /etc/passwd").trim());
    open();
    let answer = fixture.browse("click", json!({ "selector": "#b" }));
    let shown = expect_success(fixture.browse("get_content", json!({})));
    assert!(!shown.to_string().contains(&fixture.server.token), "{answer}");
}
