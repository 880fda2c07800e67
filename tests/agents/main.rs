//! Black-box tests of the files and skills of agents: the routes under `/v1` as the contracts
//! specify them, over real sockets, as root and rootless.
//!
//! There is one file per theme. A test gets a [`Fixture`], a mode in which the server runs. A mode
//! that is not available here is reported as skipped. RINGWALL_SOAK=1 runs longer races and
//! crashes, and the test of the timeout of five minutes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "skipped tests are reported")]

mod client;
mod fixture;
mod workspace;
mod zips;

mod access;
mod busy;
mod cli;
mod concurrency;
mod defaults;
mod disk;
mod execute;
mod files;
mod hostile_files;
mod hostile_zips;
mod kills;
mod layers;
mod malformed_requests;
mod memory;
mod paths;
mod sandbox;
mod skills;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tests::cases;
use tests::support::actor::{Identity, Mode, tester_is_root};
use tests::support::boxed;
use tests::support::scratch::Scratch;

use crate::fixture::Fixture;

type TestFn = fn(&Fixture);

const CASES: &[(&str, TestFn)] = cases! {
    files::{
        written_file_is_read_unchanged, page_lines_are_counted_from_one,
        unreadable_path_is_reported, write_creates_parent_directories, edit_with_wrong_count_changes_nothing,
        list_contains_sorted_regular_files, delete_removes_directory_tree, upload_uses_base_name,
        download_returns_file_or_zip,
    }
    paths::{
        path_outside_sections_is_rejected, path_that_leads_out_is_rejected, relative_path_stays_in_its_directory,
        invalid_bytes_and_lengths_are_rejected, invalid_agent_id_is_rejected, skill_file_is_writable_only_at_skill_root,
    }
    hostile_files::{
        symlink_out_of_files_is_rejected, symlink_within_files_is_readable, hard_link_to_outside_file_is_rejected,
        special_files_are_rejected_without_blocking, swapped_symlinks_leak_nothing, files_belong_to_workspace_owner,
    }
    malformed_requests::{ unknown_paths_and_methods_are_rejected, malformed_bodies_are_rejected, too_large_bodies_are_rejected, interrupted_upload_changes_nothing }
    access::{
        request_without_valid_token_is_rejected, workspace_of_other_user_is_not_found, roles_reach_their_workspaces,
        user_without_authentication_is_default, openapi_contains_every_route,
    }
    skills::{
        upload_response_names_every_skill, upload_replaces_whole_skill, archive_without_valid_skill_is_rejected,
        macos_metadata_is_skipped, utf8_and_gbk_names_are_decoded, list_shows_names_and_descriptions,
        list_contains_only_folders_with_skill_file, nested_skill_file_is_moved_to_root, read_and_list_heal_skills, skill_is_deleted_by_folder_name,
        broken_metadata_rules_cause_warnings,
    }
    hostile_zips::{
        names_that_lead_out_are_rejected, symlinks_and_special_files_are_rejected, colliding_names_are_rejected, broken_archives_are_rejected, decompression_bombs_are_rejected, too_many_entries_are_rejected,
        nested_skill_files_are_rejected,
    }
    execute::{
        command_is_run_by_shell, ordinary_commands_are_allowed, forbidden_command_is_rejected_by_name, reserved_name_in_command_is_rejected,
        environment_contains_only_defaults, server_environment_is_not_visible, python_runs_by_either_name, box_sees_only_its_workspace, execs_are_recorded,
        long_output_is_truncated_and_flagged, exec_ends_with_main_process, command_lists_are_settings,
    }
    sandbox::{
        sandbox_files_are_agent_files, line_ranges_include_both_ends,
        range_edit_changes_only_its_lines, arguments_are_passed_unchanged, programs_have_limits_of_commands, forbidden_arguments_are_rejected,
        skill_id_may_be_any_name,
    }
    layers::{
        upload_response_names_scope_and_path, baseline_is_visible_below_overlay, edits_do_not_change_baseline,
        changes_of_box_do_not_change_baseline, new_version_keeps_changes_of_users, concurrent_uploads_publish_whole_versions, update_waits_for_running_box,
    }
    defaults::{ default_settings_match_contracts, archive_beyond_512_mib_is_rejected }
    memory::{ late_page_uses_no_more_memory, large_upload_uses_no_more_memory, large_download_uses_no_more_memory }
    concurrency::{
        concurrent_readers_see_whole_versions, concurrent_edits_are_not_lost, stalled_upload_blocks_no_request, concurrent_agents_are_independent,
        skill_is_replaced_atomically, writes_of_box_and_routes_are_whole,
    }
    busy::{ long_wait_for_workspace_is_server_busy }
    kills::{ killed_server_keeps_acknowledged_versions }
    disk::{
        writes_beyond_quota_are_rejected, names_beyond_quota_are_rejected, exec_that_exceeds_quota_is_killed, command_that_exceeds_quota_reports_it,
        inputs_beyond_quota_are_rejected, baseline_beyond_quota_is_not_added, gc_removes_idle_sessions,
    }
    cli::{
        files_are_uploaded_and_downloaded, skills_are_pushed_and_pulled, transfers_show_progress_bar, malicious_archive_is_not_unpacked,
        errors_have_hints, help_lists_commands_and_options,
    }
};

/// These need root for the test itself, also if the server is rootless.
const ROOT_CASES: &[&str] = &["busy::long_wait_for_workspace_is_server_busy"];

const SOAK_CASES: &[(&str, TestFn)] = cases! { execute::{ commands_time_out_after_five_minutes } };

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_soak = fixture::is_soak();
    if !is_soak {
        println!("only with RINGWALL_SOAK=1: the timeout of five minutes");
    }
    let home = Scratch::new(Identity::Tester).unwrap();
    let binary = if arguments.list { Ok("".into()) } else { boxed::place(&home) };
    let binary = binary.unwrap_or_else(|message| panic!("{message}"));
    let mut sites = Vec::new();
    let mut cases = Vec::new();
    for mode in Mode::runnable() {
        let fixture = Arc::new(Fixture::new(mode, binary.clone()));
        for (name, test) in CASES.iter().chain(if is_soak { SOAK_CASES } else { &[] }) {
            if ROOT_CASES.contains(name) && !tester_is_root() {
                println!("skipped: {}::{name}, because the tests do not run as root", mode.name());
                continue;
            }
            let (fixture, test) = (Arc::clone(&fixture), *test);
            cases.push(Trial::test(format!("{}::{name}", mode.name()), move || {
                test(&fixture);
                Ok(())
            }));
        }
        sites.push(fixture);
    }
    let conclusion = libtest_mimic::run(&arguments, cases);
    for fixture in sites {
        fixture.close();
    }
    conclusion.exit_code()
}
