//! One contract of execs, checked over HTTP on every backend, and one of the record on every
//! database.
//!
//! A test gets a [`Fixture`] with its backend and database, and starts its own servers. Where
//! backends may differ, the test says how. This program starts the Docker daemon and the PostgreSQL
//! cluster and stops them at the end. Without root the tests of Docker and gVisor are skipped, with
//! a message; as root a machine without Docker fails. `RINGWALL_SOAK=1` adds the tests of all
//! backends on PostgreSQL, and the build of the default image.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "prints skipped tests")]

mod fixture;

mod answers;
mod code;
mod default_image;
mod docker_sessions;
mod egress;
mod events;
mod faults;
mod files;
mod gvisor;
mod outcomes;
mod records;
mod restarts;
mod sessions;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tests::cases;
use tests::support::docker_daemon::Daemon;
use tests::support::docker_image;
use tests::support::postgres_cluster::Cluster;

use crate::fixture::{Backend, Database, Fixture};

type Test = fn(&Fixture);

const ON_EACH_BACKEND: &[(&str, Test)] = cases! {
    answers::{
        exec_answers_with_its_outcome, python_runs_code_and_scripts, exec_view_shows_request_policy_and_protections,
        environment_is_that_of_the_request, working_directory_is_that_of_the_request,
    }
    outcomes::{
        timeout_ends_exec, memory_limit_ends_exec, artifacts_limit_fails_exec, output_is_truncated_at_limit, running_exec_is_cancelled_once, same_key_runs_one_exec,
        background_processes_end_with_box,
    }
    files::{
        invalid_input_path_writes_no_input, artifacts_are_listed_with_hashes, planted_links_are_not_followed,
        meta_and_manifest_describe_exec, output_is_read_by_byte_range,
    }
    events::{ event_stream_resumes_after_last_event_id }
    code::{ session_code_sees_same_files_on_every_backend, strict_settings_choose_backend_of_code }
    sessions::{ session_box_keeps_state }
    egress::{ exec_reaches_allowed_hosts_only, session_box_reaches_allowed_hosts_only }
    restarts::{ killed_server_leaves_nothing, stopping_server_waits_for_exec, stopping_server_cancels_exec }
};

const ON_EACH_DATABASE: &[(&str, Test)] = cases! {
    records::{
        lists_are_newest_first_in_pages, lists_are_filtered, audit_chain_is_intact_after_kill, idempotency_key_survives_restart,
        tokens_work_until_revoked, settings_survive_kill,
    }
};

const ON_DOCKER: &[(&str, Test)] = cases! { docker_sessions::{ session_containers_end_with_server } };

const WITHOUT_FIXTURE: &[(&str, fn())] = cases! {
    faults::{ missing_client_is_reported, missing_daemon_is_reported, hanging_daemon_is_reported, stopped_daemon_is_reported, killed_daemon_fails_session_execs, configured_client_builds_image }
    gvisor::{ runsc_runs_exec_without_docker, docker_runs_exec_with_gvisor_runtime, missing_gvisor_is_reported }
    records::{ database_flag_is_used_by_server_and_commands }
};

const WITHOUT_FIXTURE_IN_SOAK: &[(&str, fn())] = cases! { default_image::{ image_is_built_from_packages } };

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: all tests on docker and gvisor, because a docker daemon and runsc need root");
    }
    // On the main thread, because both end with the thread that started them.
    let daemon = (is_root && !arguments.list).then(|| Arc::new(docker_image::launch(&[], docker_image::EVERYTHING)));
    let cluster = (!arguments.list).then(|| Arc::new(Cluster::start().unwrap_or_else(|reason| panic!("{reason}"))));
    let conclusion = libtest_mimic::run(&arguments, all_tests(daemon.as_ref(), cluster.as_ref()));
    // The last owner: this stops both.
    drop((daemon, cluster));
    conclusion.exit_code()
}

fn all_tests(daemon: Option<&Arc<Daemon>>, cluster: Option<&Arc<Cluster>>) -> Vec<Trial> {
    let is_soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    let is_root = rustix::process::geteuid().is_root();
    let mut tests = Vec::new();
    let mut add = |list: &[(&'static str, Test)], backend: Backend, database: Database| {
        for (name, test_function) in list {
            let fixture = Fixture { backend, database, daemon: daemon.cloned(), cluster: cluster.cloned() };
            let (name, test_function) = (format!("{}::{}::{name}", backend.name(), database.name()), *test_function);
            tests.push(Trial::test(name, move || {
                test_function(&fixture);
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
    let without_fixture = WITHOUT_FIXTURE.iter().chain(if is_soak { WITHOUT_FIXTURE_IN_SOAK } else { &[] });
    for (name, test_function) in without_fixture.filter(|(name, _)| is_root || name.starts_with("records::")) {
        tests.push(Trial::test(*name, move || {
            test_function();
            Ok(())
        }));
    }
    tests
}
