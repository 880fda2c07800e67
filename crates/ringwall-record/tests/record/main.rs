//! Tests of the record on SQLite and on PostgreSQL, and of the faults of each.
//!
//! Each test gets a new database: a file in a temporary directory, or a database in a PostgreSQL
//! cluster that this program starts and stops. With one of two environment variables set, the
//! program is a child process: the one that the crash test kills, or the one that fills a small
//! disk.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption is a failed test")]

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::cluster::Cluster;
use crate::database::TestDatabase;

mod approvals;
mod audit;
#[path = "../../../../tests/support/postgres_cluster.rs"]
#[expect(clippy::disallowed_methods, reason = "the server that is tested against is a program")]
mod cluster;
mod crash;
mod database;
mod faults;
mod intents;
mod laws;
mod lists;
mod networks;
mod outcomes;
mod paths;
mod postgres_faults;
mod retention;
mod samples;
mod sessions;
mod settings_and_uids;
mod sqlite_faults;
mod tampered_heads;
mod tampered_rows;
mod tampering;
mod tokens;
mod usage;

type Run = fn(TestDatabase) -> Pin<Box<dyn Future<Output = ()>>>;

/// The name and the function of each test, with the future boxed.
macro_rules! tests {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), |db| Box::pin($module::$name(db))),)*)*]
    };
}

const ON_BOTH: &[(&str, Run)] = tests! {
    intents::{
        intent_round_trips, denied_intent_has_outcome, concurrent_intents_with_one_key_record_one_exec, idempotency_key_survives_reopening,
        taken_exec_id_is_refused, only_waiting_exec_can_begin, unstorable_values_are_refused,
        applied_policy_replaces_policy_of_intent,
    }
    outcomes::{ first_outcome_stays, outcome_round_trips, unfinished_execs_become_lost, outcome_of_unknown_exec_is_refused,
        alternating_stores_share_one_chain, refused_operations_write_nothing }
    lists::{ pages_match_model, exec_outside_scope_is_missing }
    audit::{
        each_change_of_an_exec_appends_one_entry, entries_are_listed_and_exported, entries_cannot_be_changed_or_removed,
        concurrent_writers_share_one_chain,
    }
    tampering::{
        altered_entry_column_is_found, removed_entry_is_found, removed_tail_is_found, swapped_entries_are_found,
        rewritten_entry_breaks_its_link, altered_exec_is_found, planted_exec_is_found, wrong_head_is_found,
    }
    tampered_heads::{
        cut_tail_is_found_with_the_key, cut_tail_is_not_found_without_the_key, removed_signature_is_found,
        running_writer_records_a_cut_tail, running_writer_records_an_older_head, restarted_writer_records_a_cut_tail,
        database_set_back_is_found_by_a_kept_head, kept_head_is_found_in_the_chain, cut_start_is_found,
        hidden_entry_is_found,
        restarted_writer_records_a_removed_signature, head_of_another_key_is_refused, head_of_new_database_is_accepted, store_without_key_refuses_to_write,
    }
    tampered_rows::{
        approval_answered_by_sql_is_found, approval_with_changed_answer_is_found,
        approval_with_changed_question_is_found, planted_approval_is_found, planted_owner_token_is_found,
        token_with_other_hash_is_found, token_revocation_undone_is_found, removed_token_is_found,
        changed_settings_are_found, removed_settings_version_is_found, planted_session_rule_is_found,
        removed_session_rule_is_found, lifted_rule_of_deleted_session_is_found, row_set_back_is_not_restated_by_retention, planted_host_is_found, changed_host_uid_is_found,
        ending_written_by_sql_is_found, path_written_with_sql_is_noted, path_switch_changed_with_sql_is_noted,
        rows_stay_recorded_when_retention_removes_their_entries, altered_row_is_not_restated_by_retention,
    }
    paths::{
        path_control_is_off_in_new_database, same_path_is_added_once, paths_are_changed_and_removed, paths_written_with_sql_are_read,
        every_path_change_appends_entry,
    }
    networks::{ later_connections_are_added_and_removed_with_exec, hosts_are_allowed_once_and_removed }
    sessions::{
        rules_round_trip_and_are_audited,
        user_write_keeps_operator_rules,
        operator_rules_outlive_session,
        loosening_rules_end_with_session,
        invalid_rules_are_refused
    }
    retention::{ newest_entries_are_kept, entries_since_a_time_are_kept, broken_chain_is_not_pruned, ended_execs_are_removed }
    tokens::{
        token_is_found_by_hash, tokens_are_listed_and_revoked, last_valid_owner_token_is_kept,
        concurrent_revocations_leave_one_owner_token,
    }
    settings_and_uids::{
        settings_based_on_stale_version_are_refused, host_uid_of_agent_is_permanent, exhausted_uid_range_is_reported,
    }
    approvals::{
        first_answer_stays, approval_round_trips, pending_approvals_expire,
        approval_lists_are_filtered, approvals_are_removed_with_exec, incomplete_answer_is_refused,
        answer_and_remembered_paths_are_one_transaction, remembered_paths_are_enabled,
    }
    faults::{ lock_held_too_long_is_busy, newer_schema_is_refused, altered_schema_is_refused,
        corrupt_row_is_named, concurrent_opens_migrate_new_database, closed_store_refuses_calls }
    crash::{ acknowledged_writes_survive_kill }
    usage::{ large_commands_and_code_count_until_retention_removes_them }
    laws::{ any_interleaving_keeps_chain_intact }
};

const ON_SQLITE: &[(&str, Run)] = tests! {
    sqlite_faults::{
        files_are_private, non_regular_file_is_refused, damaged_file_is_refused, truncated_wal_leaves_consistent_database, extended_wal_is_read_to_last_commit,
        backup_is_complete_and_private, full_disk_is_reported_and_survived,
    }
};

const ON_POSTGRES: &[(&str, Run)] = tests! {
    postgres_faults::{ server_restart_is_survived, absent_server_is_reported, backup_is_refused }
};

fn main() -> ExitCode {
    if let Some(db) = crash::database_of_child() {
        return crash::run_child(db);
    }
    if let Some(directory) = sqlite_faults::directory_of_child() {
        return sqlite_faults::run_child(&directory);
    }
    let arguments = Arguments::from_args();
    let cluster = Arc::new(if arguments.list { Err("only listed".to_owned()) } else { Cluster::start() });
    let mut tests = Vec::new();
    for (name, run) in ON_BOTH.iter().chain(ON_SQLITE) {
        tests.push(test(&format!("sqlite::{name}"), *run, || Ok(TestDatabase::sqlite())));
    }
    for (name, run) in ON_BOTH.iter().chain(ON_POSTGRES) {
        let cluster = Arc::clone(&cluster);
        tests.push(test(&format!("postgres::{name}"), *run, move || match cluster.as_ref() {
            Ok(cluster) => Ok(TestDatabase::postgres(cluster)),
            Err(reason) => Err(reason.clone()),
        }));
    }
    let conclusion = libtest_mimic::run(&arguments, tests);
    // The last owner: this stops the server.
    drop(cluster);
    conclusion.exit_code()
}

fn test(name: &str, run: Run, db: impl FnOnce() -> Result<TestDatabase, String> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let db = db().map_err(Failed::from)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(run(db));
        Ok(())
    })
}
