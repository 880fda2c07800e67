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

    pub(crate) mod contract;
    pub(crate) mod endings;
    pub(crate) mod faults;
    pub(crate) mod inspection;
    pub(crate) mod leftovers;
    pub(crate) mod reaching;

    pub(crate) mod session;

    pub(crate) mod faithless;
    pub(crate) mod processes;
    pub(crate) mod staying;
}

use std::process::ExitCode;
use std::sync::Arc;

use docker::daemon::Daemon;
use docker::{contract, endings, faithless, faults, inspection, leftovers, processes, reaching, staying};
use libtest_mimic::{Arguments, Trial};

type Try = fn(&Daemon);

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::agent::AGENT) {
        return match faithless::asked_for() {
            Some(fault) => faithless::speak(&fault),
            None => ringwall_jail::agent::agent_main(),
        };
    }
    if let Some(run_request) = std::env::var_os(staying::SERVER) {
        staying::serve(&run_request);
    }
    if let Some(client) = std::env::var_os(leftovers::SERVER) {
        leftovers::serve(client.into());
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
    let shared: [(&str, Try); 41] = [
        ("both backends give the same project", contract::both_backends_give_the_same_project),
        ("narrow mounts are narrow in both", contract::narrow_mounts_are_narrow_in_both),
        ("working directory", contract::the_working_directory_is_there_and_no_link),
        ("streams", endings::streams_are_those_of_any_box),
        ("commands that cannot run", endings::commands_that_cannot_run_are_told_apart),
        ("memory", endings::running_out_of_memory_is_known),
        ("usage", endings::container_usage_is_reported),
        ("time limit", endings::the_time_limit_holds),
        ("orders", endings::orders_reach_the_container),
        ("images", endings::an_image_cannot_change_the_command_or_its_outcome),
        ("many at once", endings::many_at_once),
        ("inspection", inspection::the_daemon_confirms_every_wall),
        ("secrets", inspection::no_secret_is_in_a_process_table),
        ("dropped", leftovers::a_dropped_container_goes),
        ("sweep", leftovers::a_sweep_takes_orphans_alone),
        ("killed server", leftovers::a_killed_servers_containers_go),
        ("way out", reaching::a_container_reaches_what_its_gate_allows),
        ("way out, porter", reaching::the_command_is_as_without_a_porter),
        ("way out, unserved", reaching::a_proxy_that_is_gone_is_no_way_out),
        ("way out, withheld", reaching::a_container_without_its_way_out_is_none),
        ("way out, visits", reaching::a_container_that_stays_reaches_hosts_too),
        ("probe", inspection::a_probe_names_the_daemon),
        ("sessions", contract::a_sessions_directory_is_the_same_everywhere),
        ("visits", processes::a_box_serves_one_after_another_and_both_at_once),
        ("visits that cannot begin", processes::command_that_cannot_start_reports_common_error),
        ("channel", processes::output_before_channel_message_arrives_first),
        ("much output", processes::much_output_fills_no_memory_and_keeps_nobody),
        ("input", processes::input_waits_for_its_reader),
        ("terminal", processes::a_terminal_hears_keys_and_sizes),
        ("apart", processes::no_visit_looks_into_another),
        ("signals", processes::signals_reach_the_group),
        ("limits of visits", processes::a_visits_time_is_its_own),
        ("memory of visits", processes::memory_that_runs_out_is_known),
        ("descriptors", processes::a_visit_has_its_streams_and_no_privilege),
        ("costs of visits", processes::costs),
        ("background", staying::the_background_lives_as_long_as_the_box),
        ("agent killed", staying::without_its_agent_the_box_ends),
        ("pause", staying::a_paused_box_stands_still),
        ("pause, ended", staying::process_in_paused_box_can_be_ended),
        ("nothing left", staying::nothing_stays_behind),
        ("faithless agents", faithless::an_agent_is_believed_nothing),
    ];
    let alone: [(&str, fn()); 5] = [
        ("no daemon", faults::without_a_daemon),
        ("daemon hangs", faults::a_daemon_that_hangs),
        ("daemon killed", faults::a_daemon_that_is_killed),
        ("daemon stopped", faults::a_daemon_that_is_stopped),
        ("gvisor", faults::gvisor_where_it_is_installed),
    ];
    let shared = shared.into_iter().map(|(name, attempt)| {
        let daemon = daemon.cloned();
        Trial::test(name, move || {
            if let Some(daemon) = &daemon {
                attempt(daemon);
            }
            Ok(())
        })
    });
    let alone = alone.into_iter().map(|(name, attempt)| {
        Trial::test(name, move || {
            attempt();
            Ok(())
        })
    });
    shared.chain(alone).collect()
}
