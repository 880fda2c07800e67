//! What a command that names another path waits for, and what becomes of it.

use serde_json::{Value, json};

use crate::lab::{Lab, Site, encode};

pub(crate) fn once_is_for_one_exec_and_its_paths(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    lab.file("docs/a", "A");
    lab.file("docs/b", "B");
    let docs = docs.display();
    // The second file is read behind the parser's back: the person was not shown it.
    let command = format!("cat {docs}/a; cat $(echo {docs})/$(echo b)");
    let (exec, question) = lab.ask(&command);
    assert_eq!((&question["kind"], &question["status"]), (&json!("path"), &json!("pending")));
    assert_eq!((&question["command"], &question["session_id"]), (&json!(command), &json!("s")));
    assert!(question["blocked_paths"].as_array().unwrap().contains(&json!(format!("{docs}/a"))), "{question}");
    assert_eq!(lab.server.exec(&exec)["status"], "AWAITING_APPROVAL");
    lab.approve(&question, false);
    let ended = lab.ended(&exec);
    assert!(ended["stdout"].as_str().unwrap().starts_with('A'), "{ended}");
    assert!(lab.listed().is_empty());
    let (_, again) = lab.ask(&format!("cat {docs}/a"));
    assert_ne!(again["id"], question["id"], "the next one asks again");
    lab.answer(&lab.server.token, &question, &json!({ "approved": true, "remember": false })).expect(409);
}

pub(crate) fn remembering_adds_what_was_shown(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    lab.directory("docs/below");
    let file = lab.file("docs/a", "A");
    let (exec, question) = lab.ask(&format!("cat {}", file.display()));
    assert_eq!(question["requested_paths"], json!([docs]), "the directory of a file");
    lab.approve(&question, true);
    let ended = lab.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    assert_eq!(lab.listed(), [docs.to_str().unwrap()]);
    lab.output(&format!("ls {}/below", docs.display()));
    let (_, directory) = lab.ask(&format!("ls {}", lab.host.path().display()));
    assert_eq!(directory["requested_paths"], json!([lab.host.path()]), "a directory itself");
    let missing = lab.host.join("none");
    let (_, none) = lab.ask(&format!("ls {}", missing.display()));
    assert_eq!(none["requested_paths"], json!([missing]), "what is not there yet itself");
}

pub(crate) fn a_refusal_is_told_with_its_reason(site: &Site) {
    let lab = Lab::new(site);
    let file = lab.file("a", "A");
    let (exec, question) = lab.ask(&format!("echo ran > mark; cat {}", file.display()));
    let refusal = json!({ "approved": false, "remember": false, "reason": "not yours" });
    lab.answer(&lab.server.token, &question, &refusal).expect(200);
    let ended = lab.ended(&exec);
    assert_eq!(
        (&ended["status"], &ended["error_reason"]["code"]),
        (&json!("POLICY_DENIED"), &json!("DENIED_BY_PERSON"))
    );
    assert!(ended["error_reason"]["message"].as_str().unwrap().contains("not yours"), "{ended}");
    assert_eq!(lab.output("ls"), "", "nothing ran");
}

pub(crate) fn nobody_answers(site: &Site) {
    let lab = Lab::new(site);
    lab.server.ask("PUT", "/settings", Some(&json!({ "approvals": { "timeout_s": 1 } }))).expect(200);
    let file = lab.file("a", "A");
    let told = lab.run(&format!("cat {}", file.display()));
    assert_eq!((&told["status"], &told["error_reason"]["code"]), (&json!("POLICY_DENIED"), &json!("APPROVAL_EXPIRED")));
    assert_eq!((&told["exit_code"], &told["stdout"]), (&json!(null), &json!("")));
}

pub(crate) fn a_changed_list_makes_an_answer_void(site: &Site) {
    let lab = Lab::new(site);
    let (one, two) = (lab.directory("one"), lab.directory("two"));
    let command = format!("ls -d {} {}", one.display(), two.display());
    let (exec, question) = lab.ask(&command);
    lab.allow(&one);
    let approval = json!({ "approved": true, "remember": false });
    let refused = lab.answer(&lab.server.token, &question, &approval);
    assert_eq!(refused.status, 409, "{refused:?}");
    // It asks anew, with a question of its own, for what is still missing.
    let next = loop {
        let found = lab.pending().into_iter().find(|next| next["exec_id"] == exec && next["id"] != question["id"]);
        match found {
            Some(next) => break next,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(next["blocked_paths"], json!([two]));
    lab.approve(&next, false);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    // Where the list allows all of it by then, it runs without another question.
    let (exec, question) = lab.ask(&command);
    lab.allow(&two);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    // And what was taken from the list while one waits is not there when it begins.
    let (exec, question) = lab.ask(&format!("{command} {}", lab.host.path().display()));
    lab.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(one.to_str().unwrap())), None).expect(200);
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    lab.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
}

/// Who waits for something goes on when it is allowed in any way, and nobody has to answer any more.
pub(crate) fn what_becomes_allowed_is_not_waited_for(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    let command = format!("ls -d {}", docs.display());
    let ended_by_itself = |exec: &str, question: &Value| {
        assert_eq!(lab.ended(exec)["status"], "SUCCEEDED");
        let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
        assert_eq!(lab.server.ask("GET", &path, None).expect(200)["status"], "cancelled");
    };
    let (exec, question) = lab.ask(&command);
    let entry = lab.allow(lab.host.path())["paths"][0]["id"].clone();
    ended_by_itself(&exec, &question);
    // An entry is switched on again.
    let path = format!("/api/sandbox/paths/{entry}");
    lab.server.ask("PATCH", &path, Some(&json!({ "enabled": false }))).expect(200);
    let (exec, question) = lab.ask(&command);
    lab.server.ask("PATCH", &path, Some(&json!({ "enabled": true }))).expect(200);
    ended_by_itself(&exec, &question);
    // Somebody remembers it for another exec.
    lab.server.ask("DELETE", &path, None).expect(200);
    let ((exec, question), (other, of_other)) = (lab.ask(&command), lab.ask(&command));
    lab.approve(&of_other, true);
    assert_eq!(lab.ended(&other)["status"], "SUCCEEDED");
    ended_by_itself(&exec, &question);
    // What concerns it in nothing leaves it waiting.
    let (exec, question) = lab.ask(&format!("ls -d {}", lab.host.path().display()));
    lab.allow(lab.directory("elsewhere"));
    lab.approve(&question, false);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    // Nor is anybody asked where nothing is controlled.
    let (exec, question) = lab.ask(&format!("ls -d {}", lab.host.path().display()));
    lab.switch(false);
    ended_by_itself(&exec, &question);
}

/// An answer is for one exec. Whatever runs next asks for itself, the same again or with one thing changed.
pub(crate) fn an_answer_is_for_nothing_else(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    let command = format!("ls -d {}", docs.display());
    let first = json!({ "session_id": "s", "command": command, "cwd": "/workspace", "wait": false });
    let asks = |body: &Value| {
        let begun = lab.execute(&lab.server.token, body).expect(202);
        assert_eq!(begun["status"], "AWAITING_APPROVAL", "{body}");
        let exec = begun["exec_id"].as_str().unwrap().to_owned();
        let question = lab.pending().into_iter().find(|approval| approval["exec_id"] == exec).unwrap();
        (exec, question)
    };
    let (exec, question) = asks(&first);
    lab.approve(&question, false);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    let docs = docs.display().to_string();
    for (key, value) in [
        ("command", json!(command)),
        ("command", json!(format!("{command} "))),
        ("command", json!(format!("X=1 {command}"))),
        ("command", json!(format!("export PATH=/workspace; {command}"))),
        ("cwd", json!("/tmp")),
        ("cwd", json!(docs)),
        ("session_id", json!("another")),
        ("agent_id", json!("another")),
        ("timeout_ms", json!(1000)),
    ] {
        let mut next = first.clone();
        next[key] = value;
        let (exec, asked) = asks(&next);
        assert_ne!(asked["id"], question["id"], "{next}");
        lab.answer(&lab.server.token, &question, &json!({ "approved": true, "remember": false })).expect(409);
        assert_eq!(lab.server.exec(&exec)["status"], "AWAITING_APPROVAL", "{next}");
        lab.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    }
    // Variables are no part of it: they stand in the command, or nowhere.
    let mut next = first;
    next["env"] = json!({ "LD_PRELOAD": "/x" });
    assert_eq!(lab.execute(&lab.server.token, &next).status, 400);
}

pub(crate) fn whoever_cancels_takes_the_question_back(site: &Site) {
    let lab = Lab::new(site);
    let (exec, question) = lab.ask(&format!("ls {}", lab.host.path().display()));
    lab.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    assert_eq!(lab.ended(&exec)["status"], "CANCELLED");
    let answer = lab.answer(&lab.server.token, &question, &json!({ "approved": true, "remember": true }));
    assert!([409, 410].contains(&answer.status), "{answer:?}");
    assert!(lab.listed().is_empty());
}

pub(crate) fn a_users_word_is_their_own(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    let token = |words: &[&str]| lab.server.make_token(words);
    let (ann, bob) = (token(&["--role", "user", "--user", "ann"]), token(&["--role", "user", "--user", "bob"]));
    let agent = token(&["--role", "agent", "--user", "ann", "--agent", "default"]);
    let approval = json!({ "approved": true, "remember": true });
    let (exec, question) = lab.ask_as(&agent, "s", &format!("ls {}", docs.display()));
    lab.answer(&agent, &question, &approval).expect(403);
    lab.answer(&bob, &question, &approval).expect(404);
    lab.answer(&ann, &question, &approval).expect(200);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    let told =
        lab.execute(&bob, &json!({ "session_id": "s", "command": format!("ls {}", docs.display()), "wait": false }));
    assert_eq!(told.expect(202)["status"], "AWAITING_APPROVAL", "what ann remembers is hers");
    // A root of the system's is not a user's to give, neither for good nor once.
    for remember in [true, false] {
        let (_, question) = lab.ask_as(&ann, "s", "cat /etc/hostname");
        let answer = json!({ "approved": true, "remember": remember });
        lab.answer(&ann, &question, &answer).expect(403);
        let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
        assert_eq!(lab.server.ask("GET", &path, None).expect(200)["status"], "pending");
    }
    let of_bobs = json!({ "session_id": "s", "user_id": "bob", "command": "ls" });
    lab.execute(&ann, &of_bobs).expect(403);
}

pub(crate) fn several_paths_are_one_question(site: &Site) {
    let lab = Lab::new(site);
    let (one, two) = (lab.directory("one"), lab.directory("two"));
    lab.file("two/f", "x");
    let (exec, question) =
        lab.ask(&format!("ls {0} && grep x {1}/f | tee {0}/../three; head -n 1 {1}/f", one.display(), two.display()));
    let three = lab.host.join("three");
    assert_eq!(question["blocked_paths"], json!([one, two.join("f"), three]));
    assert_eq!(question["requested_paths"], json!([one, two, three]));
    lab.answer(&lab.server.token, &question, &json!({ "approved": false, "remember": false })).expect(200);
    lab.ended(&exec);
    assert_eq!(lab.pending().len(), 0);
}
