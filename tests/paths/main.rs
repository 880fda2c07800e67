//! Path control: the routes under `/api/sandbox` and commands that use the allowed paths, over HTTP, as root and rootless.
//!
//! Each test has its own server and its own host directory that no box sees by default. A mode that this machine cannot
//! run is printed as skipped.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "what is not tried has to be said")]

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
use tests::support::actor::{Identity, Mode};
use tests::support::boxed;
use tests::support::scratch::Scratch;

use crate::fixture::TestServer;

type Try = fn(&TestServer);

/// A test's name and function.
macro_rules! cases {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*)*]
    };
}

const CASES: &[(&str, Try)] = cases! {
    settings::{
        the_table_of_the_contract, paths_are_kept_in_their_normal_form, everybody_reads_and_operators_write,
        relative_path_is_stored_absolute_with_a_warning, pattern_or_empty_segment_is_refused,
        template_adds_missing_paths_and_sets_switch, pattern_is_not_remembered,
        own_directories_cannot_be_added, risky_path_gets_warning, rows_by_hand_count_at_once,
        a_user_keeps_what_is_theirs,
    }
    reach::{
        allowed_paths_are_there_and_no_others, an_entry_that_is_off_counts_for_nothing, files_are_entries_too,
        a_session_keeps_its_files, a_command_starts_where_it_may, entries_in_tmp_are_the_hosts,
        entries_in_the_system_work, windows_into_the_machine_stay_the_boxs_own, the_parent_of_our_data_shows_none_of_it,
        an_owner_is_acted_for_by_the_operators_word_alone, limits_and_malformed_words,
        socket_below_allowed_path_is_unreachable, whole_host_keeps_links_of_var,
    }
    asking::{
        once_is_for_one_exec_and_its_paths, remembering_adds_what_was_shown, a_refusal_is_told_with_its_reason,
        unanswered_question_denies_exec, a_changed_list_makes_an_answer_void, newly_allowed_path_continues_waiting_exec,
        an_answer_is_for_nothing_else, cancelled_exec_withdraws_question,
        a_users_word_is_their_own, several_paths_are_one_question, remembered_answer_enables_disabled_entry,
        a_changed_policy_makes_an_answer_void, unchanged_policy_keeps_question, change_after_answer_asks_again, a_link_is_gone_by_its_name,
        missing_path_is_not_created_by_approval, keys_are_an_operators_to_give,
    }
    hostile::{
        links_out_of_an_allowed_directory, the_data_cannot_be_moved_from_under_its_cover,
        the_data_has_no_second_name, detours_are_resolved, unparsed_path_is_not_in_box,
        an_entry_that_becomes_a_link, another_users_entries_are_not_in_my_box,
    }
    uncontrolled::{
        readonly_shows_public_files_of_the_system, readonly_writes_nothing_of_the_host,
        tenants_share_no_writable_directory, full_shows_the_host_and_says_so, full_changes_no_file_of_the_servers_user,
        switching_off_says_what_is_shown, other_routes_keep_their_box, sockets_of_the_host_are_not_reached,
    }
    off_secrets::{
        readonly_hides_home_directories, readonly_hides_files_that_only_the_servers_user_may_read,
        readonly_hides_a_home_directory_in_opt, configuration_file_is_hidden, full_hides_known_secrets, full_hides_a_history_that_is_replaced,
    }
    kernel_mounts::{
        kernel_mounts_are_empty_while_path_control_is_off, kernel_mounts_are_empty_below_an_allowed_path,
        later_mount_does_not_reach_a_running_box, kernel_mount_in_usr_newer_than_the_server_is_empty,
    }
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let home = Scratch::new(Identity::Tester).unwrap();
    let binary = if arguments.list { Ok(PathBuf::new()) } else { boxed::place(&home) };
    let binary = binary.unwrap_or_else(|message| panic!("{message}"));
    let mut cases = Vec::new();
    for mode in Mode::ALL {
        if let Err(skip) = mode.available() {
            println!("skipped: all trials as {}, because {}", mode.name(), skip.reason());
            continue;
        }
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
