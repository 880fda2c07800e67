//! Tests of native warm boxes: they run commands exactly as cold boxes do, and no box carries
//! anything over to the next.
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
    pub(crate) mod protections;
    pub(crate) mod tenants;
}

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use warm_boxes::{ends, fidelity, protections, tenants};

/// Test cases named by their functions.
macro_rules! cases {
    ($($case:path),* $(,)?) => {
        vec![$(Trial::test(stringify!($case), || {
            $case();
            Ok(())
        })),*]
    };
}

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    let arguments = Arguments::from_args();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: warm boxes need root");
        return ExitCode::SUCCESS;
    }
    let cases = cases![
        fidelity::warm_interpreter_output_equals_cold_box,
        fidelity::command_reads_its_own_standard_input,
        fidelity::environment_and_directory_equal_cold_box,
        fidelity::workspace_module_shadows_loaded_module,
        fidelity::plain_warm_box_output_equals_cold_box,
        fidelity::new_files_belong_to_workspace_owner,
        fidelity::warm_box_without_base_rootfs_equals_cold_box,
        tenants::next_tenant_finds_no_traces,
        tenants::memory_layouts_differ,
        tenants::uids_of_living_warm_boxes_differ,
        protections::protections_equal_cold_box,
        protections::landlock_restricts_warm_interpreter,
        protections::box_with_closed_proxy_socket_has_no_network,
        ends::killed_warm_box_returns_grant,
        ends::killed_interpreter_returns_grant,
        ends::unfit_grant_is_returned,
        ends::time_limit_ends_command,
        ends::usage_excludes_time_before_command,
        ends::memory_limit_ends_command,
        ends::stopped_pool_leaves_no_process,
    ];
    libtest_mimic::run(&arguments, cases).exit_code()
}
