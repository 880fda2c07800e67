//! Allowed paths, the switch of path control, and rows that operators write with SQL.

use futures::future::join_all;
use ringwall_record::{
    Added, AuditFilter, Author, Limit, NewPath, PathChange, PathEntry, PathScope, Scope, Store, Switch,
};
use serde_json::json;

use crate::database::{TestDatabase, assert_intact};
use crate::samples::at;

fn new(path: &str, scope: PathScope) -> NewPath {
    NewPath { path: path.to_owned(), description: "work".to_owned(), scope }
}

fn of_ann() -> PathScope {
    PathScope::User("ann".parse().unwrap())
}

fn by(who: &str) -> Author {
    Author { by: who.to_owned(), from: json!({ "door": "http", "remote": "127.0.0.1:1" }) }
}

async fn entries(store: &Store) -> Vec<PathEntry> {
    store.paths().await.unwrap()
}

pub async fn path_control_is_off_in_new_database(db: TestDatabase) {
    let store = db.open().await;
    assert_eq!((store.path_switch().await.unwrap(), entries(&store).await), (Switch::Off, Vec::new()));
    for switch in [Switch::On, Switch::On, Switch::Off, Switch::On] {
        store.switch_path_control(switch, at(1), by("owner")).await.unwrap();
        assert_eq!(store.path_switch().await.unwrap(), switch);
    }
    store.close().await;
    assert_eq!(db.open().await.path_switch().await.unwrap(), Switch::On, "after reopening");
}

pub async fn same_path_is_added_once(db: TestDatabase) {
    let store = db.open().await;
    let both = join_all((0..8).map(|_| store.add_path(new("/home/u", PathScope::Global), at(5), by("owner")))).await;
    let recorded = both.iter().filter(|answer| matches!(answer, Ok(Added::Recorded { .. }))).count();
    assert_eq!(recorded, 1, "{both:?}");
    // The same path in another scope is a row of its own.
    let own = store.add_path(new("/home/u", of_ann()), at(6), by("t_1")).await.unwrap();
    let Added::Recorded { id } = own else { panic!("{own:?}") };
    assert_eq!(store.add_path(new("/home/u", of_ann()), at(7), by("t_1")).await.unwrap(), Added::Known { id });
    let found = entries(&store).await;
    let seen: Vec<_> = found.iter().map(|one| (one.path.as_str(), one.scope.text(), one.enabled)).collect();
    assert_eq!(seen, [("/home/u", "global".to_owned(), Switch::On), ("/home/u", "user:ann".to_owned(), Switch::On)]);
    assert_eq!((found[1].created_at, found[1].created_by.as_str()), (at(6), "t_1"));
    let long = NewPath { description: "x".repeat(513), ..new("/a", PathScope::Global) };
    assert!(store.add_path(long, at(8), by("owner")).await.is_err());
    assert!(store.add_path(new("/a\0b", PathScope::Global), at(8), by("owner")).await.is_err());
    assert_intact(&store).await;
}

pub async fn paths_are_changed_and_removed(db: TestDatabase) {
    let store = db.open().await;
    let Added::Recorded { id } = store.add_path(new("/a", PathScope::Global), at(1), by("owner")).await.unwrap() else {
        panic!("the path is known")
    };
    let off = PathChange { enabled: Some(Switch::Off), description: None };
    let changed = store.change_path(id, off, at(2), by("owner")).await.unwrap().unwrap();
    assert_eq!((changed.enabled, changed.description.as_str()), (Switch::Off, "work"));
    let words = PathChange { enabled: None, description: Some("other".to_owned()) };
    let changed = store.change_path(id, words.clone(), at(3), by("owner")).await.unwrap().unwrap();
    assert_eq!((changed.enabled, changed.description.as_str()), (Switch::Off, "other"));
    assert_eq!(entries(&store).await, [changed]);
    assert_eq!(store.change_path(id + 1, words, at(4), by("owner")).await.unwrap(), None);

    assert_eq!(store.remove_paths(&[id, id + 1], at(5), by("owner")).await.unwrap(), 1);
    assert_eq!(store.remove_paths(&[id], at(5), by("owner")).await.unwrap(), 0);
    let Added::Recorded { id: next } = store.add_path(new("/a", PathScope::Global), at(6), by("owner")).await.unwrap()
    else {
        panic!("the path was not removed")
    };
    assert!(next > id, "an id is never reused");
    assert_intact(&store).await;
}

/// The documented INSERT, whose rows the next read returns.
pub async fn paths_written_with_sql_are_read(db: TestDatabase) {
    let store = db.open().await;
    let by_hand = "INSERT INTO sandbox_paths (path, description, enabled) VALUES \
                   ('/home/user/projects', '项目目录', 1), ('/home/user/documents/', '文档目录', 0), \
                   ('/home/user/projects', 'again', 1)";
    assert_eq!(db.execute(by_hand).await.unwrap(), 3);
    db.execute("INSERT INTO sandbox_paths (path) VALUES ('/opt')").await.unwrap();
    let found = entries(&store).await;
    let seen: Vec<_> = found.iter().map(|one| (one.path.as_str(), one.description.as_str(), one.enabled)).collect();
    let expected = [
        ("/home/user/projects", "项目目录", Switch::On),
        ("/home/user/documents/", "文档目录", Switch::Off),
        ("/home/user/projects", "again", Switch::On),
        ("/opt", "", Switch::On),
    ];
    assert_eq!(seen, expected);
    assert!(found.iter().all(|one| one.scope == PathScope::Global));
    assert!(db.execute("INSERT INTO sandbox_paths (path, scope) VALUES ('/x', 'all')").await.is_err());
    db.execute("INSERT INTO sandbox_configs (enabled) VALUES (1)").await.unwrap();
    assert_eq!(store.path_switch().await.unwrap(), Switch::On);
    store.switch_path_control(Switch::Off, at(1), by("owner")).await.unwrap();
    assert_eq!(store.path_switch().await.unwrap(), Switch::Off);
    let ids: Vec<i64> = found.iter().map(|one| one.id).collect();
    assert_eq!(store.remove_paths(&ids, at(2), by("owner")).await.unwrap(), 4);
}

pub async fn every_path_change_appends_entry(db: TestDatabase) {
    let store = db.open().await;
    store.switch_path_control(Switch::On, at(1), by("owner")).await.unwrap();
    store.switch_path_control(Switch::On, at(2), by("owner")).await.unwrap();
    let Added::Recorded { id } = store.add_path(new("/a", of_ann()), at(3), by("t_1")).await.unwrap() else {
        panic!("the path is known")
    };
    store.add_path(new("/a", of_ann()), at(3), by("t_1")).await.unwrap();
    let off = PathChange { enabled: Some(Switch::Off), description: None };
    store.change_path(id, off.clone(), at(4), by("t_1")).await.unwrap();
    store.change_path(id, off, at(5), by("t_1")).await.unwrap();
    store.remove_paths(&[id], at(6), by("t_1")).await.unwrap();
    store.switch_path_control(Switch::Off, at(7), by("owner")).await.unwrap();
    let actions = async |scope| {
        let page = store.audit(&AuditFilter::everything(scope), Limit::nearest(20), None).await.unwrap();
        page.items.into_iter().map(|entry| entry.action).rev().collect::<Vec<_>>()
    };
    let page = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(20), None).await.unwrap();
    assert!(page.items.iter().all(|entry| entry.detail.contains("127.0.0.1:1")), "no origin: {:?}", page.items);
    let own = ["sandbox.path.added", "sandbox.path.changed", "sandbox.path.removed"];
    let all = [&["sandbox.enabled"], &own[..], &["sandbox.disabled"]].concat();
    assert_eq!(actions(Scope::All).await, all, "an operation without effect appends no entry");
    assert_eq!(actions(Scope::User("ann".parse().unwrap())).await, own, "entries about a user's own paths");
    assert_intact(&store).await;
}
