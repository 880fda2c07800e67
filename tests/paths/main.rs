//! Path control: the routes under `/api/sandbox` and commands that use the allowed paths, over HTTP, as root and rootless.
//!
//! Each test has its own server and its own host directory that no box sees by default. A mode that this machine cannot
//! run is printed as skipped.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "prints skipped tests")]

mod fixture;

mod asking;
mod hostile;
mod kernel_mounts;
mod off_secrets;
mod reach;
mod settings;
mod uncontrolled;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tests::cases;
use tests::support::actor::{Identity, Mode};
use tests::support::boxed;
use tests::support::scratch::Scratch;

use crate::fixture::TestServer;

type Try = fn(&TestServer);

const CASES: &[(&str, Try)] = cases! {
    settings::{
        path_routes_follow_contract, added_path_is_stored_in_normal_form, path_list_is_readable_for_all_and_writable_for_operators,
        relative_path_is_stored_absolute_with_a_warning, pattern_or_empty_segment_is_refused,
        template_adds_missing_paths_and_sets_switch, pattern_is_not_remembered,
        own_directories_cannot_be_added, risky_path_gets_warning, row_inserted_with_sql_takes_effect_at_once,
        users_entry_is_visible_to_user_and_operators_only,
    }
    reach::{
        box_contains_allowed_paths_only, disabled_entry_allows_nothing, single_file_can_be_allowed,
        session_files_persist_and_are_private_to_agent, working_directory_must_be_allowed, allowed_path_in_tmp_is_the_hosts,
        system_directory_can_be_allowed, allowed_proc_sys_dev_and_run_stay_the_boxs_own, allowed_parent_of_data_directory_hides_data,
        box_acts_as_file_owner_for_operators_entry_only, execute_applies_limits_and_rejects_malformed_requests,
        socket_below_allowed_path_is_unreachable, whole_host_keeps_links_of_var,
    }
    asking::{
        allow_once_covers_one_exec_and_its_paths, remember_adds_requested_directory, denial_is_returned_with_its_reason,
        unanswered_question_denies_exec, changed_path_list_voids_answer, newly_allowed_path_continues_waiting_exec,
        answer_does_not_cover_changed_request, cancelled_exec_withdraws_question,
        users_answer_applies_to_own_agents_only, several_blocked_paths_are_one_question, remembered_answer_enables_disabled_entry,
        changed_policy_voids_answer, unchanged_policy_keeps_question, change_after_answer_asks_again, approval_of_link_target_covers_link_name,
        missing_path_is_not_created_by_approval, user_cannot_allow_paths_with_keys,
    }
    hostile::{
        link_out_of_allowed_directory_is_not_followed, parent_of_masked_data_cannot_be_moved,
        bind_mount_of_data_is_hidden, indirect_paths_are_resolved_and_asked, unparsed_path_is_not_in_box,
        allowed_path_replaced_by_link_shows_nothing, entry_of_other_user_is_not_in_box,
    }
    uncontrolled::{
        readonly_shows_public_system_files, readonly_makes_host_read_only,
        tenants_share_no_writable_directory, full_shows_host_and_reports_it, full_keeps_files_of_server_user_unwritable,
        switching_off_reports_visible_paths, full_does_not_affect_other_routes, host_sockets_are_unreachable,
    }
    off_secrets::{
        readonly_hides_home_directories, readonly_hides_private_files_of_server_user,
        readonly_hides_home_directory_in_opt, configuration_file_is_hidden, full_hides_known_secrets, full_hides_replaced_history,
    }
    kernel_mounts::{
        kernel_mounts_are_empty_while_path_control_is_off, kernel_mounts_are_empty_below_an_allowed_path,
        later_mount_does_not_reach_a_running_box, kernel_mount_in_usr_made_after_start_is_empty,
    }
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let home = Scratch::new(Identity::Tester).unwrap();
    let binary = if arguments.list { Ok(PathBuf::new()) } else { boxed::place(&home) };
    let binary = binary.unwrap_or_else(|message| panic!("{message}"));
    let mut cases = Vec::new();
    for mode in Mode::runnable() {
        let test_server = Arc::new(TestServer { mode, binary: binary.clone() });
        for (name, attempt) in CASES {
            let (test_server, attempt) = (Arc::clone(&test_server), *attempt);
            cases.push(Trial::test(format!("{}::{name}", mode.name()), move || {
                attempt(&test_server);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, cases).exit_code()
}
