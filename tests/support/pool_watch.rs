//! Samples the counters of a server's pool during a test; they must add up in every sample.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

use super::server::Server;

/// Samples until it is stopped or the server has ended.
#[derive(Debug)]
pub struct PoolWatch {
    is_over: Arc<AtomicBool>,
    reader: JoinHandle<u64>,
}

impl PoolWatch {
    pub fn begin(server: &Server) -> Self {
        let config = Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(60)));
        let agent: Agent = config.build().into();
        let (address, token) = (format!("http://{}/api/pool", server.address), format!("Bearer {}", server.token));
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let reader = std::thread::spawn(move || {
            let mut looks = 0;
            while !told.load(Ordering::Relaxed) {
                let answer = agent.get(&address).header("authorization", &token).call();
                let Some(text) = answer.ok().and_then(|mut answer| answer.body_mut().read_to_string().ok()) else {
                    break;
                };
                add_up(&serde_json::from_str(&text).unwrap());
                looks += 1;
            }
            looks
        });
        Self { is_over, reader }
    }

    /// Checks that the samples added up and that there were any.
    pub fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        match self.reader.join() {
            Ok(looks) => assert!(looks > 0, "nobody looked"),
            Err(reason) => std::panic::resume_unwind(reason),
        }
    }
}

/// Takes a sample and checks that its counters add up.
pub fn add_up(pool: &Value) {
    let count = |name: &str| pool[name].as_u64().unwrap_or_else(|| panic!("{name} of {pool}"));
    assert_eq!(count("total"), count("busy") + count("idle") + count("warming"), "{pool}");
    assert!(count("total") <= count("max"), "{pool}");
}

/// The current counters.
pub fn pool(server: &Server) -> Value {
    let pool = server.ask("GET", "/api/pool", None).expect(200);
    add_up(&pool);
    pool
}
