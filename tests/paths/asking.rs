//! Questions of commands that name unlisted paths, and their answers.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::{Fixture, TestServer, encode, link, open_to_all};
use crate::uncontrolled::FULL;

pub(crate) fn allow_once_covers_one_exec_and_its_paths(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    fixture.file("docs/a", "A");
    fixture.file("docs/b", "B");
    let docs = docs.display();
    // The parser cannot see the second file, so the question does not name it.
    let command = format!("cat {docs}/a; cat $(echo {docs})/$(echo b)");
    let (exec, question) = fixture.ask(&command);
    assert_eq!((&question["kind"], &question["status"]), (&json!("path"), &json!("pending")));
    assert_eq!((&question["command"], &question["session_id"]), (&json!(command), &json!("s")));
    assert!(question["blocked_paths"].as_array().unwrap().contains(&json!(format!("{docs}/a"))), "{question}");
    assert_eq!(fixture.server.exec(&exec)["status"], "AWAITING_APPROVAL");
    fixture.approve(&question, false);
    let ended = fixture.ended(&exec);
    assert_eq!(ended["stdout"], "A", "{ended}");
    // The record distinguishes approved paths from those of the list.
    let once = json!([{ "path": format!("{docs}/a"), "acts_as": "owner", "by": "approval" }]);
    assert_eq!((&ended["policy_snapshot"]["path_control"], &ended["policy_snapshot"]["paths"]), (&json!("on"), &once));
    let noted = fixture.server.ask("GET", &format!("/api/audit?action=exec.policy&exec_id={exec}"), None).expect(200);
    assert_eq!(noted["entries"][0]["details"]["paths"], once, "{noted}");
    assert!(fixture.listed().is_empty());
    let (_, again) = fixture.ask(&format!("cat {docs}/a"));
    assert_ne!(again["id"], question["id"], "the next exec asks again");
    fixture.answer(&fixture.server.token, &question, &json!({ "approved": true, "remember": false })).expect(409);
}

pub(crate) fn remember_adds_requested_directory(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    fixture.directory("docs/below");
    let file = fixture.file("docs/a", "A");
    let (exec, question) = fixture.ask(&format!("cat {}", file.display()));
    assert_eq!(question["requested_paths"], json!([docs]), "the directory of a file");
    fixture.approve(&question, true);
    let ended = fixture.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    assert_eq!(fixture.listed(), [docs.to_str().unwrap()]);
    fixture.output(&format!("ls {}/below", docs.display()));
    let (_, directory) = fixture.ask(&format!("ls {}", fixture.host.path().display()));
    assert_eq!(directory["requested_paths"], json!([fixture.host.path()]), "a directory itself");
    let missing = fixture.host.join("none");
    let (_, none) = fixture.ask(&format!("ls {}", missing.display()));
    assert_eq!(none["requested_paths"], json!([missing]), "a missing path itself");
}

pub(crate) fn denial_is_returned_with_its_reason(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let file = fixture.file("a", "A");
    let (exec, question) = fixture.ask(&format!("echo ran > mark; cat {}", file.display()));
    let refusal = json!({ "approved": false, "remember": false, "reason": "not yours" });
    fixture.answer(&fixture.server.token, &question, &refusal).expect(200);
    let ended = fixture.ended(&exec);
    assert_eq!(
        (&ended["status"], &ended["error_reason"]["code"]),
        (&json!("POLICY_DENIED"), &json!("DENIED_BY_PERSON"))
    );
    assert!(ended["error_reason"]["message"].as_str().unwrap().contains("not yours"), "{ended}");
    assert_eq!(fixture.output("ls"), "", "nothing ran");
}

pub(crate) fn unanswered_question_denies_exec(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    fixture.server.ask("PUT", "/settings", Some(&json!({ "approvals": { "timeout_s": 1 } }))).expect(200);
    let file = fixture.file("a", "A");
    let told = fixture.run(&format!("cat {}", file.display()));
    assert_eq!((&told["status"], &told["error_reason"]["code"]), (&json!("POLICY_DENIED"), &json!("APPROVAL_EXPIRED")));
    assert_eq!((&told["exit_code"], &told["stdout"]), (&json!(null), &json!("")));
}

pub(crate) fn changed_path_list_voids_answer(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let (one, two) = (fixture.directory("one"), fixture.directory("two"));
    let command = format!("ls -d {} {}", one.display(), two.display());
    let (exec, question) = fixture.ask(&command);
    fixture.allow(&one);
    let approval = json!({ "approved": true, "remember": false });
    let refused = fixture.answer(&fixture.server.token, &question, &approval);
    assert_eq!(refused.status, 409, "{refused:?}");
    // A new question asks for the path that is still missing.
    let next = fixture.next_question(&exec, &question);
    assert_eq!(next["blocked_paths"], json!([two]));
    fixture.approve(&next, false);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
    // If the list allows all paths meanwhile, the exec runs without another question.
    let (exec, question) = fixture.ask(&command);
    fixture.allow(&two);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
    assert_eq!(fixture.answer(&fixture.server.token, &question, &approval).status, 409);
    // A path removed from the list while the exec waits is not in its box.
    let (exec, question) = fixture.ask(&format!("{command} {}", fixture.host.path().display()));
    fixture.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(one.to_str().unwrap())), None).expect(200);
    assert_eq!(fixture.answer(&fixture.server.token, &question, &approval).status, 409);
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
}

/// A waiting exec continues as soon as its path is allowed in any way.
pub(crate) fn newly_allowed_path_continues_waiting_exec(test_server: &TestServer) {
    // With path control off only `full` shows the directory of the server's user.
    let fixture = Fixture::controlled(test_server, &[FULL]);
    let docs = fixture.directory("docs");
    let command = format!("ls -d {}", docs.display());
    let ended_by_itself = |exec: &str, question: &Value| {
        assert_eq!(fixture.ended(exec)["status"], "SUCCEEDED");
        let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
        assert_eq!(fixture.server.ask("GET", &path, None).expect(200)["status"], "cancelled");
    };
    let (exec, question) = fixture.ask(&command);
    let entry = fixture.allow(fixture.host.path())["paths"][0]["id"].clone();
    ended_by_itself(&exec, &question);
    // An entry is switched on again.
    let path = format!("/api/sandbox/paths/{entry}");
    fixture.server.ask("PATCH", &path, Some(&json!({ "enabled": false }))).expect(200);
    let (exec, question) = fixture.ask(&command);
    fixture.server.ask("PATCH", &path, Some(&json!({ "enabled": true }))).expect(200);
    ended_by_itself(&exec, &question);
    // Another exec's answer remembers the path.
    fixture.server.ask("DELETE", &path, None).expect(200);
    let ((exec, question), (other, of_other)) = (fixture.ask(&command), fixture.ask(&command));
    fixture.approve(&of_other, true);
    assert_eq!(fixture.ended(&other)["status"], "SUCCEEDED");
    ended_by_itself(&exec, &question);
    // An unrelated change keeps the question.
    let (exec, question) = fixture.ask(&format!("ls -d {}", fixture.host.path().display()));
    fixture.allow(fixture.directory("elsewhere"));
    fixture.approve(&question, false);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
    // Without path control no question is asked.
    let (exec, question) = fixture.ask(&format!("ls -d {}", fixture.host.path().display()));
    fixture.switch(false);
    ended_by_itself(&exec, &question);
}

/// An answer is valid for one exec. Each further exec asks again, identical or with one difference.
pub(crate) fn answer_does_not_cover_changed_request(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    let command = format!("ls -d {}", docs.display());
    let first = json!({ "session_id": "s", "command": command, "cwd": "/workspace", "wait": false });
    let asks = |body: &Value| {
        let begun = fixture.execute(&fixture.server.token, body).expect(202);
        assert_eq!(begun["status"], "AWAITING_APPROVAL", "{body}");
        let exec = begun["exec_id"].as_str().unwrap().to_owned();
        let question = fixture.pending().into_iter().find(|approval| approval["exec_id"] == exec).unwrap();
        (exec, question)
    };
    let (exec, question) = asks(&first);
    fixture.approve(&question, false);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
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
        fixture.answer(&fixture.server.token, &question, &json!({ "approved": true, "remember": false })).expect(409);
        assert_eq!(fixture.server.exec(&exec)["status"], "AWAITING_APPROVAL", "{next}");
        fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    }
    // The request has no environment; variables can only be in the command.
    let mut next = first;
    next["env"] = json!({ "LD_PRELOAD": "/x" });
    assert_eq!(fixture.execute(&fixture.server.token, &next).status, 400);
}

pub(crate) fn cancelled_exec_withdraws_question(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let (exec, question) = fixture.ask(&format!("ls {}", fixture.host.path().display()));
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    assert_eq!(fixture.ended(&exec)["status"], "CANCELLED");
    let answer = fixture.answer(&fixture.server.token, &question, &json!({ "approved": true, "remember": true }));
    assert!([409, 410].contains(&answer.status), "{answer:?}");
    assert!(fixture.listed().is_empty());
}

pub(crate) fn users_answer_applies_to_own_agents_only(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    let token = |words: &[&str]| fixture.server.make_token(words);
    let (ann, bob) = (token(&["--role", "user", "--user", "ann"]), token(&["--role", "user", "--user", "bob"]));
    let agent = token(&["--role", "agent", "--user", "ann", "--agent", "default"]);
    let approval = json!({ "approved": true, "remember": true });
    let (exec, question) = fixture.ask_as(&agent, "s", &format!("ls {}", docs.display()));
    fixture.answer(&agent, &question, &approval).expect(403);
    fixture.answer(&bob, &question, &approval).expect(404);
    fixture.answer(&ann, &question, &approval).expect(200);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
    let told = fixture
        .execute(&bob, &json!({ "session_id": "s", "command": format!("ls {}", docs.display()), "wait": false }));
    assert_eq!(told.expect(202)["status"], "AWAITING_APPROVAL", "ann's entry applies to ann only");
    // A user cannot allow system directories, not even once.
    for remember in [true, false] {
        let (_, question) = fixture.ask_as(&ann, "s", "cat /etc/hostname");
        let answer = json!({ "approved": true, "remember": remember });
        fixture.answer(&ann, &question, &answer).expect(403);
        let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
        assert_eq!(fixture.server.ask("GET", &path, None).expect(200)["status"], "pending");
    }
    let of_bobs = json!({ "session_id": "s", "user_id": "bob", "command": "ls" });
    fixture.execute(&ann, &of_bobs).expect(403);
}

pub(crate) fn several_blocked_paths_are_one_question(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let (one, two) = (fixture.directory("one"), fixture.directory("two"));
    fixture.file("two/f", "x");
    let (exec, question) = fixture.ask(&format!(
        "ls {0} && grep x {1}/f | tee {0}/../three; head -n 1 {1}/f",
        one.display(),
        two.display()
    ));
    let three = fixture.host.join("three");
    assert_eq!(question["blocked_paths"], json!([one, two.join("f"), three]));
    assert_eq!(question["requested_paths"], json!([one, two, three]));
    fixture.answer(&fixture.server.token, &question, &json!({ "approved": false, "remember": false })).expect(200);
    fixture.ended(&exec);
    assert_eq!(fixture.pending().len(), 0);
}

/// `remember` enables a disabled entry if the approver may enable it.
pub(crate) fn remembered_answer_enables_disabled_entry(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    fixture.file("docs/a", "A");
    let command = format!("cat {}/a", docs.display());
    let (off, remember) = (json!({ "enabled": false }), json!({ "approved": true, "remember": true }));
    let switch_off =
        |key: &str| fixture.server.ask("PATCH", &format!("/api/sandbox/paths/{key}"), Some(&off)).expect(200);
    let entries = || {
        let shown = fixture.server.ask("GET", "/api/sandbox", None).expect(200);
        let paths = shown["paths"].as_array().unwrap().clone();
        paths.iter().map(|one| (one["scope"].clone(), one["enabled"].clone())).collect::<Vec<_>>()
    };
    let ann = fixture.server.make_token(&["--role", "user", "--user", "ann"]);
    fixture.allow(&docs);
    switch_off(&encode(docs.to_str().unwrap()));
    let mut own = String::new();
    for _ in 0..2 {
        let (exec, question) = fixture.ask_as(&ann, "s", &command);
        fixture.answer(&ann, &question, &remember).expect(200);
        assert_eq!(fixture.ended(&exec)["stdout"], "A");
        let on = [(json!("global"), json!(false)), (json!("user:ann"), json!(true))];
        assert_eq!(entries(), on, "an entry that an operator disabled stays disabled");
        let shown = fixture.server.ask("GET", "/api/sandbox", None).expect(200);
        own = shown["paths"][1]["id"].to_string();
        switch_off(&own);
    }
    let (exec, question) = fixture.ask(&command);
    fixture.approve(&question, true);
    assert_eq!(fixture.ended(&exec)["stdout"], "A");
    assert_eq!(entries(), [(json!("global"), json!(true)), (json!("user:ann"), json!(false))]);
    assert_eq!(fixture.output(&command), "A", "no further question: {own}");
}

/// An approval is bound to the policy values of its question.
pub(crate) fn changed_policy_voids_answer(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let file = fixture.file("a", "A");
    let (exec, question) = fixture.ask(&format!("cat {}", file.display()));
    let tighter = json!({ "sandbox": { "limits": { "timeout_ms": 12_345 } } });
    fixture.server.ask("PUT", "/settings", Some(&tighter)).expect(200);
    let approval = json!({ "approved": true, "remember": false });
    assert_eq!(fixture.answer(&fixture.server.token, &question, &approval).status, 409);
    let next = fixture.next_question(&exec, &question);
    assert_eq!(next["blocked_paths"], question["blocked_paths"]);
    // A change that does not affect the command keeps the question.
    fixture.server.ask("PUT", "/settings", Some(&json!({ "approvals": { "timeout_s": 50 } }))).expect(200);
    fixture.approve(&next, false);
    let ended = fixture.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    assert_eq!(ended["policy_snapshot"]["limits"]["timeout_ms"], 12_345, "the exec runs under the new policy");
}

/// The stored limit equals the default, so only the layer that sets it changes.
/// `changed_policy_voids_answer` is the control.
pub(crate) fn unchanged_policy_keeps_question(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let file = fixture.file("a", "A");
    let plain = fixture.run("true");
    let pids = &fixture.server.exec(plain["exec_id"].as_str().unwrap())["policy_snapshot"]["limits"]["pids"];
    let (exec, question) = fixture.ask(&format!("cat {}", file.display()));
    for other in [
        fixture.server.ask("GET", "/settings", None).expect(200),
        json!({ "sandbox": { "limits": { "pids": pids } } }),
        json!({ "pool": { "max_instances": 9 } }),
        json!({ "retention": { "execs_days": 30 } }),
    ] {
        fixture.server.ask("PUT", "/settings", Some(&other)).expect(200);
    }
    // An answer to a void question is refused at once, before open questions are reviewed.
    fixture.approve(&question, false);
    let ended = fixture.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    assert_eq!(ended["policy_snapshot"]["layers"]["pids"], "settings", "the layer did change");
}

/// The path is removed from the list while the approved exec waits in the queue.
pub(crate) fn change_after_answer_asks_again(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    fixture.file("docs/a", "A");
    let blocker = fixture.block();
    let command = format!("cat {}/a", docs.display());
    let (exec, question) = fixture.ask(&command);
    let body = json!({ "session_id": "s", "command": "echo unasked", "wait": false });
    let other = fixture.execute(&fixture.server.token, &body).expect(202)["exec_id"].as_str().unwrap().to_owned();
    fixture.approve(&question, true);
    fixture.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap())), None).expect(200);
    fixture.cancel(&blocker);
    let next = fixture.next_question(&exec, &question);
    assert_eq!(fixture.server.exec(&exec)["status"], "AWAITING_APPROVAL");
    assert_eq!(fixture.ended(&other)["status"], "SUCCEEDED", "an exec that waits for approval holds no slot");
    fixture.approve(&next, false);
    let ended = fixture.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    // The second question can also be denied.
    let blocker = fixture.block();
    fixture.allow(&docs);
    let body = json!({ "session_id": "s", "command": command, "wait": false });
    let exec = fixture.execute(&fixture.server.token, &body).expect(202)["exec_id"].as_str().unwrap().to_owned();
    fixture.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap())), None).expect(200);
    fixture.cancel(&blocker);
    let question = fixture.next_question(&exec, &json!({}));
    fixture.answer(&fixture.server.token, &question, &json!({ "approved": false, "remember": false })).expect(200);
    let ended = fixture.ended(&exec);
    assert_eq!(
        (&ended["status"], &ended["error_reason"]["code"]),
        (&json!("POLICY_DENIED"), &json!("DENIED_BY_PERSON"))
    );
}

/// Approving the target of a link allows the link's name too, as long as it leads to that target.
pub(crate) fn approval_of_link_target_covers_link_name(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let (docs, secret, name) = (fixture.directory("docs"), fixture.directory("secret"), fixture.host.join("name"));
    fixture.file("docs/a", "A");
    fixture.file("secret/a", "not for anybody");
    open_to_all(&docs);
    link(&docs, &name);
    let command = format!("cat {}/a", name.display());
    for remember in [false, true] {
        let (exec, question) = fixture.ask(&command);
        assert_eq!(question["blocked_paths"], json!([name.join("a"), docs.join("a")]), "both names are shown");
        assert_eq!(question["requested_paths"], json!([docs]));
        fixture.approve(&question, remember);
        let ended = fixture.ended(&exec);
        assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")), "{ended}");
    }
    assert_eq!(fixture.listed(), [docs.to_str().unwrap()]);
    assert_eq!(fixture.output(&command), "A");
    assert_eq!(fixture.output(&format!("echo new > {0}/b; ls {0}", name.display())), "a\nb\n");
    assert_eq!(fs::read_to_string(docs.join("b")).unwrap(), "new\n");
    let within = json!({ "session_id": "s", "command": "pwd; cat a", "cwd": name });
    let told = fixture.execute(&fixture.server.token, &within).expect(200);
    assert_eq!(told["stdout"], format!("{}\nA", name.display()), "{told}");
    // A link that was retargeted, or replaced by a directory, allows nothing.
    fs::remove_file(&name).unwrap();
    link(&secret, &name);
    let hidden = fixture.run(&format!("d=$(echo {}); cat $d/$(echo a)", name.display()));
    assert!(!hidden.to_string().contains("not for anybody"), "{hidden}");
    let (exec, question) = fixture.ask(&command);
    assert!(question["blocked_paths"].as_array().unwrap().contains(&json!(secret.join("a"))), "{question}");
    fs::remove_file(&name).unwrap();
    fs::rename(&secret, &name).unwrap();
    let answer = fixture.answer(&fixture.server.token, &question, &json!({ "approved": true, "remember": false }));
    assert_eq!(answer.status, 409, "{answer:?}");
    fixture.cancel(&exec);
}

/// A box shows existing paths only. To create something, its directory must be allowed; question
/// and error say so.
pub(crate) fn missing_path_is_not_created_by_approval(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let place = fixture.directory("place");
    open_to_all(&place);
    let new = place.join("new");
    let commands = ["touch NEW", "mkdir NEW", "echo x > NEW"].map(|text| text.replace("NEW", new.to_str().unwrap()));
    for command in &commands {
        let (exec, question) = fixture.ask(command);
        let told = question["patterns"][0].as_str().unwrap_or_default();
        assert!(told.contains(&format!("to create it, allow {}", place.display())), "{question}");
        fixture.approve(&question, false);
        let ended = fixture.ended(&exec);
        assert_eq!((&ended["status"], &ended["error_reason"]["code"]), (&json!("FAILED"), &json!("PATH_MISSING")));
        assert!(!new.exists());
    }
    fixture.allow(&place);
    for command in &commands {
        fixture.output(&format!("{command}; ls -d {0}; rm -r {0}", new.display()));
    }
}

/// A user cannot allow paths with keys, neither the path itself nor one below it.
pub(crate) fn user_cannot_allow_paths_with_keys(test_server: &TestServer) {
    let files = [".ssh/id_ed25519", ".claude/.credentials.json", ".config/gh/hosts.yml", "project/a"];
    let (fixture, home) = Fixture::at_home(test_server, &files);
    fixture.switch(true);
    let ann = fixture.server.make_token(&["--role", "user", "--user", "ann"]);
    for refused in [
        home.clone(),
        fixture.host.path().to_owned(),
        home.join(".ssh"),
        home.join(".claude/.credentials.json"),
        home.join(".config/gh/hosts.yml"),
        home.join(".config"),
    ] {
        for remember in [true, false] {
            let (exec, question) = fixture.ask_as(&ann, "s", &format!("ls {}", refused.display()));
            let answer = json!({ "approved": true, "remember": remember });
            fixture.answer(&ann, &question, &answer).expect(403);
            fixture.cancel(&exec);
        }
    }
    let (exec, question) = fixture.ask_as(&ann, "s", &format!("cat {}/project/a", home.display()));
    fixture.answer(&ann, &question, &json!({ "approved": true, "remember": true })).expect(200);
    assert_eq!(fixture.ended(&exec)["stdout"], "of the home");
    let (exec, question) = fixture.ask_as(&ann, "s", &format!("ls {}", home.display()));
    fixture.approve(&question, false);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED", "an operator may");
}
