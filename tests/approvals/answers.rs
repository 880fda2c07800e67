//! The three answers, what each leaves behind, and every way in which an answer counts for nothing.

use std::io::Write as _;
use std::sync::Barrier;

use serde_json::json;

use crate::site::{Site, TEXT, allow, deny, remember};

#[test]
fn once_is_for_this_exec_alone() {
    let site = Site::start();
    let (run, asked) = site.asked("s");
    assert_eq!(site.server.exec(asked["exec_id"].as_str().unwrap())["status"], "AWAITING_APPROVAL");
    let answered = site.answer(&site.server.token, &asked["requestId"], &allow()).expect(200);
    assert_eq!((&answered["status"], &answered["id"]), (&json!("approved"), &asked["requestId"]));
    let ended = run.join().unwrap();
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!(TEXT)), "{ended}");
    let paths = site.control("GET", "", &json!({})).expect(200);
    assert_eq!(paths["paths"], json!([]), "nothing was remembered");
    let (again, asked) = site.asked("s");
    site.answer(&site.server.token, &asked["requestId"], &deny("no")).expect(200);
    assert_eq!(again.join().unwrap()["status"], "POLICY_DENIED");
}

#[test]
fn what_is_remembered_is_not_asked_again() {
    let site = Site::start();
    let (run, asked) = site.asked("s");
    assert_eq!(asked["requestedPath"], json!(site.directory()));
    site.answer(&site.server.token, &asked["requestId"], &remember()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    let paths = site.control("GET", "", &json!({})).expect(200);
    assert_eq!((paths["paths"].as_array().unwrap().len(), &paths["paths"][0]["path"]), (1, &json!(site.directory())));
    let again = site.run(&site.server.token, "another", &site.command()).join().unwrap();
    assert_eq!(again["stdout"], TEXT);
    // Its neighbour was not in the dialog.
    let mut socket = site.follow("s");
    let other = site.run(&site.server.token, "s", &format!("cat {}/file", site.path("other").display()));
    let asked = socket.next();
    site.answer(&site.server.token, &asked["requestId"], &deny("")).expect(200);
    assert_eq!(other.join().unwrap()["status"], "POLICY_DENIED");
}

#[test]
fn a_refusal_is_told_with_its_reason_and_nothing_ran() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let mark = site.path("asked").join("mark");
    let run = site.run(&site.server.token, "s", &format!("touch {}", mark.display()));
    let asked = socket.next();
    let denied = site.answer(&site.server.token, &asked["requestId"], &deny("not on a Friday")).expect(200);
    assert_eq!((&denied["status"], &denied["reason"]), (&json!("denied"), &json!("not on a Friday")));
    let ended = run.join().unwrap();
    assert_eq!(ended["error_reason"]["code"], "DENIED_BY_PERSON");
    assert!(ended["error_reason"]["message"].as_str().unwrap().contains("not on a Friday"), "{ended}");
    assert!(!mark.exists());
}

#[test]
fn an_answer_counts_once() {
    let site = Site::start();
    let (run, asked) = site.asked("s");
    let id = &asked["requestId"];
    site.answer(&site.server.token, id, &allow()).expect(200);
    for again in [allow(), remember(), deny("")] {
        assert_eq!(site.answer(&site.server.token, id, &again).expect(409)["error"]["code"], "CONFLICT");
    }
    run.join().unwrap();
    assert_eq!(site.answer(&site.server.token, id, &allow()).status, 409, "also when its exec is over");
}

#[test]
fn of_many_at_once_one_wins_and_one_runs() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let log = site.path("other").join("log");
    std::fs::write(&log, "").unwrap();
    std::fs::set_permissions(&log, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let run = site.run(&site.server.token, "s", &format!("echo ran >> {}", log.display()));
    let asked = socket.next();
    let barrier = Barrier::new(8);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let answering = |number: usize| {
            let (site, asked, barrier) = (&site, &asked, &barrier);
            move || {
                barrier.wait();
                let body = if number.is_multiple_of(2) { allow() } else { deny("") };
                site.answer(&site.server.token, &asked["requestId"], &body).status
            }
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(answering(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 7, "{statuses:?}");
    let ended = run.join().unwrap();
    let is_approved = site.approval(&asked["requestId"])["status"] == "approved";
    let expected = if is_approved { ("SUCCEEDED", "ran\n") } else { ("POLICY_DENIED", "") };
    assert_eq!((ended["status"].as_str().unwrap(), std::fs::read_to_string(&log).unwrap().as_str()), expected);
}

#[test]
fn without_an_answer_in_time_it_is_no() {
    let site = Site::start_under(&[("RINGWALL_APPROVALS_TIMEOUT_S", "1")]);
    let (run, asked) = site.asked("s");
    let ended = run.join().unwrap();
    assert_eq!(
        (&ended["status"], &ended["error_reason"]["code"]),
        (&json!("POLICY_DENIED"), &json!("APPROVAL_EXPIRED"))
    );
    assert_eq!(site.approval(&asked["requestId"])["status"], "expired");
    let late = site.answer(&site.server.token, &asked["requestId"], &allow()).expect(410);
    assert_eq!(late["error"]["code"], "APPROVAL_EXPIRED");
}

/// A wall clock that somebody set ahead says that it is over; the time that a person has is told by another.
#[test]
fn a_clock_that_was_set_makes_nobody_late() {
    let site = Site::start();
    let (run, asked) = site.asked("s");
    let set = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1], timeout=30)\n\
               base.execute('UPDATE approvals SET expires_at = expires_at - 3600000')\nbase.commit()";
    let database = site.server.data().join("db.sqlite");
    let done = std::process::Command::new("python3").arg("-c").arg(set).arg(&database).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    site.answer(&site.server.token, &asked["requestId"], &allow()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
}

/// Whoever asked may be gone when the answer comes: it runs, and once.
#[test]
fn whoever_hangs_up_has_it_run_exactly_once() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let token = &site.server.token;
    let command = format!("cat {}/file; echo ran >> marks", site.directory());
    let body = json!({ "session_id": "s", "command": command }).to_string();
    let mut caller = site.server.connect();
    let head = format!("POST /api/sandbox/execute HTTP/1.1\r\nhost: {}\r\n", site.server.address);
    let rest = format!("authorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    write!(caller, "{head}{rest}").unwrap();
    let asked = socket.next();
    site.answer(token, &asked["requestId"], &allow()).expect(200);
    drop(caller);
    assert_eq!(site.ended(&asked["exec_id"])["status"], "SUCCEEDED");
    let marks = site.run(token, "s", "cat marks").join().unwrap();
    assert_eq!(marks["stdout"], "ran\n", "{marks}");
    let asked_by = site.server.ask("GET", "/api/audit?action=approval.opened", None).expect(200);
    let from = &asked_by["entries"][0]["details"]["from"];
    assert!(from["door"] == "http" && from["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{asked_by}");
    let switched = site.server.ask("GET", "/api/audit?action=sandbox.enabled", None).expect(200);
    assert_eq!(switched["entries"][0]["details"]["from"]["door"], "http", "{switched}");
}

#[test]
fn what_changed_meanwhile_is_asked_anew() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let both = format!("cat {0}/file {1}/file", site.directory(), site.path("other").display());
    let run = site.run(&site.server.token, "s", &both);
    let first = socket.next();
    assert_eq!(first["blocked_paths"].as_array().unwrap().len(), 2, "{first}");
    site.control("POST", "/paths", &json!({ "path": site.directory() })).expect(200);
    let void = site.answer(&site.server.token, &first["requestId"], &allow());
    assert_eq!(void.expect(409)["error"]["code"], "CONFLICT");
    let resolved = socket.next();
    assert_eq!((&resolved["requestId"], &resolved["status"]), (&first["requestId"], &json!("cancelled")));
    let second = socket.next();
    assert_eq!(second["type"], "permission_request");
    assert_eq!(second["requestedPaths"], json!([site.path("other")]));
    assert_eq!(site.answer(&site.server.token, &first["requestId"], &allow()).status, 409);
    site.answer(&site.server.token, &second["requestId"], &allow()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], format!("{TEXT}{TEXT}"));
}

#[test]
fn a_cancelled_exec_takes_its_question_back() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let id = site.begin(&site.server.token, "s", &site.command());
    let asked = socket.next();
    site.server.ask("DELETE", &format!("/sandbox/execs/{id}"), None).expect(202);
    let resolved = socket.next();
    assert_eq!((&resolved["type"], &resolved["status"]), (&json!("permission_resolved"), &json!("cancelled")));
    assert_eq!(site.answer(&site.server.token, &asked["requestId"], &allow()).status, 409);
    assert_eq!(site.server.exec(&id)["status"], "CANCELLED");
}

#[test]
fn what_is_no_answer_changes_nothing() {
    let site = Site::start();
    let (run, asked) = site.asked("s");
    let id = &asked["requestId"];
    for bad in [
        json!({}),
        json!({ "approved": "yes" }),
        json!({ "approved": null }),
        json!({ "remember": true }),
        json!({ "approved": true, "path": "/" }),
        json!({ "approved": true, "reason": "x".repeat(3000) }),
        json!([true]),
    ] {
        assert_eq!(site.answer(&site.server.token, id, &bad).expect(400)["error"]["code"], "INVALID_ARGUMENT", "{bad}");
    }
    for unknown in ["a_0123456789abcdef0123456789abcdef", "x", "%2e%2e"] {
        let missing = site.answer(&site.server.token, &json!(unknown), &allow());
        assert_eq!(missing.expect(404)["error"]["code"], "NOT_FOUND", "{unknown}");
    }
    assert_eq!(site.approval(id)["status"], "pending");
    site.answer(&site.server.token, id, &allow()).expect(200);
    run.join().unwrap();
}

#[test]
fn a_page_of_nothing_is_malformed() {
    let site = Site::start();
    for (limit, status) in [("0", 400), ("-1", 400), ("x", 400), ("1", 200), ("100000", 200)] {
        assert_eq!(site.server.ask("GET", &format!("/api/approvals?limit={limit}"), None).status, status, "{limit}");
    }
}
