//! How warm boxes end: used, killed, unfit, or left over.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringwall_executor::pool::{Bounds, Pool, PoolBoxes};
use ringwall_executor::warm::{WarmBox, WarmKind, WarmSpec};
use ringwall_executor::{Ending, Executor};
use ringwall_policy::Field;
use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{Fixture, UIDS};

const TIMEOUT: Duration = Duration::from_secs(60);

fn kill(process: u32) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

fn wait_for(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn exists(process: u32) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

/// True if the process exists and is not a zombie.
fn lives(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains(['Z', 'X']))
}

fn child(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.trim().parse().expect("one child")
}

pub(crate) fn killed_warm_box_returns_grant() {
    let fixture = Fixture::new();
    let grant = fixture.grant(&["true"]);
    let warm_box = fixture.warm_box(WarmKind::Plain, &grant);
    let init = warm_box.init_pid().unwrap();
    assert!(warm_box.is_alive());
    kill(init);
    wait_for("the end of PID 1", || !exists(init));
    assert!(!warm_box.is_alive());

    // Killed after it was taken: the grant is returned, and the command was not started.
    let warm_box = fixture.warm_box(WarmKind::Plain, &grant);
    let init = warm_box.init_pid().unwrap();
    kill(init);
    wait_for("the end of PID 1", || !exists(init));
    let grant = fixture.grant(&["touch", "begun"]);
    let unserved = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, grant)).unwrap_err();
    assert_eq!(unserved.grant.argv(), ["touch", "begun"]);
    assert!(!fixture.workspace(UIDS[0]).join("begun").exists());
    assert_eq!(fixture.cold(unserved.grant).ending, Ending::Exited(0));
}

pub(crate) fn killed_interpreter_returns_grant() {
    let fixture = Fixture::new();
    let grant = fixture.python("print(1)");
    let warm_box = fixture.warm_box(WarmKind::Python, &grant);
    let init = warm_box.init_pid().unwrap();
    assert!(warm_box.is_alive());
    kill(child(init));
    wait_for("the end of PID 1", || !warm_box.is_alive());
    let unserved = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, grant)).unwrap_err();
    assert_eq!(fixture.cold(unserved.grant).stdout, "1\n");
    wait_for("the end of PID 1", || !exists(init));
}

pub(crate) fn unfit_grant_is_returned() {
    let fixture = Fixture::new();
    let other = fixture.grant_of(UIDS[0], &["true"], &[], &[(Field::MemoryMb, 99)]);
    let warm_box = fixture.warm_box(WarmKind::Plain, &fixture.grant(&["true"]));
    let init = warm_box.init_pid().unwrap();
    let unserved = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, other)).unwrap_err();
    assert_eq!(unserved.to_string(), "a box that was made ahead cannot serve: its shape differs from the grant's");
    wait_for("the end of PID 1", || !exists(init));
    // The time limit is not part of the shape.
    let timed = fixture.grant_of(UIDS[0], &["true"], &[], &[(Field::TimeoutMs, 9_000)]);
    assert_eq!(fixture.executor.shape_for(&timed), fixture.executor.shape_for(&fixture.grant(&["true"])));
    // If the workspace was removed meanwhile, the error is the same as for a cold box.
    let gone = fixture.grant_of(UIDS[1], &["true"], &[], &[]);
    let warm_box = fixture.warm_box(WarmKind::Plain, &gone);
    std::fs::remove_dir(fixture.workspace(UIDS[1])).unwrap();
    let unserved = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, gone)).unwrap_err();
    assert!(matches!(unserved.error, ringwall_executor::Error::DirectoryMissing(_)), "{}", unserved.error);
}

pub(crate) fn time_limit_ends_command() {
    let fixture = Fixture::new();
    let code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), exit(0))); print('up', flush=True); time.sleep(1000)";
    // On a slow machine the limit may pass before the first output; then a longer one is tried.
    let mut output = String::new();
    for limit in [300, 3_000, 30_000] {
        let grant = fixture.grant_of(UIDS[0], &["python3", "-c", code], &[], &[(Field::TimeoutMs, limit)]);
        let result = fixture.warm(WarmKind::Python, grant);
        assert_eq!(result.ending, Ending::TimedOut);
        output = result.stdout;
        if output.starts_with("up\n") {
            break;
        }
    }
    assert_eq!(output, "up\nasked\n");
    let backlogged = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)";
    let grant = fixture.grant_of(UIDS[0], &["python3", "-c", backlogged], &[], &[(Field::TimeoutMs, 100)]);
    assert_eq!(fixture.warm(WarmKind::Python, grant).ending, Ending::TimedOut);
}

pub(crate) fn usage_excludes_time_before_command() {
    let fixture = Fixture::new();
    let count = |warm| {
        let grant = fixture.python("print(1)");
        let running = match warm {
            true => {
                let warm_box = fixture.warm_box(WarmKind::Python, &grant);
                fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, grant)).unwrap()
            }
            false => {
                fixture.runtime.block_on(fixture.executor.start(grant, ringwall_executor::Options::default())).unwrap()
            }
        };
        fixture.follow(running, b"").1.usage.cpu.expect("the CPU time was counted")
    };
    // The minimum of 5 runs, because other load on the machine raises the figure.
    let [warm, cold] = [true, false].map(|warm| (0..5).map(|_| count(warm)).min().unwrap());
    assert!(warm * 2 < cold, "{warm:?} {cold:?}");
    let busy = "import time\nwhile time.process_time() < 0.3: pass";
    let warm_box = fixture.warm_box(WarmKind::Python, &fixture.python(busy));
    let running = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, fixture.python(busy))).unwrap();
    let counted = fixture.follow(running, b"").1.usage.cpu.expect("the CPU time was counted");
    assert!(counted > Duration::from_millis(150), "{counted:?}");
}

pub(crate) fn memory_limit_ends_command() {
    let fixture = Fixture::new();
    let code = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let grant = || fixture.grant_of(UIDS[0], &["python3", "-c", code], &[], &[(Field::MemoryMb, 64)]);
    let warm_box = fixture.warm_box(WarmKind::Python, &grant());
    let running = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, grant())).unwrap();
    let (output, outcome) = fixture.follow(running, b"");
    assert!(outcome.out_of_memory || output.stderr.contains("MemoryError"), "{output:?}");
}

/// Makes warm boxes as a server does, and records the PIDs of their PID 1.
#[derive(Debug)]
struct RecordedBoxes {
    executor: Arc<Executor>,
    inits: Arc<Mutex<Vec<u32>>>,
}

impl PoolBoxes for RecordedBoxes {
    type Key = u8;
    type Kind = WarmSpec;
    type SessionBox = Infallible;
    type WarmBox = WarmBox;
    type Tools = (Arc<Executor>, Arc<Mutex<Vec<u32>>>);

    fn tools(&self) -> Option<Self::Tools> {
        Some((self.executor.clone(), self.inits.clone()))
    }

    async fn make_warm_box((executor, inits): &Self::Tools, spec: &WarmSpec) -> Option<WarmBox> {
        let warm_box = executor.prepare_warm_box(spec).await.unwrap();
        inits.lock().unwrap().push(warm_box.init_pid().unwrap());
        Some(warm_box)
    }

    fn is_alive(warm_box: &WarmBox) -> bool {
        warm_box.is_alive()
    }

    async fn end_warm_box(warm_box: WarmBox) {
        warm_box.end().await;
    }

    async fn died(session_box: &Infallible) {
        match *session_box {}
    }

    async fn end(session_box: Arc<Infallible>) {
        match *session_box {}
    }
}

pub(crate) fn stopped_pool_leaves_no_process() {
    let fixture = Fixture::new();
    let inits = Arc::new(Mutex::new(Vec::new()));
    let boxes = RecordedBoxes { executor: fixture.executor.clone(), inits: inits.clone() };
    let bounds = Bounds {
        max_instances: 3,
        min_instances: 2,
        idle_timeout: TIMEOUT * 10,
        max_use_count: 1,
        acquire_timeout: TIMEOUT,
    };
    let inside = fixture.runtime.enter();
    let pool = Pool::new(boxes, bounds);
    drop(inside);
    let spec = || fixture.executor.warm_spec_for(&fixture.python("print(1)")).unwrap();
    assert!(pool.take_warm_box(&spec()).is_none());
    wait_for("warm boxes", || pool.figures().idle == 3);
    let warm_box = pool.take_warm_box(&spec()).expect("a warm box of this kind");
    let first = warm_box.init_pid().unwrap();
    assert_eq!(fixture.serve(warm_box, fixture.python("print(1)")).stdout, "1\n");
    wait_for("a third warm box", || pool.figures().idle == 3);
    // A dead warm box is detected when it would be taken.
    let last = *inits.lock().unwrap().last().unwrap();
    kill(last);
    wait_for("the end of PID 1", || !exists(last));
    let warm_box = pool.take_warm_box(&spec()).expect("another warm box");
    let second = warm_box.init_pid().unwrap();
    assert_ne!(second, last);
    assert_eq!(fixture.serve(warm_box, fixture.python("print(2)")).stdout, "2\n");
    // Taken boxes no longer belong to the pool. They report the end of the command before their last
    // process has ended.
    wait_for("the ends of the used boxes", || !lives(first) && !lives(second));
    fixture.runtime.block_on(pool.stop());
    assert_eq!(pool.figures().total, 0);
    let left: Vec<u32> = inits.lock().unwrap().iter().copied().filter(|init| lives(*init)).collect();
    assert_eq!(left, [0; 0], "a box outlived the pool");
    assert!(pool.take_warm_box(&spec()).is_none());
}
