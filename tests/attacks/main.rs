//! The attack suite: runs every probe on the real binary as root, rootless, and through a server,
//! and prints a table.
//!
//! A probe that a machine cannot run is counted as skipped, with its reason. With `CI=true` an
//! avoidable skip is a failure. `RINGWALL_SOAK=1` runs the long form of races and repetitions.

mod a01_read_host_secrets;
mod a02_write_read_only;
mod a03_truncate_by_path;
mod a04_symlinks_out;
mod a05_hard_link_alias;
mod a07_workspace_swap_race;
mod a10_device_nodes;
mod a11_setuid_binary;
mod a12_device_inventory;
mod a13_shared_memory_residue;
mod a16_leaked_directory;
mod b01_visible_processes;
mod b02_write_kernel_settings;
mod b03_read_kernel_state;
mod b07_init_internals;
mod b08_replace_the_binary;
mod b10_cgroup_files;
mod c01_namespace_ids;
mod c02_nested_root;
mod c04_enter_namespaces;
mod c05_host_name_and_time;
mod c06_kill_others;
mod calls;
mod d01_no_privileges;
mod d02_gain_identity;
mod d03_file_capabilities;
mod e01_keys;
mod e02_bpf;
mod e03_perf_events;
mod e04_userfaultfd;
mod e05_io_uring;
mod e06_old_mount_calls;
mod e07_new_mount_calls;
mod e08_other_processes;
mod e09_kernel_replacement;
mod e10_file_handles;
mod e11_namespace_calls;
mod e12_machine_calls;
mod e13_clocks;
mod e15_rare_calls;
mod e16_terminal_injection;
mod e17_socket_families;
mod e18_foreign_abis;
mod e19_loosen_the_filter;
mod e20_ordinary_programs;
mod e21_hooks_run_inside_only;
mod f01_host_listeners;
mod f02_metadata_services;
mod f03_own_api;
mod f05_host_sockets;
mod f06_datagrams_and_names;
mod f09_past_the_list;
mod f10_without_the_proxy;
mod f11_box_to_box;
mod f12_dead_proxy;
mod g01_fork_bomb;
mod g02_memory_hog;
mod g03_many_threads;
mod g04_cpu_quota;
mod g05_disk_filler;
mod g06_inode_filler;
mod g09_endless_output;
mod g10_hostile_bytes;
mod g12_ignored_termination;
mod g13_outliving_daemon;
mod g15_zombie_storm;
mod g18_child_cgroup;
mod g19_core_dump;
mod g21_blind_the_meter;
mod g22_machine_pools;
mod g23_socket_memory;
mod g24_disk_hog;
mod g25_shared_counters;
mod k01_environment;
mod k02_starter_environ;
mod k03_inherited_descriptors;
mod probe;
mod r01_operator_host_program;
mod s01_other_tenants;
mod s02_server_secrets;
mod s03_starved_neighbours;
mod s04_hostile_leftovers;
mod s05_output_floods;
mod s06_cancel_race;
mod s07_residue;
mod s08_spawner_faults;
mod s09_other_commands;
mod s10_allowed_path_swap;
mod s11_whole_host_allowed;
mod s12_full_counters;
mod s13_user_processes;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::json;
use tests::support::actor::{Identity, Skip};
use tests::support::boxed;
use tests::support::scratch::Scratch;
use tests::support::server::Server;

use probe::{Column, Context, Effort, Fault, Probe, Verdict};
use summary::Summary;

/// All probes, in the order in which they are run and listed.
const PROBES: &[Probe] = &[
    a01_read_host_secrets::PROBE,
    a02_write_read_only::PROBE,
    a03_truncate_by_path::PROBE,
    a04_symlinks_out::PROBE,
    a05_hard_link_alias::PROBE,
    a07_workspace_swap_race::PROBE,
    a10_device_nodes::PROBE,
    a11_setuid_binary::PROBE,
    a12_device_inventory::PROBE,
    a13_shared_memory_residue::PROBE,
    a16_leaked_directory::PROBE,
    b01_visible_processes::PROBE,
    b02_write_kernel_settings::PROBE,
    b03_read_kernel_state::PROBE,
    b07_init_internals::PROBE,
    b08_replace_the_binary::PROBE,
    b10_cgroup_files::PROBE,
    c01_namespace_ids::PROBE,
    c02_nested_root::PROBE,
    c04_enter_namespaces::PROBE,
    c05_host_name_and_time::PROBE,
    c06_kill_others::PROBE,
    d01_no_privileges::PROBE,
    d02_gain_identity::PROBE,
    d03_file_capabilities::PROBE,
    e01_keys::PROBE,
    e02_bpf::PROBE,
    e03_perf_events::PROBE,
    e04_userfaultfd::PROBE,
    e05_io_uring::PROBE,
    e06_old_mount_calls::PROBE,
    e07_new_mount_calls::PROBE,
    e08_other_processes::PROBE,
    e09_kernel_replacement::PROBE,
    e10_file_handles::PROBE,
    e11_namespace_calls::PROBE,
    e12_machine_calls::PROBE,
    e13_clocks::PROBE,
    e15_rare_calls::PROBE,
    e16_terminal_injection::PROBE,
    e17_socket_families::PROBE,
    e18_foreign_abis::PROBE,
    e19_loosen_the_filter::PROBE,
    e20_ordinary_programs::PROBE,
    e21_hooks_run_inside_only::PROBE,
    f01_host_listeners::PROBE,
    f02_metadata_services::PROBE,
    f03_own_api::PROBE,
    f05_host_sockets::PROBE,
    f06_datagrams_and_names::PROBE,
    f09_past_the_list::PROBE,
    f10_without_the_proxy::PROBE,
    f11_box_to_box::PROBE,
    f12_dead_proxy::PROBE,
    g01_fork_bomb::PROBE,
    g02_memory_hog::PROBE,
    g03_many_threads::PROBE,
    g04_cpu_quota::PROBE,
    g05_disk_filler::PROBE,
    g06_inode_filler::PROBE,
    g09_endless_output::PROBE,
    g10_hostile_bytes::PROBE,
    g12_ignored_termination::PROBE,
    g13_outliving_daemon::PROBE,
    g15_zombie_storm::PROBE,
    g18_child_cgroup::PROBE,
    g19_core_dump::PROBE,
    g21_blind_the_meter::PROBE,
    g22_machine_pools::PROBE,
    g23_socket_memory::PROBE,
    g24_disk_hog::PROBE,
    g25_shared_counters::PROBE,
    k01_environment::PROBE,
    k02_starter_environ::PROBE,
    k03_inherited_descriptors::PROBE,
    r01_operator_host_program::PROBE,
    s01_other_tenants::PROBE,
    s02_server_secrets::PROBE,
    s03_starved_neighbours::PROBE,
    s04_hostile_leftovers::PROBE,
    s05_output_floods::PROBE,
    s06_cancel_race::PROBE,
    s07_residue::PROBE,
    s08_spawner_faults::PROBE,
    s09_other_commands::PROBE,
    s10_allowed_path_swap::PROBE,
    s11_whole_host_allowed::PROBE,
    s12_full_counters::PROBE,
    s13_user_processes::PROBE,
];

/// Shared by all tests.
struct Suite {
    binary: PathBuf,
    effort: Effort,
    summary: Summary,
    /// Started by the first probe that needs it.
    server: Mutex<Option<Arc<Server>>>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One at a time, because probes exhaust resources and count processes.
    arguments.test_threads.get_or_insert(1);
    if let Err(message) = summary::check_elsewhere() {
        return refuse(&message);
    }
    let home = match Scratch::new(Identity::Tester) {
        Ok(home) => home,
        Err(error) => return refuse(&format!("no scratch directory: {error}")),
    };
    let binary = if arguments.list { Ok(PathBuf::new()) } else { boxed::place(&home) };
    let binary = match binary {
        Ok(binary) => binary,
        Err(message) => return refuse(&message),
    };
    let soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    let suite = Arc::new(Suite {
        binary,
        effort: if soak { Effort::Soak } else { Effort::Short },
        summary: Summary::default(),
        server: Mutex::new(None),
    });
    let available = Column::ALL.map(|column| (column, column.mode().available()));
    let mut cases = Vec::new();
    for probe in PROBES {
        for (column, available) in &available {
            cases.push(case(&suite, probe, *column, available.clone()));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, cases);
    drop(suite.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    if !arguments.list {
        suite.summary.print(PROBES);
    }
    conclusion.exit_code()
}

fn case(suite: &Arc<Suite>, probe: &'static Probe, column: Column, available: Result<(), Skip>) -> Trial {
    let suite = Arc::clone(suite);
    Trial::ignorable_test(format!("{}::{}", probe.id, column.name()), move || {
        let verdict = complete(available.map_err(Fault::Skipped).and_then(|()| perform(&suite, probe, column)));
        suite.summary.note(probe, column, &verdict);
        match verdict {
            Ok(_) => Ok(Completion::Completed),
            Err(Fault::Skipped(skip)) => Ok(Completion::ignored_with(skip.reason())),
            Err(Fault::Senseless(why)) => Ok(Completion::ignored_with(why)),
            Err(fault) => Err(Failed::from(fault.to_string())),
        }
    })
}

fn perform(suite: &Suite, probe: &Probe, column: Column) -> Verdict {
    let server = match column {
        Column::Run(_) => None,
        Column::Served => Some(suite.server()),
    };
    let context = Context::new(column.mode(), &suite.binary, suite.effort, server)?;
    let verdict = (probe.run)(&context);
    let left = context.left_behind()?;
    if verdict.is_ok() && !left.is_empty() {
        return Err(Fault::Broken(format!("processes of the product are left behind: {left:?}")));
    }
    verdict
}

impl Suite {
    /// With the widest limits, so that each probe sets its own.
    fn server(&self) -> Arc<Server> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let started = server.get_or_insert_with(|| {
            let server = Server::start();
            let limits = json!({ "timeout_ms": 300_000, "memory_mb": 4096, "pids": 512, "cpu_cores": 4,
                "max_stdout_bytes": 10 << 20, "max_stderr_bytes": 10 << 20 });
            let sandbox = json!({ "limits": limits, "max_concurrent_execs": 16, "max_concurrent_execs_per_user": 16 });
            // No warm boxes, so that every box found was left behind. ringwall-executor/tests/warm_boxes tests warm ones.
            let pool = json!({ "min_instances": 0 });
            server.ask("PUT", "/settings", Some(&json!({ "sandbox": sandbox, "pool": pool }))).expect(200);
            Arc::new(server)
        });
        Arc::clone(started)
    }
}

/// With `CI` set an avoidable skip is a failure.
fn complete(verdict: Verdict) -> Verdict {
    match verdict {
        Err(Fault::Skipped(skip)) if !summary::may_skip(&skip) => {
            Err(Fault::Inconclusive(format!("skipped where no skip is allowed: {}", skip.reason())))
        }
        other => other,
    }
}

#[expect(clippy::print_stderr, reason = "the suite cannot start, and nobody else would say why")]
fn refuse(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(101)
}
