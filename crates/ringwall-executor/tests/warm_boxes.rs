//! Tests of native warm boxes: they run commands exactly as cold boxes do, and nothing is carried
//! over from one to the next.
//!
//! This program is also the jail process of its boxes. Warm boxes need root; without it the tests
//! are skipped with a message.

#![expect(clippy::disallowed_methods, reason = "workspaces are made and given to their owners")]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed assumption is a failed test")]
#![expect(clippy::print_stdout, reason = "a test may say what it found")]

mod warm_boxes {
    pub(crate) mod fixture;

    pub(crate) mod ends;
    pub(crate) mod fidelity;
    pub(crate) mod strangers;
    pub(crate) mod walls;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use warm_boxes::{ends, fidelity, strangers, walls};

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    let arguments = Arguments::from_args();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: all, because spares are made as root alone");
        return ExitCode::SUCCESS;
    }
    let tries: Vec<(&str, fn())> = vec![
        ("programs", fidelity::a_spare_runs_what_a_cold_box_runs),
        ("standard input", fidelity::standard_input_is_the_commands_own),
        ("environment", fidelity::environment_and_directory_are_the_commands_own),
        ("modules", fidelity::a_module_of_the_workspace_comes_first),
        ("plain", fidelity::any_command_runs_in_a_plain_spare),
        ("workspaces", fidelity::files_belong_to_the_workspaces_owner),
        ("own root", fidelity::a_spare_can_do_without_a_skeleton),
        ("strangers", strangers::nothing_stays_from_one_tenant_to_the_next),
        ("memory layout", strangers::no_two_spares_are_laid_out_alike),
        ("users", strangers::no_two_living_spares_are_the_same_user),
        ("walls", walls::the_walls_are_those_of_a_cold_box),
        ("landlock", walls::landlock_holds_in_the_interpreter),
        ("way out, unserved", walls::box_with_closed_proxy_socket_has_no_network),
        ("killed", ends::a_spare_that_was_killed_is_not_handed_out),
        ("interpreter killed", ends::a_spare_without_its_interpreter_is_not_handed_out),
        ("unfit", ends::unfit_grant_is_returned),
        ("time limit", ends::the_time_limit_is_the_commands),
        ("usage", ends::usage_excludes_time_before_command),
        ("memory limit", ends::the_memory_limit_holds),
        ("pool", ends::a_pool_learns_fills_and_leaves_no_process),
    ];
    let cases = tries.into_iter().map(|(name, attempt)| {
        Trial::test(name, move || {
            attempt();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, cases.collect()).exit_code()
}
