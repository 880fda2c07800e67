//! One suite over both databases, and the faults of each.
//!
//! Every trial gets a database of its own: a file in a fresh directory, or a new database in a PostgreSQL cluster that
//! this program starts for itself and stops at the end, whatever the trials did. Called with a place to write to, the
//! program is a child: the one that a crash trial kills, or the one that has a disk of its own to fill.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption is a failed trial")]

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::cluster::Cluster;
use crate::place::Place;

mod approvals;
mod audit;
#[path = "../../../../tests/support/postgres_cluster.rs"]
#[expect(clippy::disallowed_methods, reason = "the server that is tested against is a program")]
mod cluster;
mod crash;
mod endings;
mod faults;
mod intents;
mod laws;
mod lists;
mod networks;
mod paths;
mod place;
mod postgres_faults;
mod rest;
mod retention;
mod samples;
mod sessions;
mod sqlite_faults;
mod tampered_heads;
mod tampered_rows;
mod tampering;
mod usage;

type Run = fn(Place) -> Pin<Box<dyn Future<Output = ()>>>;

/// A trial's name and its function, with the future boxed.
macro_rules! trials {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), |place| Box::pin($module::$name(place))),)*)*]
    };
}

const ON_BOTH: &[(&str, Run)] = trials! {
    intents::{
        everything_intended_is_read_back, a_denied_intent_is_ended, one_key_is_one_exec, a_key_outlives_the_store,
        a_taken_id_is_refused, only_what_waits_begins, what_cannot_be_stored_is_refused,
        the_policy_that_was_applied_is_told,
    }
    endings::{ one_ending_stands, everything_ended_is_read_back, what_a_crash_left_is_lost, an_unknown_exec_has_no_ending,
        two_who_take_turns_share_one_chain, what_cannot_be_written_at_once_is_told }
    lists::{ pages_are_what_a_model_says, another_tenants_exec_is_not_there }
    audit::{
        every_fact_is_an_entry, entries_are_listed_and_exported, entries_cannot_be_changed_or_removed,
        two_writers_share_one_chain,
    }
    tampering::{
        an_altered_column_is_named, a_removed_entry_is_named, a_removed_tail_is_named, swapped_entries_are_named,
        a_rewritten_entry_breaks_its_link, an_altered_exec_is_named, a_planted_exec_is_named, a_wrong_head_is_named,
    }
    tampered_heads::{
        cut_tail_is_found_with_the_key, cut_tail_is_not_found_without_the_key, removed_signature_is_found,
        running_writer_records_a_cut_tail, running_writer_records_an_older_head, restarted_writer_records_a_cut_tail,
        database_set_back_is_found_by_a_kept_head, kept_head_is_found_in_the_chain, cut_start_is_found,
        hidden_entry_is_found, first_signature_of_an_older_database_is_noted,
        restarted_writer_records_a_removed_signature, head_of_another_key_is_refused, head_of_new_or_older_database_is_accepted, store_without_key_refuses_to_write,
    }
    tampered_rows::{
        approval_answered_by_sql_is_found, approval_with_changed_answer_is_found,
        approval_with_changed_question_is_found, planted_approval_is_found, planted_owner_token_is_found,
        token_with_other_hash_is_found, token_revocation_undone_is_found, removed_token_is_found,
        changed_settings_are_found, removed_settings_version_is_found, planted_session_rule_is_found,
        removed_session_rule_is_found, lifted_rule_of_deleted_session_is_found, row_set_back_is_not_restated_by_retention, planted_host_is_found, changed_host_uid_is_found,
        ending_written_by_sql_is_found, path_written_by_hand_is_noted, path_switch_turned_by_hand_is_noted,
        rows_stay_recorded_when_retention_removes_their_entries, altered_row_is_not_restated_by_retention,
    }
    paths::{
        a_fresh_record_controls_nothing, paths_are_added_once, paths_are_changed_and_removed, rows_by_hand_are_seen,
        every_change_of_paths_is_an_entry,
    }
    networks::{ what_comes_later_is_added_and_goes_with_its_exec, hosts_are_allowed_once_and_taken_back }
    sessions::{
        words_are_read_back_and_audited,
        user_write_leaves_operator_word,
        operator_word_outlives_session,
        loosening_word_ends_with_session,
        row_of_older_version_counts_as_operator_word,
        what_cannot_be_said_is_refused
    }
    retention::{ the_newest_entries_stay, entries_since_a_moment_stay, a_broken_chain_is_not_pruned, ended_execs_go }
    rest::{
        tokens_are_found_by_their_hash, tokens_are_listed_and_revoked, last_valid_owner_token_is_kept,
        concurrent_revocations_leave_one_owner_token, settings_have_versions, identities_are_for_ever,
        identities_run_out, a_closed_record_says_so,
    }
    approvals::{
        one_answer_stands, everything_asked_is_read_back, what_nobody_waits_for_expires,
        lists_hold_what_is_asked_for, approvals_go_with_their_exec, half_an_answer_cannot_be_written,
        an_answer_and_what_it_remembers_are_one, what_is_remembered_is_on,
    }
    faults::{ a_lock_held_too_long_is_busy, a_newer_schema_is_refused, an_altered_schema_is_refused,
        an_old_schema_is_brought_up_to_date, a_corrupt_row_is_named, two_open_a_new_database_at_once }
    crash::{ what_was_acknowledged_survives_a_kill }
    usage::{ large_commands_and_code_count_until_retention_removes_them, usage_of_an_older_database_is_counted }
    laws::{ any_interleaving_keeps_the_chain }
};

const ON_SQLITE: &[(&str, Run)] = trials! {
    sqlite_faults::{
        files_are_private, what_is_no_file_is_refused, a_damaged_file_is_refused, a_truncated_log_loses_no_consistency, a_log_of_whole_length_is_read_to_its_last_commit,
        a_backup_is_whole_and_private, a_full_disk_is_said_and_survived,
    }
};

const ON_POSTGRES: &[(&str, Run)] = trials! {
    postgres_faults::{ a_restart_is_survived, an_absent_server_is_said, a_backup_is_made_elsewhere }
};

fn main() -> ExitCode {
    if let Some(place) = crash::place_of_child() {
        return crash::be_the_child(place);
    }
    if let Some(directory) = sqlite_faults::directory_of_child() {
        return sqlite_faults::be_the_child(&directory);
    }
    let arguments = Arguments::from_args();
    let cluster = Arc::new(if arguments.list { Err("only listed".to_owned()) } else { Cluster::start() });
    let mut trials = Vec::new();
    for (name, run) in ON_BOTH.iter().chain(ON_SQLITE) {
        trials.push(trial(&format!("sqlite::{name}"), *run, || Ok(Place::sqlite())));
    }
    for (name, run) in ON_BOTH.iter().chain(ON_POSTGRES) {
        let cluster = Arc::clone(&cluster);
        trials.push(trial(&format!("postgres::{name}"), *run, move || match cluster.as_ref() {
            Ok(cluster) => Ok(Place::postgres(cluster)),
            Err(reason) => Err(reason.clone()),
        }));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // The trials and their shares in the cluster are gone; this stops it.
    drop(cluster);
    conclusion.exit_code()
}

fn trial(name: &str, run: Run, place: impl FnOnce() -> Result<Place, String> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let place = place().map_err(Failed::from)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(run(place));
        Ok(())
    })
}
