//! Servers on one data directory: load, a kill, sometimes another kill during the next start, and
//! checks.

use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use tests::support::docker_daemon::Daemon;
use tests::support::server::{Server, command};
use tests::support::traces::adopt_orphans;

use crate::approvals::{self, AnsweredApproval, answer_until_server_is_gone, control_paths};
use crate::database::{check_chain, check_file, check_outcomes};
use crate::host::Host;
use crate::load::{CLIENTS, Client, submit_until_server_is_gone};
use crate::random::Random;
use crate::requests::RequestLog;

/// The maximum time until a server is ready, from the contract.
const READY_WITHIN: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_LIFETIME: Duration = Duration::from_millis(600);
const MAX_START: Duration = Duration::from_millis(60);
/// The audit chain is verified after every fifth restart: that takes longer as it grows, and a
/// fault in it stays.
const VERIFY_CHAIN_EVERY: u32 = 5;

#[derive(Debug)]
pub(crate) struct CrashLoop {
    random: Random,
    host: Host,
    requests: RequestLog,
    /// The approvals that were answered before the last kill.
    answered: Vec<AnsweredApproval>,
    remembered: usize,
    dead: Vec<u32>,
    restarts: u32,
    slowest_start: Duration,
}

impl CrashLoop {
    pub(crate) fn new(seed: u64, daemon: Option<Daemon>) -> Self {
        adopt_orphans().unwrap();
        let (host, requests) = (Host::new(daemon), RequestLog::default());
        Self {
            random: Random::new(seed),
            host,
            requests,
            answered: Vec::new(),
            remembered: 0,
            dead: Vec::new(),
            restarts: 0,
            slowest_start: Duration::ZERO,
        }
    }

    /// Kills servers this many times, and then stops the last one.
    pub(crate) fn survive(mut self, kills: usize) {
        let mut server = self.start(TempDir::with_prefix("rw-serve-").unwrap());
        self.check_control(&server);
        control_paths(&server);
        while self.dead.len() < kills {
            let data = self.run_until_killed(server);
            while self.random.one_in(4) {
                self.kill_during_start(&data);
            }
            server = self.start(data);
            self.check(&server);
        }
        self.stop_and_check(server);
    }

    fn start(&mut self, data: TempDir) -> Server {
        let client = self.host.daemon().map(Daemon::client);
        let flags = client.as_ref().map(|client| ["--docker-cli-path", client.to_str().unwrap()]);
        let began = Instant::now();
        let server = Server::start_in(data, flags.as_ref().map_or(&[], |flags| &flags[..]));
        let took = began.elapsed();
        assert!(took < READY_WITHIN, "ready only after {took:?}");
        self.slowest_start = self.slowest_start.max(took);
        server
    }

    /// The control: the processes of a running box are found.
    fn check_control(&self, server: &Server) {
        let id = server.begin("echo begun; sleep 600");
        server.wait_for_output(&id);
        self.host.assert_found(server.id());
        server.ask("DELETE", &format!("/sandbox/execs/{id}"), None).expect(202);
    }

    /// Puts load on a server, kills it and returns its data directory.
    fn run_until_killed(&mut self, mut server: Server) -> TempDir {
        let backend = self.host.daemon().map(|_| "docker");
        let client = Client::new(&server);
        let server_number = self.dead.len();
        let (confirm, confirmed) = channel();
        let (entries, answered) = std::thread::scope(|scope| {
            let approver = scope.spawn(|| answer_until_server_is_gone(&client, server_number, &confirm));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (client, random) = (client.clone(), Random::new(self.random.next()));
                    let name = format!("{server_number}-{number}");
                    scope.spawn(move || submit_until_server_is_gone(&client, &name, random, backend))
                })
                .collect();
            // The first server lives until an answer is confirmed, even on a slow machine.
            if server_number == 0 {
                let _ = confirmed.recv_timeout(TIMEOUT);
            }
            self.random.pause(MAX_LIFETIME);
            server.signal(Signal::KILL);
            server.ended();
            let entries = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
            (entries, approver.join().unwrap())
        });
        self.requests.add(entries);
        self.answered = answered;
        self.dead.push(server.id());
        server.leave()
    }

    fn kill_during_start(&mut self, data: &TempDir) {
        let mut command = command(data.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        self.random.pause(MAX_START);
        process.kill().unwrap();
        process.wait().unwrap();
        self.dead.push(process.id());
    }

    fn check(&mut self, server: &Server) {
        let what = format!("after {} kills", self.dead.len());
        self.host.assert_clean(&self.dead, server.id(), &what);
        self.requests.check_new(server);
        self.remembered += approvals::check(server, &std::mem::take(&mut self.answered));
        check_file(server);
        self.restarts += 1;
        if self.restarts.is_multiple_of(VERIFY_CHAIN_EVERY) {
            check_chain(server);
        }
    }

    fn stop_and_check(mut self, mut server: Server) {
        for exec in server.ask("GET", "/sandbox/execs?status=RUNNING", None).expect(200).as_array().unwrap() {
            // It may have ended before.
            let path = format!("/sandbox/execs/{}", exec["exec_id"].as_str().unwrap());
            server.ask("DELETE", &path, None);
        }
        server.signal(Signal::TERM);
        assert_eq!(server.ended().code(), Some(0), "{}", server.log());
        server = self.start(server.leave());
        let execs = check_outcomes(&server);
        check_file(&server);
        check_chain(&server);
        self.requests.check_marks(&server);
        self.host.assert_clean(&self.dead, server.id(), "at the end");
        let (kills, slowest) = (self.dead.len(), self.slowest_start);
        assert!(self.remembered > 0, "no answer was remembered before any kill");
        let (summary, remembered) = (self.requests.summary(), self.remembered);
        println!("{kills} kills, {execs} execs; {summary}; {remembered} answers remembered; slowest start {slowest:?}");
    }
}

/// A Docker daemon with a small default image.
pub(crate) fn daemon() -> Daemon {
    tests::support::docker_image::launch(&[], tests::support::docker_image::LITTLE)
}
