//! One contract of execs, checked over HTTP for every backend, and one of the record for every database.
//!
//! A trial gets a *site*: which backend its execs name and where its server keeps its record. It starts servers of its
//! own there. Where backends may differ, the trial says how; none is left out in silence. The docker daemon and the
//! PostgreSQL cluster are started here, for these trials, and stopped at the end whatever the trials did. Without root no
//! daemon can be started, which is said; as root a machine without docker fails. RINGWALL_SOAK=1 adds the backends'
//! trials on PostgreSQL, and the making of the default image.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "what is not tried has to be said")]

mod site;

mod ahead;
mod answers;
mod code;
mod default_image;
mod endings;
mod faults;
mod files;
mod following;
mod gvisor;
mod lives;
mod reach;
mod records;
mod sessions;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tests::support::docker_daemon::Daemon;
use tests::support::docker_image;
use tests::support::postgres_cluster::Cluster;

use crate::site::{Backend, Database, Site};

type Try = fn(&Site);

/// A trial's name and its function.
macro_rules! trials {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*)*]
    };
}

const ON_EACH_BACKEND: &[(&str, Try)] = trials! {
    answers::{
        an_exec_answers_with_its_ending, python_runs_code_and_scripts, everything_that_is_known_is_told,
        the_environment_is_the_requests, the_working_directory_is_the_requests,
    }
    endings::{
        too_long, too_much_memory, too_many_artifacts, too_much_output, cancelled_once, one_key_is_one_exec,
        what_is_left_in_the_box_ends_with_it,
    }
    files::{
        inputs_are_whole_or_not_at_all, artifacts_are_listed_with_their_hashes, what_a_box_plants_is_not_followed,
        the_two_files_of_an_exec, output_is_read_by_bytes,
    }
    following::{ to_the_end_and_taken_up_again }
    code::{ a_session_is_the_same_in_every_box, what_is_demanded_is_what_it_gets }
    sessions::{ a_sessions_box_stays }
    reach::{ a_box_reaches_the_hosts_of_its_list, a_sessions_box_reaches_them_too }
    lives::{ a_killed_server_leaves_nothing, a_stopped_server_waits, a_stopped_server_cancels }
};

const ON_EACH_DATABASE: &[(&str, Try)] = trials! {
    records::{
        lists_are_newest_first_in_pages, lists_are_filtered, the_chain_holds_over_a_kill, a_key_holds_over_a_restart,
        tokens_live_and_die, settings_stay,
    }
};

const ON_DOCKER: &[(&str, Try)] = trials! { ahead::{ a_session_finds_a_container_that_was_made_ahead } };

const ALONE: &[(&str, fn())] = trials! {
    faults::{ no_client, no_daemon, a_daemon_that_hangs, a_daemon_that_is_stopped, a_daemon_that_is_killed_under_a_session, the_client_that_is_set_makes_the_image }
    gvisor::{ without_docker, an_exec_behind_gvisor, without_gvisor }
    records::{ a_database_named_on_the_command_line }
};

const ALONE_IN_SOAK: &[(&str, fn())] = trials! { default_image::{ is_built_from_packages } };

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: all trials on docker and gvisor, because a docker daemon and runsc need root");
    }
    // Started by this thread, because each is told to end with the thread that started it.
    let daemon = (is_root && !arguments.list).then(|| Arc::new(docker_image::launch(&[], docker_image::EVERYTHING)));
    let cluster = (!arguments.list).then(|| Arc::new(Cluster::start().unwrap_or_else(|reason| panic!("{reason}"))));
    let conclusion = libtest_mimic::run(&arguments, trials(daemon.as_ref(), cluster.as_ref()));
    // The trials and their shares are gone; this stops both.
    drop((daemon, cluster));
    conclusion.exit_code()
}

fn trials(daemon: Option<&Arc<Daemon>>, cluster: Option<&Arc<Cluster>>) -> Vec<Trial> {
    let is_soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    let is_root = rustix::process::geteuid().is_root();
    let mut trials = Vec::new();
    let mut add = |tries: &[(&'static str, Try)], backend: Backend, database: Database| {
        for (name, attempt) in tries {
            let site = Site { backend, database, daemon: daemon.cloned(), cluster: cluster.cloned() };
            let (name, attempt) = (format!("{}::{}::{name}", backend.name(), database.name()), *attempt);
            trials.push(Trial::test(name, move || {
                attempt(&site);
                Ok(())
            }));
        }
    };
    let backends = if is_root { &[Backend::Native, Backend::Gvisor, Backend::Docker][..] } else { &[Backend::Native] };
    let databases = if is_soak { &[Database::Sqlite, Database::Postgres][..] } else { &[Database::Sqlite] };
    for backend in backends {
        for database in databases {
            add(ON_EACH_BACKEND, *backend, *database);
        }
    }
    if is_root {
        add(ON_DOCKER, Backend::Docker, Database::Sqlite);
    }
    for database in [Database::Sqlite, Database::Postgres] {
        add(ON_EACH_DATABASE, Backend::Native, database);
    }
    let alone = ALONE.iter().chain(if is_soak { ALONE_IN_SOAK } else { &[] });
    for (name, attempt) in alone.filter(|(name, _)| is_root || name.starts_with("records::")) {
        trials.push(Trial::test(*name, move || {
            attempt();
            Ok(())
        }));
    }
    trials
}
