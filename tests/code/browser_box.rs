//! A sandbox browser and the code beside it in the session's box, each against the other: no hold on the browser's control for
//! whoever runs there, and no file for a page of the web.

use serde_json::{Value, json};
use tests::support::wait::wait_until;

use crate::pages::{Pages, bad, good};
use crate::site::Site;

/// The title of what no page of the web may show.
const LOCAL: &str = "Local";

/// Tries every way to another process's descriptors and memory, and tells what came of each: first at a child of its own with a pipe
/// and a socket as its control, then at each process of the browser.
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
fn a_sandbox_browser_and_the_code_beside_it_have_no_hold_on_each_other() {
    let pages = Pages::serve(0);
    let host = pages.host();
    let site = Site::start_under(&[
        ("RINGWALL_NET_MODE", "allowlist"),
        ("RINGWALL_NET_ALLOW", &host),
        ("RINGWALL_EGRESS_ALLOWED_HOSTS", &host),
    ]);
    site.set(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let local = json!({ "url": "file:///workspace/local.html" });
    site.in_box(&format!("echo '<title>{LOCAL}</title>kept here' > local.html"));
    let opened = good(site.browse_in("navigate", local.clone(), json!({ "needs_file_access": true })));
    assert_eq!(opened["title"], LOCAL, "the control: it is there, for whoever may ask for it");

    code_has_no_hold_on_it(&site);
    a_page_of_the_web_opens_no_file(&site, &pages);
    a_page_of_the_box_opens_the_boxs_own(&site);
    assert_eq!(good(site.browse("navigate", local))["title"], LOCAL);
}

fn code_has_no_hold_on_it(site: &Site) {
    let before = site.browsers();
    let [browser] = before[..] else { panic!("{before:?}") };
    for number in [3, 4] {
        let control = std::fs::read_link(format!("/proc/{browser}/fd/{number}")).unwrap();
        // What cannot be opened by a name, by nobody: a pipe could be.
        assert!(control.to_str().unwrap().starts_with("socket:"), "{}", control.display());
    }
    let told: Value = serde_json::from_str(&site.in_box(&format!("python3 - <<'END'\n{TAKE_HOLD}\nEND"))).unwrap();
    for way in ["rb 3", "wb 3", "look 3", "look 4", "mem", "environ", "maps"] {
        assert_eq!(told["own"][way], "ok", "the control: {way}: {told}");
    }
    assert_eq!((&told["own"]["rb 4"], &told["own"]["wb 4"]), (&json!("refused"), &json!("refused")), "{told}");
    let browsers = told["browsers"].as_object().unwrap();
    assert!(browsers.len() > 2, "the control: it was found: {told}");
    for (process, ways) in browsers {
        for (way, outcome) in ways.as_object().unwrap() {
            assert_eq!(outcome, "refused", "{process}: {way}");
        }
    }
    // Seen from outside: the same one, with the same page.
    assert_eq!(good(site.browse("get_content", json!({})))["title"], LOCAL);
    assert_eq!(site.browsers(), before);
}

/// By a link, a script, a window, a frame and a redirection; each leads elsewhere where that is a page of the web.
fn a_page_of_the_web_opens_no_file(site: &Site, pages: &Pages) {
    let open = |path: &str| site.browse("navigate", json!({ "url": pages.at(path) }));
    let click = |selector: &str| good(site.browse("click", json!({ "selector": selector })));
    for way in ["link", "script", "window"] {
        good(open("/leads?/form"));
        click(&format!("#{way}"));
        wait_until(way, || good(site.browse("get_content", json!({})))["title"] == "Form");
        good(open("/leads?file:///workspace/local.html"));
        let answer = click(&format!("#{way}"));
        assert!(!answer["url"].as_str().unwrap().starts_with("file:"), "{way}: {answer}");
        let shown = good(site.browse("get_content", json!({ "format": "html" })));
        assert!(!shown["content"].as_str().unwrap().contains("kept here"), "{way}: {shown}");
    }
    // A page is loaded when its frames are; what is not let in is no frame's content, and never comes.
    for (target, is_framed) in [("/form", true), ("file:///workspace/local.html", false)] {
        good(open(&format!("/leads?{target}")));
        let shown = good(site.browse("get_content", json!({})));
        assert_eq!(shown["content"].as_str().unwrap().contains("framed"), is_framed, "{shown}");
    }
    assert_eq!(good(open("/to?/form"))["title"], "Form");
    let refused = bad(open("/to?file:///workspace/local.html"));
    assert!(refused.contains("ERR_UNSAFE_REDIRECT"), "{refused}");
}

/// A page of the session's own files can lead to others, as its code can: those of the box, and no others.
fn a_page_of_the_box_opens_the_boxs_own(site: &Site) {
    let secret = site.server.data().join("owner.token");
    assert!(secret.exists(), "the control: it is there outside");
    let lines = format!("<a id=a href=/etc/passwd>a</a> <a id=b href=file://{}>b</a>", secret.display());
    site.in_box(&format!("echo '{lines}' > leads.html"));
    let open = || good(site.browse("navigate", json!({ "url": "file:///workspace/leads.html" })));
    open();
    good(site.browse("click", json!({ "selector": "#a" })));
    let shown = good(site.browse("get_content", json!({})))["content"].clone();
    assert_eq!(shown.as_str().unwrap().trim(), site.in_box("cat /etc/passwd").trim());
    open();
    let answer = site.browse("click", json!({ "selector": "#b" }));
    let shown = good(site.browse("get_content", json!({})));
    assert!(!shown.to_string().contains(&site.server.token), "{answer}");
}
