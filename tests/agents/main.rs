//! Files and skills of agents: the routes under `/v1`, from the contracts' text and through real sockets, as root and
//! rootless.
//!
//! One file per theme. A trial gets a *site*, which is one way in which the product is run; a mode that cannot run here
//! is said, never left out in silence. RINGWALL_SOAK=1 takes races and crashes in their long form, and waits for the
//! time limit of five minutes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "what is not tried has to be said")]

mod caller;
mod site;
mod workspace;
mod zips;

mod access;
mod busy;
mod defaults;
mod disk;
mod execute;
mod files;
mod forms;
mod hostile_zips;
mod layers;
mod lives;
mod memory;
mod paths;
mod planted;
mod sandbox;
mod skills;
mod together;
mod verbs;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tests::support::actor::{Identity, Mode, tester_is_root};
use tests::support::boxed;
use tests::support::scratch::Scratch;

use crate::site::Site;

type Try = fn(&Site);

/// A trial's name and its function.
macro_rules! trials {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*)*]
    };
}

const TRIALS: &[(&str, Try)] = trials! {
    files::{
        a_whole_file_is_what_it_is, pages_are_counted_from_one,
        what_cannot_be_read_says_why, writes_make_their_directories, edits_count_what_they_replace,
        lists_are_sorted_names_of_regular_files, deleting_takes_everything_beneath, uploads_keep_their_base_name,
        downloads_are_the_bytes,
    }
    paths::{
        a_path_begins_with_its_section, no_path_leads_out, relative_paths_stay_beneath,
        odd_bytes_and_lengths_are_bad_input, ids_are_plain_names, skill_md_is_reserved,
    }
    planted::{
        links_that_leave_are_refused, links_that_stay_may_be_read, second_names_of_foreign_files_are_refused,
        what_is_no_file_is_not_waited_for, nothing_leaks_while_links_are_swapped, everything_is_its_owners,
    }
    forms::{ unknown_paths_and_methods, malformed_bodies, bodies_that_are_too_large, uploads_that_break_off }
    access::{
        nobody_is_let_in_without_a_token, the_workspace_of_another_is_not_there, every_role_has_its_workspaces,
        without_authentication_the_user_is_default, every_route_is_published,
    }
    skills::{
        an_upload_names_every_skill, a_new_version_replaces_the_old_whole, what_is_no_skill_is_refused,
        what_other_systems_add_is_left_out, names_may_be_utf8_or_gbk, a_list_tells_names_and_descriptions,
        a_list_has_only_folders_with_a_head, heads_are_pulled_up, a_read_heals_and_so_does_a_list, a_skill_is_deleted_by_its_folder,
        loose_heads_are_warned_about,
    }
    hostile_zips::{
        names_that_leave, links_and_devices, names_that_collide, broken_archives, bombs, too_many_entries,
        heads_in_other_places,
    }
    execute::{
        a_line_is_a_shells, ordinary_lines_raise_no_alarm, what_is_not_allowed_is_named, skill_md_is_reserved_in_lines,
        the_environment_is_made_of_nothing, the_servers_environment_is_nowhere, python_is_there_by_either_name, the_box_has_the_workspace_and_nothing_else, an_exec_is_on_record,
        output_is_cut_and_flagged, an_exec_ends_with_its_main_process, the_lists_are_the_operators,
    }
    sandbox::{
        files_are_those_of_the_other_contract, ranges_are_read_inclusively,
        ranges_replace_their_lines_and_no_other_byte, commands_are_words, programs_are_held_as_lines_are, words_have_their_rules,
        skill_ids_are_any_one_name,
    }
    layers::{
        uploads_say_where_they_went, a_baseline_shows_through, edits_are_the_users_own,
        what_a_box_changes_is_the_users_own, a_new_version_respects_what_users_did, baselines_change_as_a_whole, nothing_changes_beneath_a_box,
    }
    defaults::{ a_new_server_has_the_contracts_limits, half_a_gigabyte_is_unpacked_at_most }
    memory::{ a_late_page_costs_no_memory, a_large_upload_costs_no_memory, a_large_directory_costs_no_memory }
    together::{
        fifty_writers_and_fifty_readers, no_edit_is_lost, a_stalled_upload_holds_nobody, agents_do_not_meet,
        a_skill_is_swapped_whole, a_box_and_the_routes_write_the_same,
    }
    busy::{ whoever_waits_too_long_is_told }
    lives::{ killed_in_the_middle }
    disk::{
        writes_need_room, names_need_room, boxes_that_fill_the_disk_are_ended, whoever_fills_the_disk_is_told,
        inputs_need_room, baselines_wait_for_room, room_is_given_back,
    }
    verbs::{
        files_come_and_go, skills_are_pushed_and_pulled, transfers_show_a_bar, hostile_answers_are_not_unpacked,
        refusals_are_told_with_a_hint, help_says_what_there_is,
    }
};

/// Whose means only root has, whoever runs the server.
const TRIALS_OF_ROOT: &[&str] = &["busy::whoever_waits_too_long_is_told"];

const TRIALS_IN_SOAK: &[(&str, Try)] = trials! { execute::{ five_minutes_and_no_more } };

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_soak = site::is_soak();
    if !is_soak {
        println!("left for RINGWALL_SOAK=1: the time limit of five minutes");
    }
    let home = Scratch::new(Identity::Tester).unwrap();
    let binary = if arguments.list { Ok("".into()) } else { boxed::place(&home) };
    let binary = binary.unwrap_or_else(|message| panic!("{message}"));
    let mut sites = Vec::new();
    let mut trials = Vec::new();
    for mode in Mode::ALL {
        if let Err(skip) = mode.available() {
            println!("skipped: all trials as {}, because {}", mode.name(), skip.reason());
            continue;
        }
        let site = Arc::new(Site::new(mode, binary.clone()));
        for (name, attempt) in TRIALS.iter().chain(if is_soak { TRIALS_IN_SOAK } else { &[] }) {
            if TRIALS_OF_ROOT.contains(name) && !tester_is_root() {
                println!("skipped: {}::{name}, because the tests do not run as root", mode.name());
                continue;
            }
            let (site, attempt) = (Arc::clone(&site), *attempt);
            trials.push(Trial::test(format!("{}::{name}", mode.name()), move || {
                attempt(&site);
                Ok(())
            }));
        }
        sites.push(site);
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for site in sites {
        site.close();
    }
    conclusion.exit_code()
}
