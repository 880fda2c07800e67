//! The list of sessions, page by page: each once, those used last first, and nothing that is none.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use ringwall_workspace::{Error, SessionMark, Workspaces};

use crate::lab::{Lab, owner};

/// Used so many seconds before a moment, which is one for all that are compared.
fn make(workspaces: &Workspaces, lab: &Lab, user: &str, session: &str, (now, age): (SystemTime, u64)) {
    let workspace = workspaces.workspace(&user.parse().unwrap(), &"agent".parse().unwrap(), owner()).unwrap();
    workspace.session(&session.parse().unwrap()).unwrap().furnish().unwrap();
    let place = lab.directory.path().join("data/workspaces").join(user).join("agent/sessions").join(session);
    let then = now - Duration::from_secs(age);
    for path in [place.join(".used"), place] {
        File::open(path).unwrap().set_modified(then).unwrap();
    }
}

/// All pages of so many, as they name users and sessions.
fn pages(lab: &Lab, of: Option<&str>, most: usize) -> Vec<Vec<String>> {
    let of = of.map(|of| of.parse().unwrap());
    let (mut pages, mut after) = (Vec::new(), None::<SessionMark>);
    loop {
        let page = lab.workspaces.sessions(of.as_ref(), None, after.as_ref(), most);
        pages.push(page.sessions.iter().map(|one| format!("{}/{}", one.user, one.session)).collect());
        match page.next {
            // As it comes back from whoever was told it.
            Some(next) => after = Some(next.to_string().parse().unwrap()),
            None => return pages,
        }
        assert!(pages.len() < 10, "{pages:?}");
    }
}

#[test]
fn each_is_on_one_page_and_those_used_last_come_first() {
    let lab = Lab::new();
    assert_eq!(pages(&lab, None, 2), [Vec::<String>::new()]);
    let now = SystemTime::now();
    for (user, session, age) in [("a", "x", 300), ("b", "x", 100), ("a", "y", 200), ("a", "z", 200), ("b", "w", 200)] {
        make(&lab.workspaces, &lab, user, session, (now, age));
    }
    let place = lab.directory.path().join("data/workspaces/a/agent/sessions");
    fs::write(place.join("file"), "").unwrap();
    symlink(place.join("x"), place.join("link")).unwrap();
    let all = ["b/x", "a/y", "a/z", "b/w", "a/x"];
    for most in 1..7 {
        let expected: Vec<Vec<&str>> = all.chunks(most).map(<[_]>::to_vec).collect();
        assert_eq!(pages(&lab, None, most), expected, "{most} on a page");
    }
    assert_eq!(pages(&lab, Some("a"), 2), [vec!["a/y", "a/z"], vec!["a/x"]]);
    // One that is used between two pages is at the front of the list, and the rest is told all the same.
    let first = lab.workspaces.sessions(None, None, None, 2);
    make(&lab.workspaces, &lab, "b", "w", (now, 50));
    let rest = lab.workspaces.sessions(None, None, first.next.as_ref(), 9);
    assert_eq!(rest.sessions.iter().map(|one| one.session.as_str()).collect::<Vec<_>>(), ["z", "x"]);
}

#[test]
fn what_is_no_mark_is_refused() {
    for text in ["", "1", "1~a~b", "1~a~b~..", "x~a~b~c", "1~a~b~c~d", "1~a/b~c~d"] {
        assert!(matches!(text.parse::<SessionMark>(), Err(Error::MarkMalformed)), "{text}");
    }
}
