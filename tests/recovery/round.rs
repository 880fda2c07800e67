//! The lives of one data directory: load, a kill, sometimes another during the next start, and the next server.

use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use tests::support::docker_daemon::Daemon;
use tests::support::server::{Server, command};
use tests::support::traces::adopt_orphans;

use crate::chance::Chance;
use crate::database::{check_chain, check_endings, check_file};
use crate::host::Host;
use crate::ledger::Ledger;
use crate::load::{CLIENTS, Client, ask_until_nobody_answers};
use crate::questions::{self, Answered, answer_until_nobody_asks, control_paths};

/// The contract's own figure.
const READY_WITHIN: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_LIFETIME: Duration = Duration::from_millis(600);
const MAX_START: Duration = Duration::from_millis(60);
/// The chain grows with every life, and what is wrong in it stays wrong: reading it whole every time would take long.
const WHOLE_CHAIN_EVERY: u32 = 5;

#[derive(Debug)]
pub(crate) struct Lives {
    chance: Chance,
    host: Host,
    ledger: Ledger,
    /// Of the last life.
    answered: Vec<Answered>,
    remembered: usize,
    dead: Vec<u32>,
    lives: u32,
    slowest_start: Duration,
}

impl Lives {
    pub(crate) fn new(seed: u64, daemon: Option<Daemon>) -> Self {
        adopt_orphans().unwrap();
        let (host, ledger) = (Host::new(daemon), Ledger::default());
        Self {
            chance: Chance::new(seed),
            host,
            ledger,
            answered: Vec::new(),
            remembered: 0,
            dead: Vec::new(),
            lives: 0,
            slowest_start: Duration::ZERO,
        }
    }

    /// So many kills, and then a quiet end.
    pub(crate) fn survive(mut self, kills: usize) {
        let mut server = self.start(TempDir::with_prefix("rw-serve-").unwrap());
        self.see_a_box(&server);
        control_paths(&server);
        while self.dead.len() < kills {
            let data = self.live_and_die(server);
            while self.chance.one_in(4) {
                self.die_while_starting(&data);
            }
            server = self.start(data);
            self.check(&server);
        }
        self.end_in_peace(server);
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

    /// The control: what a box has on the host is seen while it is there.
    fn see_a_box(&self, server: &Server) {
        let id = server.begin("echo begun; sleep 600");
        server.wait_for_output(&id);
        self.host.assert_seen(server.id());
        server.ask("DELETE", &format!("/sandbox/execs/{id}"), None).expect(202);
    }

    /// Load from many clients until the server is killed; gives what it leaves.
    fn live_and_die(&mut self, mut server: Server) -> TempDir {
        let backend = self.host.daemon().map(|_| "docker");
        let client = Client::of(&server);
        let life = self.dead.len();
        let (tell, told) = channel();
        let (entries, answered) = std::thread::scope(|scope| {
            let person = scope.spawn(|| answer_until_nobody_asks(&client, life, &tell));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (client, chance) = (client.clone(), Chance::new(self.chance.next()));
                    let name = format!("{life}-{number}");
                    scope.spawn(move || ask_until_nobody_answers(&client, &name, chance, backend))
                })
                .collect();
            // One life at least is long enough for an answer to be remembered, however slow the machine is.
            if life == 0 {
                let _ = told.recv_timeout(TIMEOUT);
            }
            self.chance.pause(MAX_LIFETIME);
            server.signal(Signal::KILL);
            server.ended();
            let entries = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
            (entries, person.join().unwrap())
        });
        self.ledger.add(entries);
        self.answered = answered;
        self.dead.push(server.id());
        server.leave()
    }

    fn die_while_starting(&mut self, data: &TempDir) {
        let mut command = command(data.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        self.chance.pause(MAX_START);
        process.kill().unwrap();
        process.wait().unwrap();
        self.dead.push(process.id());
    }

    fn check(&mut self, server: &Server) {
        let what = format!("after {} kills", self.dead.len());
        self.host.assert_clean(&self.dead, server.id(), &what);
        self.ledger.check_new(server);
        self.remembered += questions::check(server, &std::mem::take(&mut self.answered));
        check_file(server);
        self.lives += 1;
        if self.lives.is_multiple_of(WHOLE_CHAIN_EVERY) {
            check_chain(server);
        }
    }

    fn end_in_peace(mut self, mut server: Server) {
        for exec in server.ask("GET", "/sandbox/execs?status=RUNNING", None).expect(200).as_array().unwrap() {
            // It may end by itself before it is cancelled.
            let path = format!("/sandbox/execs/{}", exec["exec_id"].as_str().unwrap());
            server.ask("DELETE", &path, None);
        }
        server.signal(Signal::TERM);
        assert_eq!(server.ended().code(), Some(0), "{}", server.log());
        server = self.start(server.leave());
        let execs = check_endings(&server);
        check_file(&server);
        check_chain(&server);
        self.ledger.check_marks(&server);
        self.host.assert_clean(&self.dead, server.id(), "at the end");
        let (kills, slowest) = (self.dead.len(), self.slowest_start);
        assert!(self.remembered > 0, "nobody ever came so far as to remember anything");
        let (summary, remembered) = (self.ledger.summary(), self.remembered);
        println!("{kills} kills, {execs} execs; {summary}; {remembered} answers remembered; slowest start {slowest:?}");
    }
}

/// A daemon with a shell in its default image.
pub(crate) fn daemon() -> Daemon {
    tests::support::docker_image::launch(&[], tests::support::docker_image::LITTLE)
}
