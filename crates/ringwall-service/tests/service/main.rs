//! Tests of the service with native boxes and SQLite in a temporary directory, without mocks.
//!
//! This binary has four roles: the tests, the jail of their boxes, the agent in session boxes, and
//! a service that is killed. As root it also runs all tests as an ordinary user.

#![expect(clippy::disallowed_methods, reason = "this program starts itself as the service to be killed")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption is a failed test")]

mod browsing;
mod crash;
mod denials;
mod disk;
mod egress;
mod endings;
mod executing;
mod faults;
mod files;
mod fixture;
mod following;
mod idempotency;
mod leftovers;
mod networks;
mod ordinary;
mod outside;
mod pool;
mod queueing;
mod retention;
mod stopping;
mod tenants;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The name and the function of each test.
macro_rules! cases {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn()),)*)*]
    };
}

const CASES: &[(&str, fn())] = cases! {
    endings::{
        succeeded_and_failed_execs_report_exit_code, timeout_ends_exec, memory_limit_ends_exec,
        cancelled_exec_ends, missing_directory_or_backend_fails_exec, truncated_output_does_not_end_exec,
        background_output_does_not_delay_end, skill_runs_as_exec,
    }
    denials::{
        denied_request_is_recorded, intent_records_origin_of_request, malformed_request_is_not_recorded,
        settings_are_operator_layer_of_policy,
    }
    executing::{
        line_runs_on_agent_files, program_runs_in_its_directory, denied_line_is_recorded,
        timeout_message_follows_contract, truncated_output_ends_at_character,
        exec_heals_skills_and_explains_missing_network,
    }
    files::{ invalid_inputs_write_nothing, artifacts_are_listed_and_limited, environment_values_are_not_stored }
    disk::{
        exec_over_disk_quota_is_stopped_with_reason, exec_over_file_quota_is_stopped,
        staged_artifacts_count_against_quota, inputs_over_quota_are_rejected,
        workspace_is_measured_after_execs, agent_files_over_quota_are_rejected, edit_over_quota_is_rejected,
        gc_removes_idle_sessions_and_leftovers,
    }
    following::{ reconnecting_client_gets_each_byte_once, client_gets_output_of_running_exec }
    idempotency::{
        same_key_returns_same_exec, request_digest_is_keyed, concurrent_requests_with_same_key_start_one_exec,
        key_of_queued_exec_is_known_while_queue_is_full, key_is_known_after_policy_denies_request,
        key_is_known_after_restart,
    }
    queueing::{ queue_alternates_between_users, full_queue_rejects_exec, waiting_exec_can_be_cancelled }
    tenants::{ exec_of_other_user_is_not_found, tokens_grant_rights_of_their_role, revoked_token_is_rejected_at_once }
    crash::{ execs_of_killed_service_are_lost }
    faults::{ exec_does_not_run_without_recorded_intent, outcome_is_recorded_once_database_is_unlocked }
    retention::{
        old_execs_are_removed_with_their_files, old_execs_are_removed_in_batches,
        chain_verifies_after_removal_of_old_entries, failed_retention_step_does_not_stop_others,
    }
    stopping::{
        second_service_on_data_directory_is_refused, drain_cancels_running_execs,
        drain_waits_for_execs_that_end_in_time,
    }
    outside::{
        killed_spawner_fails_exec, killed_init_fails_exec_after_its_processes_ended,
        stopped_spawner_is_replaced,
    }
    leftovers::{
        memory_peak_does_not_carry_over, out_of_memory_does_not_carry_over, process_count_does_not_carry_over,
        limits_do_not_carry_over, drained_service_leaves_no_cgroup,
    }
    egress::{
        allowed_host_is_reached_and_recorded, direct_connection_without_proxy_fails,
        unlisted_host_asks_for_approval, session_box_connections_belong_to_running_command,
        proxy_socket_ends_with_its_box, boxes_with_proxy_cannot_reach_each_other,
    }
    pool::{ session_box_is_replaced_after_use_limit_and_idle_time }
    browsing::{ waiting_browser_actions_are_limited, cancelled_browser_start_leaves_nothing }
};

/// Tests of warm boxes and reused network namespaces, which need root, and the run as an ordinary user.
const ROOT_CASES: &[(&str, fn())] = cases! {
    pool::{ first_run_takes_warm_box }
    networks::{
        used_network_namespace_is_not_reused, unused_network_namespace_is_reused,
        concurrent_boxes_have_different_network_namespaces, network_namespace_with_open_socket_is_not_reused,
    }
    ordinary::{ all_tests_pass_as_ordinary_user }
};

fn main() -> ExitCode {
    let name = std::env::args_os().next();
    if name.as_ref().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    if name.is_some_and(|name| name == ringwall_jail::agent::AGENT) {
        return ringwall_jail::agent::agent_main();
    }
    if let Some(data) = std::env::var_os(crash::DATA) {
        return crash::be_the_child(data.into());
    }
    let is_root = rustix::process::geteuid().is_root();
    let cases = CASES.iter().chain(if is_root { ROOT_CASES } else { &[] });
    let trials = cases.map(|(name, test)| {
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    });
    // One test at a time, because a process has one executor.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
