//! Pages of the session list: each session once, the last used first.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use ringwall_workspace::{Error, SessionCursor, Workspaces};

use crate::fixture::{Fixture, owner};

/// Creates a session that was last used `age` seconds before `now`.
fn make(workspaces: &Workspaces, fixture: &Fixture, user: &str, session: &str, (now, age): (SystemTime, u64)) {
    let workspace = workspaces.workspace(&user.parse().unwrap(), &"agent".parse().unwrap(), owner()).unwrap();
    workspace.session(&session.parse().unwrap()).unwrap().create_directories().unwrap();
    let location = fixture.directory.path().join("data/workspaces").join(user).join("agent/sessions").join(session);
    let then = now - Duration::from_secs(age);
    for path in [location.join(".used"), location] {
        File::open(path).unwrap().set_modified(then).unwrap();
    }
}

/// All pages of at most `max` sessions, as `user/session`.
fn pages(fixture: &Fixture, of: Option<&str>, max: usize) -> Vec<Vec<String>> {
    let of = of.map(|of| of.parse().unwrap());
    let (mut pages, mut after) = (Vec::new(), None::<SessionCursor>);
    loop {
        let page = fixture.workspaces.sessions(of.as_ref(), None, after.as_ref(), max);
        pages.push(page.sessions.iter().map(|one| format!("{}/{}", one.user, one.session)).collect());
        match page.next {
            // Clients return the cursor as text.
            Some(next) => after = Some(next.to_string().parse().unwrap()),
            None => return pages,
        }
        assert!(pages.len() < 10, "{pages:?}");
    }
}

#[test]
fn each_session_is_on_one_page_in_order_of_use() {
    let fixture = Fixture::new();
    assert_eq!(pages(&fixture, None, 2), [Vec::<String>::new()]);
    let now = SystemTime::now();
    for (user, session, age) in [("a", "x", 300), ("b", "x", 100), ("a", "y", 200), ("a", "z", 200), ("b", "w", 200)] {
        make(&fixture.workspaces, &fixture, user, session, (now, age));
    }
    let location = fixture.directory.path().join("data/workspaces/a/agent/sessions");
    fs::write(location.join("file"), "").unwrap();
    symlink(location.join("x"), location.join("link")).unwrap();
    let all = ["b/x", "a/y", "a/z", "b/w", "a/x"];
    for max in 1..7 {
        let expected: Vec<Vec<&str>> = all.chunks(max).map(<[_]>::to_vec).collect();
        assert_eq!(pages(&fixture, None, max), expected, "{max} per page");
    }
    assert_eq!(pages(&fixture, Some("a"), 2), [vec!["a/y", "a/z"], vec!["a/x"]]);
    // A session that is used between two pages moves to the front; the others are still listed.
    let first = fixture.workspaces.sessions(None, None, None, 2);
    make(&fixture.workspaces, &fixture, "b", "w", (now, 50));
    let rest = fixture.workspaces.sessions(None, None, first.next.as_ref(), 9);
    assert_eq!(rest.sessions.iter().map(|one| one.session.as_str()).collect::<Vec<_>>(), ["z", "x"]);
}

#[test]
fn malformed_cursor_is_rejected() {
    for text in ["", "1", "1~a~b", "1~a~b~..", "x~a~b~c", "1~a~b~c~d", "1~a/b~c~d"] {
        assert!(matches!(text.parse::<SessionCursor>(), Err(Error::CursorMalformed)), "{text}");
    }
}
