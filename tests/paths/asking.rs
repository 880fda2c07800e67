//! What a command that names another path waits for, and what becomes of it.

use serde_json::json;

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
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    // And what was taken from the list while one waits is not there when it begins.
    let (exec, question) = lab.ask(&format!("{command} {}", lab.host.path().display()));
    lab.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(one.to_str().unwrap())), None).expect(200);
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    lab.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
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
