//! Tests of the docker backend with a real daemon, and of session boxes on every backend.
//!
//! The daemon is started by the tests with its own directories and socket; it makes no bridge and
//! no firewall rules. This program is also the jail process of native boxes, the agent in session
//! boxes (or its faulty stand-in), and a server to be killed. Without root no daemon can be
//! started: the tests are skipped with a message. As root they fail if docker is missing.

#![expect(clippy::disallowed_methods, reason = "the daemon is started, and a project given to its owner")]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed assumption is a failed test")]
#![expect(clippy::print_stdout, reason = "a test may say what it found")]

mod docker {
    //! In reading order: the daemon and its images, the fixture, then the tests.
    pub(crate) mod daemon;
    pub(crate) mod project;

    pub(crate) mod cleanup;
    pub(crate) mod contract;
    pub(crate) mod endings;
    pub(crate) mod faults;
    pub(crate) mod inspection;
    pub(crate) mod network;

    pub(crate) mod session;

    pub(crate) mod broken_agent;
    pub(crate) mod lifetime;
    pub(crate) mod processes;
}

use std::process::ExitCode;
use std::sync::Arc;

use docker::daemon::Daemon;
use docker::{broken_agent, cleanup, contract, endings, faults, inspection, lifetime, network, processes};
use libtest_mimic::{Arguments, Trial};

type Try = fn(&Daemon);

/// The name and the function of each test.
macro_rules! tests {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*)*]
    };
}

const WITH_DAEMON: &[(&str, Try)] = tests! {
    contract::{
        project_is_same_on_docker_and_native, narrow_mounts_are_enforced_on_docker_and_native,
        missing_or_linked_working_directory_is_refused, session_directory_is_same_on_every_backend,
    }
    endings::{
        streams_carry_all_bytes_both_ways, command_that_cannot_run_is_reported_with_reason, oom_kill_is_reported,
        container_usage_is_reported, time_limit_ends_container, signal_and_kill_reach_command,
        hostile_image_changes_neither_command_nor_outcome, eight_concurrent_containers_keep_their_outcomes,
    }
    inspection::{
        docker_inspect_shows_every_restriction, secret_variable_is_in_no_process_table,
        probe_reports_client_context_and_daemon,
    }
    cleanup::{
        dropped_container_is_removed, sweep_removes_orphans_only, containers_of_killed_server_are_removed,
    }
    network::{
        container_reaches_allowed_hosts_only, shim_changes_nothing_for_command,
        container_without_proxy_reaches_nothing, container_that_withholds_proxy_socket_fails,
        session_box_reaches_allowed_hosts_only,
    }
    processes::{
        session_box_runs_processes_in_sequence_and_at_once, command_that_cannot_start_reports_common_error,
        output_before_channel_message_arrives_first, unread_output_blocks_only_its_own_process,
        input_blocks_until_it_is_read, terminal_passes_keys_and_sizes, session_process_cannot_inspect_another,
        signal_reaches_process_group, time_limit_ends_one_session_process, oom_kill_of_session_process_is_reported,
        session_process_has_its_streams_and_no_privilege, start_costs_are_printed,
    }
    lifetime::{
        background_process_ends_with_box, killed_agent_ends_box, paused_box_runs_nothing,
        process_in_paused_box_can_be_ended, killed_server_leaves_no_process_or_cgroup,
    }
    broken_agent::{
        agent_that_breaks_protocol_loses_its_box_only,
    }
};

/// These start a daemon of their own, which they stop or kill.
const WITH_OWN_DAEMON: &[(&str, fn())] = tests! {
    faults::{
        missing_daemon_fails_exec_within_10_s, hanging_daemon_fails_exec_within_10_s,
        killed_daemon_fails_exec_within_10_s, stopped_daemon_fails_exec_within_10_s,
        installed_gvisor_runtime_runs_exec,
    }
};

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::agent::AGENT) {
        return match broken_agent::requested_fault() {
            Some(fault) => broken_agent::run_stand_in(&fault),
            None => ringwall_jail::agent::agent_main(),
        };
    }
    if let Some(run_request) = std::env::var_os(lifetime::SERVER) {
        lifetime::serve(&run_request);
    }
    if let Some(client) = std::env::var_os(cleanup::SERVER) {
        cleanup::serve(client.into());
    }
    let arguments = Arguments::from_args();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: all, because a docker daemon needs root");
        return ExitCode::SUCCESS;
    }
    if arguments.list {
        return libtest_mimic::run(&arguments, cases(None)).exit_code();
    }
    let daemon = Arc::new(Daemon::start());
    let conclusion = libtest_mimic::run(&arguments, cases(Some(&daemon)));
    drop(daemon);
    conclusion.exit_code()
}

fn cases(daemon: Option<&Arc<Daemon>>) -> Vec<Trial> {
    let shared = WITH_DAEMON.iter().map(|(name, attempt)| {
        let daemon = daemon.cloned();
        Trial::test(*name, move || {
            if let Some(daemon) = &daemon {
                attempt(daemon);
            }
            Ok(())
        })
    });
    let alone = WITH_OWN_DAEMON.iter().map(|(name, attempt)| {
        Trial::test(*name, move || {
            attempt();
            Ok(())
        })
    });
    shared.chain(alone).collect()
}
