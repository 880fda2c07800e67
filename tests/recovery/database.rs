//! Checks of the database file and of the audit chain.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use tests::support::server::{Server, command};

/// SQLite's integrity check, run by Python.
pub(crate) fn check_file(server: &Server) {
    let script =
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchall())";
    let checked = Command::new("/usr/bin/python3").args(["-c", script]).arg(server.data().join("db.sqlite")).output();
    let checked = checked.unwrap();
    assert_eq!(String::from_utf8_lossy(&checked.stdout).trim(), "[('ok',)]", "{checked:?}");
}

pub(crate) fn check_chain(server: &Server) {
    let verified = command(server.data()).args(["audit", "verify"]).output().unwrap();
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// Checks that every exec has one intent and one outcome in the audit chain, and returns their
/// number.
pub(crate) fn check_outcomes(server: &Server) -> usize {
    let exported = command(server.data()).args(["audit", "export"]).output().unwrap();
    let mut of_exec: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for line in String::from_utf8(exported.stdout).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let counts = of_exec.entry(entry["subject"].as_str().unwrap().to_owned()).or_default();
        match entry["action"].as_str().unwrap() {
            "exec.intent" => counts.0 += 1,
            "exec.outcome" | "exec.lost" => counts.1 += 1,
            _ => {}
        }
    }
    of_exec.retain(|subject, _| subject.starts_with("e_"));
    for (subject, counts) in &of_exec {
        assert_eq!(*counts, (1, 1), "{subject}: intents and outcomes");
    }
    of_exec.len()
}
