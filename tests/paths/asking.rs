//! Questions of commands that name unlisted paths, and their answers.

use std::fs;

use serde_json::{Value, json};

use crate::lab::{Lab, Site, encode, link, open_to_all};
use crate::uncontrolled::FULL;

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
    assert_eq!(ended["stdout"], "A", "{ended}");
    // The record distinguishes approved paths from those of the list.
    let once = json!([{ "path": format!("{docs}/a"), "acts_as": "owner", "by": "approval" }]);
    assert_eq!((&ended["policy_snapshot"]["path_control"], &ended["policy_snapshot"]["paths"]), (&json!("on"), &once));
    let noted = lab.server.ask("GET", &format!("/api/audit?action=exec.policy&exec_id={exec}"), None).expect(200);
    assert_eq!(noted["entries"][0]["details"]["paths"], once, "{noted}");
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

pub(crate) fn unanswered_question_denies_exec(site: &Site) {
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
    let next = lab.next_question(&exec, &question);
    assert_eq!(next["blocked_paths"], json!([two]));
    lab.approve(&next, false);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    // If the list allows all its paths by then, it runs without another question.
    let (exec, question) = lab.ask(&command);
    lab.allow(&two);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    // A path removed from the list while the exec waits is not in its box.
    let (exec, question) = lab.ask(&format!("{command} {}", lab.host.path().display()));
    lab.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(one.to_str().unwrap())), None).expect(200);
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    lab.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
}

/// A waiting exec continues as soon as its path is allowed in any way.
pub(crate) fn newly_allowed_path_continues_waiting_exec(site: &Site) {
    // Off shows the directory of the server's user in `full` alone.
    let lab = Lab::controlled(site, &[FULL]);
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
    // Another exec's answer remembers the path.
    lab.server.ask("DELETE", &path, None).expect(200);
    let ((exec, question), (other, of_other)) = (lab.ask(&command), lab.ask(&command));
    lab.approve(&of_other, true);
    assert_eq!(lab.ended(&other)["status"], "SUCCEEDED");
    ended_by_itself(&exec, &question);
    // An unrelated change keeps the question.
    let (exec, question) = lab.ask(&format!("ls -d {}", lab.host.path().display()));
    lab.allow(lab.directory("elsewhere"));
    lab.approve(&question, false);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED");
    // Without path control no question is asked.
    let (exec, question) = lab.ask(&format!("ls -d {}", lab.host.path().display()));
    lab.switch(false);
    ended_by_itself(&exec, &question);
}

/// An answer is valid for one exec. The next one asks again, also with only one difference.
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

pub(crate) fn cancelled_exec_withdraws_question(site: &Site) {
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

/// A disabled entry is enabled by an approver who may do so and remembers it.
pub(crate) fn remembered_answer_enables_disabled_entry(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    lab.file("docs/a", "A");
    let command = format!("cat {}/a", docs.display());
    let (off, remember) = (json!({ "enabled": false }), json!({ "approved": true, "remember": true }));
    let switch_off = |key: &str| lab.server.ask("PATCH", &format!("/api/sandbox/paths/{key}"), Some(&off)).expect(200);
    let entries = || {
        let shown = lab.server.ask("GET", "/api/sandbox", None).expect(200);
        let paths = shown["paths"].as_array().unwrap().clone();
        paths.iter().map(|one| (one["scope"].clone(), one["enabled"].clone())).collect::<Vec<_>>()
    };
    let ann = lab.server.make_token(&["--role", "user", "--user", "ann"]);
    lab.allow(&docs);
    switch_off(&encode(docs.to_str().unwrap()));
    let mut own = String::new();
    for _ in 0..2 {
        let (exec, question) = lab.ask_as(&ann, "s", &command);
        lab.answer(&ann, &question, &remember).expect(200);
        assert_eq!(lab.ended(&exec)["stdout"], "A");
        let on = [(json!("global"), json!(false)), (json!("user:ann"), json!(true))];
        assert_eq!(entries(), on, "what an operator switched off stays off");
        let shown = lab.server.ask("GET", "/api/sandbox", None).expect(200);
        own = shown["paths"][1]["id"].to_string();
        switch_off(&own);
    }
    let (exec, question) = lab.ask(&command);
    lab.approve(&question, true);
    assert_eq!(lab.ended(&exec)["stdout"], "A");
    assert_eq!(entries(), [(json!("global"), json!(true)), (json!("user:ann"), json!(false))]);
    assert_eq!(lab.output(&command), "A", "it is not asked about again: {own}");
}

/// An approval is for one policy: where an operator tightens that meanwhile, the answer is to another question.
pub(crate) fn a_changed_policy_makes_an_answer_void(site: &Site) {
    let lab = Lab::new(site);
    let file = lab.file("a", "A");
    let (exec, question) = lab.ask(&format!("cat {}", file.display()));
    let tighter = json!({ "sandbox": { "limits": { "timeout_ms": 12_345 } } });
    lab.server.ask("PUT", "/settings", Some(&tighter)).expect(200);
    let approval = json!({ "approved": true, "remember": false });
    assert_eq!(lab.answer(&lab.server.token, &question, &approval).status, 409);
    let next = lab.next_question(&exec, &question);
    assert_eq!(next["blocked_paths"], question["blocked_paths"]);
    // A change that does not affect the command keeps the question.
    lab.server.ask("PUT", "/settings", Some(&json!({ "approvals": { "timeout_s": 50 } }))).expect(200);
    lab.approve(&next, false);
    let ended = lab.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    assert_eq!(ended["policy_snapshot"]["limits"]["timeout_ms"], 12_345, "the new policy is what it ran under");
}

/// The stored limit is the one that commands of sessions have anyway, so only the layer that sets it changes.
/// `a_changed_policy_makes_an_answer_void` is the control.
pub(crate) fn unchanged_policy_keeps_question(site: &Site) {
    let lab = Lab::new(site);
    let file = lab.file("a", "A");
    let plain = lab.run("true");
    let pids = &lab.server.exec(plain["exec_id"].as_str().unwrap())["policy_snapshot"]["limits"]["pids"];
    let (exec, question) = lab.ask(&format!("cat {}", file.display()));
    for other in [
        lab.server.ask("GET", "/settings", None).expect(200),
        json!({ "sandbox": { "limits": { "pids": pids } } }),
        json!({ "pool": { "max_instances": 9 } }),
        json!({ "retention": { "execs_days": 30 } }),
    ] {
        lab.server.ask("PUT", "/settings", Some(&other)).expect(200);
    }
    // The answer itself is refused if its question is void, also before the review of open questions gets to it.
    lab.approve(&question, false);
    let ended = lab.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    assert_eq!(ended["policy_snapshot"]["layers"]["pids"], "settings", "the layer did change");
}

/// Between the answer and the box there may be a queue, and in it a while.
pub(crate) fn change_after_answer_asks_again(site: &Site) {
    let lab = Lab::new(site);
    let docs = lab.directory("docs");
    lab.file("docs/a", "A");
    let blocker = lab.block();
    let command = format!("cat {}/a", docs.display());
    let (exec, question) = lab.ask(&command);
    let body = json!({ "session_id": "s", "command": "echo unasked", "wait": false });
    let other = lab.execute(&lab.server.token, &body).expect(202)["exec_id"].as_str().unwrap().to_owned();
    lab.approve(&question, true);
    lab.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap())), None).expect(200);
    lab.cancel(&blocker);
    let next = lab.next_question(&exec, &question);
    assert_eq!(lab.server.exec(&exec)["status"], "AWAITING_APPROVAL");
    assert_eq!(lab.ended(&other)["status"], "SUCCEEDED", "whoever waits again holds no place");
    lab.approve(&next, false);
    let ended = lab.ended(&exec);
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")));
    // And one who then says no is heard too.
    let blocker = lab.block();
    lab.allow(&docs);
    let body = json!({ "session_id": "s", "command": command, "wait": false });
    let exec = lab.execute(&lab.server.token, &body).expect(202)["exec_id"].as_str().unwrap().to_owned();
    lab.server.ask("DELETE", &format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap())), None).expect(200);
    lab.cancel(&blocker);
    let question = lab.next_question(&exec, &json!({}));
    lab.answer(&lab.server.token, &question, &json!({ "approved": false, "remember": false })).expect(200);
    let ended = lab.ended(&exec);
    assert_eq!(
        (&ended["status"], &ended["error_reason"]["code"]),
        (&json!("POLICY_DENIED"), &json!("DENIED_BY_PERSON"))
    );
}

/// Who allows what a link leads to has allowed it by that name too, for as long as it leads there.
pub(crate) fn a_link_is_gone_by_its_name(site: &Site) {
    let lab = Lab::new(site);
    let (docs, secret, name) = (lab.directory("docs"), lab.directory("secret"), lab.host.join("name"));
    lab.file("docs/a", "A");
    lab.file("secret/a", "not for anybody");
    open_to_all(&docs);
    link(&docs, &name);
    let command = format!("cat {}/a", name.display());
    for remember in [false, true] {
        let (exec, question) = lab.ask(&command);
        assert_eq!(question["blocked_paths"], json!([name.join("a"), docs.join("a")]), "both names are shown");
        assert_eq!(question["requested_paths"], json!([docs]));
        lab.approve(&question, remember);
        let ended = lab.ended(&exec);
        assert_eq!((&ended["status"], &ended["stdout"]), (&json!("SUCCEEDED"), &json!("A")), "{ended}");
    }
    assert_eq!(lab.listed(), [docs.to_str().unwrap()]);
    assert_eq!(lab.output(&command), "A");
    assert_eq!(lab.output(&format!("echo new > {0}/b; ls {0}", name.display())), "a\nb\n");
    assert_eq!(fs::read_to_string(docs.join("b")).unwrap(), "new\n");
    let within = json!({ "session_id": "s", "command": "pwd; cat a", "cwd": name });
    let told = lab.execute(&lab.server.token, &within).expect(200);
    assert_eq!(told["stdout"], format!("{}\nA", name.display()), "{told}");
    // A link that leads elsewhere by then gives nothing, and so does a directory in its place.
    fs::remove_file(&name).unwrap();
    link(&secret, &name);
    let hidden = lab.run(&format!("d=$(echo {}); cat $d/$(echo a)", name.display()));
    assert!(!hidden.to_string().contains("not for anybody"), "{hidden}");
    let (exec, question) = lab.ask(&command);
    assert!(question["blocked_paths"].as_array().unwrap().contains(&json!(secret.join("a"))), "{question}");
    fs::remove_file(&name).unwrap();
    fs::rename(&secret, &name).unwrap();
    let answer = lab.answer(&lab.server.token, &question, &json!({ "approved": true, "remember": false }));
    assert_eq!(answer.status, 409, "{answer:?}");
    lab.cancel(&exec);
}

/// A box shows existing paths only. To create something, its directory must be allowed; question
/// and error say so.
pub(crate) fn missing_path_is_not_created_by_approval(site: &Site) {
    let lab = Lab::new(site);
    let place = lab.directory("place");
    open_to_all(&place);
    let new = place.join("new");
    let commands = ["touch NEW", "mkdir NEW", "echo x > NEW"].map(|text| text.replace("NEW", new.to_str().unwrap()));
    for command in &commands {
        let (exec, question) = lab.ask(command);
        let told = question["patterns"][0].as_str().unwrap_or_default();
        assert!(told.contains(&format!("{} has to be allowed", place.display())), "{question}");
        lab.approve(&question, false);
        let ended = lab.ended(&exec);
        assert_eq!((&ended["status"], &ended["error_reason"]["code"]), (&json!("FAILED"), &json!("PATH_MISSING")));
        assert!(!new.exists());
    }
    lab.allow(&place);
    for command in &commands {
        lab.output(&format!("{command}; ls -d {0}; rm -r {0}", new.display()));
    }
}

/// A user cannot allow paths with keys, neither the path itself nor one below it.
pub(crate) fn keys_are_an_operators_to_give(site: &Site) {
    let files = [".ssh/id_ed25519", ".claude/.credentials.json", ".config/gh/hosts.yml", "project/a"];
    let (lab, home) = Lab::at_home(site, &files);
    lab.switch(true);
    let ann = lab.server.make_token(&["--role", "user", "--user", "ann"]);
    for refused in [
        home.clone(),
        lab.host.path().to_owned(),
        home.join(".ssh"),
        home.join(".claude/.credentials.json"),
        home.join(".config/gh/hosts.yml"),
        home.join(".config"),
    ] {
        for remember in [true, false] {
            let (exec, question) = lab.ask_as(&ann, "s", &format!("ls {}", refused.display()));
            let answer = json!({ "approved": true, "remember": remember });
            lab.answer(&ann, &question, &answer).expect(403);
            lab.cancel(&exec);
        }
    }
    let (exec, question) = lab.ask_as(&ann, "s", &format!("cat {}/project/a", home.display()));
    lab.answer(&ann, &question, &json!({ "approved": true, "remember": true })).expect(200);
    assert_eq!(lab.ended(&exec)["stdout"], "of the home");
    let (exec, question) = lab.ask_as(&ann, "s", &format!("ls {}", home.display()));
    lab.approve(&question, false);
    assert_eq!(lab.ended(&exec)["status"], "SUCCEEDED", "an operator may");
}
