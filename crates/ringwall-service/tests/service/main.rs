//! Tests of the service with native boxes and SQLite in a temporary directory, without mocks.
//!
//! This binary has four roles: the tests, the jail of their boxes, the agent in session boxes, and
//! a service that is killed. As root it also runs all tests as an ordinary user.

#![expect(clippy::disallowed_methods, reason = "the service to be killed is this program")]
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
    let mut tries: Vec<(&str, fn())> = vec![
        ("success and failure", endings::success_and_failure),
        ("timeout", endings::timeout),
        ("memory", endings::memory),
        ("cancel", endings::cancel),
        ("commands that are not there", endings::missing_directories_and_backends),
        ("truncation", endings::truncation_does_not_kill),
        ("output of processes that stay", endings::background_output_is_not_waited_for),
        ("skills", endings::skills_run),
        ("denials", denials::denials_are_recorded),
        ("intents", denials::an_intent_says_where_it_came_in),
        ("malformed", denials::what_is_malformed_leaves_no_trace),
        ("settings", denials::settings_are_the_operators_layer),
        ("lines on files", executing::a_line_runs_on_the_agents_files),
        ("programs on files", executing::a_program_runs_in_its_directory),
        ("denials on files", executing::what_is_not_allowed_is_on_record),
        ("timeouts on files", executing::time_is_up_in_the_words_of_each_contract),
        ("output on files", executing::output_is_cut_between_characters),
        ("files afterwards", executing::skills_are_healed_and_failures_without_a_network_explained),
        ("inputs", files::bad_inputs_write_nothing),
        ("artifacts", files::artifacts_are_listed_and_limited),
        ("secrets", files::no_value_of_the_environment_is_stored),
        ("disk, filled", disk::exec_over_disk_quota_is_stopped_with_reason),
        ("disk, filled with names", disk::a_filler_of_names_is_stopped_too),
        ("disk, on its way", disk::what_is_on_its_way_counts),
        ("disk, inputs", disk::inputs_need_room),
        ("disk, afterwards", disk::a_workspace_is_measured_after_its_execs),
        ("disk, files of an agent", disk::the_files_of_an_agent_need_room),
        ("disk, edits", disk::edits_need_room_for_what_they_write),
        ("disk, given back", disk::idle_sessions_and_strays_are_given_back),
        ("following", following::any_reconnects_give_the_exact_bytes),
        ("following live", following::a_follower_sees_output_before_the_end),
        ("once", idempotency::one_key_is_one_exec),
        ("once, on record", idempotency::no_digest_can_be_guessed),
        ("once, at once", idempotency::many_at_once_are_one),
        ("once, while the queue is full", idempotency::known_while_the_queue_is_full),
        ("once, under other settings", idempotency::known_when_it_would_no_longer_be_allowed),
        ("once, after a restart", idempotency::known_after_a_restart),
        ("turns", queueing::users_take_turns),
        ("bound", queueing::the_queue_is_bounded),
        ("cancelled while waiting", queueing::a_waiting_exec_can_be_cancelled),
        ("tenants", tenants::what_is_anothers_is_not_there),
        ("tokens", tenants::tokens_open_what_they_should),
        ("revoked tokens", tenants::tokens_close_at_once),
        ("killed", crash::a_killed_service_loses_its_execs_and_says_so),
        ("record that does not answer", faults::without_a_record_nothing_runs),
        ("ending that waits", faults::an_ending_is_recorded_when_it_can_be),
        ("retention", retention::old_execs_go_with_their_files),
        ("retention in batches", retention::many_old_execs_go),
        ("retention of the chain", retention::old_entries_go_and_the_chain_holds),
        ("retention where a step fails", retention::a_step_that_fails_stops_no_other),
        ("one server", stopping::one_server_for_one_directory),
        ("drain", stopping::drain_ends_what_runs),
        ("drain waits", stopping::drain_waits_for_what_ends),
        ("killed spawner", outside::a_killed_spawner_is_told),
        ("killed init", outside::a_killed_init_is_told_when_all_are_gone),
        ("spawner that stands still", outside::a_spawner_that_stands_still_is_replaced),
        ("memory after memory", leftovers::the_peak_is_ones_own),
        ("memory after a kill for it", leftovers::a_kill_for_memory_is_ones_own),
        ("processes after a bomb", leftovers::processes_are_ones_own),
        ("limits after other limits", leftovers::limits_are_ones_own),
        ("groups after the service", leftovers::no_group_is_left),
        ("way out", egress::what_is_allowed_gets_through_and_is_on_record),
        ("way out, other ways", egress::direct_connection_without_proxy_fails),
        ("way out, asked about", egress::a_person_is_asked_about_other_hosts),
        ("way out, in a session", egress::session_box_connections_belong_to_running_command),
        ("way out, once", egress::a_way_out_is_not_passed_on),
        ("way out, of two boxes", egress::boxes_with_a_way_out_do_not_find_each_other),
        ("pool, boxes of sessions", pool::a_sessions_box_is_replaced_after_its_last_use_and_when_it_was_idle),
        ("browsers, waited for", browsing::waiting_for_a_browser_is_bounded),
        ("browsers, not wanted", browsing::a_browser_that_is_not_wanted_leaves_nothing),
    ];
    if rustix::process::geteuid().is_root() {
        tries.push(("pool, the first run", pool::the_first_run_finds_a_box_that_was_made_ahead));
        // Without root, every box has its own network namespace.
        tries.push(("networks that were used", networks::a_used_network_is_not_passed_on));
        tries.push(("networks that were not used", networks::an_unused_network_is_passed_on));
        tries.push(("networks of two at once", networks::two_boxes_never_share_one));
        tries.push(("networks with a socket left", networks::a_network_of_which_a_socket_lives_on_is_not_passed_on));
        tries.push(("all as an ordinary user", ordinary::all_as_an_ordinary_user));
    }
    let trials = tries.into_iter().map(|(name, attempt)| {
        Trial::test(name, move || {
            attempt();
            Ok(())
        })
    });
    // One test at a time, because a process has one executor.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
