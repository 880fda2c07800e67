//! How warm boxes end: used, killed, unfit, or left over.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringwall_executor::pool::{Bounds, Maker, Pool};
use ringwall_executor::warm::{Spare, SpareKind, SpareSort};
use ringwall_executor::{Ending, Executor};
use ringwall_policy::Field;
use rustix::process::{Pid, Signal, kill_process};

use super::lab::{Lab, UIDS};

const WITHIN: Duration = Duration::from_secs(60);

fn kill(process: u32) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

fn comes(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < WITHIN, "{what}");
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

pub(crate) fn a_spare_that_was_killed_is_not_handed_out() {
    let lab = Lab::new();
    let grant = lab.grant(&["true"]);
    let spare = lab.spare(SpareKind::Plain, &grant);
    let init = spare.init_pid().unwrap();
    assert!(spare.is_alive());
    kill(init);
    comes("its end", || !exists(init));
    assert!(!spare.is_alive());

    // Killed after it was taken: the grant is returned, and the command was not started.
    let spare = lab.spare(SpareKind::Plain, &grant);
    let init = spare.init_pid().unwrap();
    kill(init);
    comes("its end", || !exists(init));
    let grant = lab.grant(&["touch", "begun"]);
    let unserved = lab.runtime.block_on(lab.executor.start_spare(spare, grant)).unwrap_err();
    assert_eq!(unserved.grant.argv(), ["touch", "begun"]);
    assert!(!lab.workspace(UIDS[0]).join("begun").exists());
    assert_eq!(lab.cold(unserved.grant).ending, Ending::Exited(0));
}

pub(crate) fn a_spare_without_its_interpreter_is_not_handed_out() {
    let lab = Lab::new();
    let grant = lab.python("print(1)");
    let spare = lab.spare(SpareKind::Python, &grant);
    let init = spare.init_pid().unwrap();
    assert!(spare.is_alive());
    kill(child(init));
    comes("its end", || !spare.is_alive());
    let unserved = lab.runtime.block_on(lab.executor.start_spare(spare, grant)).unwrap_err();
    assert_eq!(lab.cold(unserved.grant).stdout, "1\n");
    comes("the end of PID 1", || !exists(init));
}

pub(crate) fn unfit_grant_is_returned() {
    let lab = Lab::new();
    let other = lab.grant_of(UIDS[0], &["true"], &[], &[(Field::MemoryMb, 99)]);
    let spare = lab.spare(SpareKind::Plain, &lab.grant(&["true"]));
    let init = spare.init_pid().unwrap();
    let unserved = lab.runtime.block_on(lab.executor.start_spare(spare, other)).unwrap_err();
    assert_eq!(unserved.to_string(), "a box that was made ahead cannot serve: its shape is another");
    comes("its end", || !exists(init));
    // The time limit is not part of the shape.
    let timed = lab.grant_of(UIDS[0], &["true"], &[], &[(Field::TimeoutMs, 9_000)]);
    assert_eq!(lab.executor.shape_for(&timed), lab.executor.shape_for(&lab.grant(&["true"])));
    // If the workspace was removed meanwhile, the error is the same as for a cold box.
    let gone = lab.grant_of(UIDS[1], &["true"], &[], &[]);
    let spare = lab.spare(SpareKind::Plain, &gone);
    std::fs::remove_dir(lab.workspace(UIDS[1])).unwrap();
    let unserved = lab.runtime.block_on(lab.executor.start_spare(spare, gone)).unwrap_err();
    assert!(matches!(unserved.error, ringwall_executor::Error::DirectoryMissing(_)), "{}", unserved.error);
}

pub(crate) fn the_time_limit_is_the_commands() {
    let lab = Lab::new();
    let code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), exit(0))); print('up', flush=True); time.sleep(1000)";
    // On a slow machine the limit may pass before the first output; then a longer one is tried.
    let mut said = String::new();
    for limit in [300, 3_000, 30_000] {
        let grant = lab.grant_of(UIDS[0], &["python3", "-c", code], &[], &[(Field::TimeoutMs, limit)]);
        let told = lab.warm(SpareKind::Python, grant);
        assert_eq!(told.ending, Ending::TimedOut);
        said = told.stdout;
        if said.starts_with("up\n") {
            break;
        }
    }
    assert_eq!(said, "up\nasked\n");
    let deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)";
    let grant = lab.grant_of(UIDS[0], &["python3", "-c", deaf], &[], &[(Field::TimeoutMs, 100)]);
    assert_eq!(lab.warm(SpareKind::Python, grant).ending, Ending::TimedOut);
}

pub(crate) fn usage_excludes_time_before_command() {
    let lab = Lab::new();
    let count = |warm| {
        let grant = lab.python("print(1)");
        let running = match warm {
            true => {
                let spare = lab.spare(SpareKind::Python, &grant);
                lab.runtime.block_on(lab.executor.start_spare(spare, grant)).unwrap()
            }
            false => lab.runtime.block_on(lab.executor.start(grant, ringwall_executor::Options::default())).unwrap(),
        };
        lab.follow(running, b"").1.usage.cpu.expect("the CPU time was counted")
    };
    // The minimum of 5 runs, because other load on the machine raises the figure.
    let [warm, cold] = [true, false].map(|warm| (0..5).map(|_| count(warm)).min().unwrap());
    assert!(warm * 2 < cold, "{warm:?} {cold:?}");
    let busy = "import time\nwhile time.process_time() < 0.3: pass";
    let spare = lab.spare(SpareKind::Python, &lab.python(busy));
    let running = lab.runtime.block_on(lab.executor.start_spare(spare, lab.python(busy))).unwrap();
    let counted = lab.follow(running, b"").1.usage.cpu.expect("the CPU time was counted");
    assert!(counted > Duration::from_millis(150), "{counted:?}");
}

pub(crate) fn the_memory_limit_holds() {
    let lab = Lab::new();
    let code = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let grant = || lab.grant_of(UIDS[0], &["python3", "-c", code], &[], &[(Field::MemoryMb, 64)]);
    let spare = lab.spare(SpareKind::Python, &grant());
    let running = lab.runtime.block_on(lab.executor.start_spare(spare, grant())).unwrap();
    let (said, outcome) = lab.follow(running, b"");
    assert!(outcome.out_of_memory || said.stderr.contains("MemoryError"), "{said:?}");
}

/// Makes warm boxes as a server does, and records the PIDs of their PID 1.
#[derive(Debug)]
struct Yard {
    executor: Arc<Executor>,
    inits: Arc<Mutex<Vec<u32>>>,
}

impl Maker for Yard {
    type Key = u8;
    type Kind = SpareSort;
    type Resident = Infallible;
    type Spare = Spare;
    type Tools = (Arc<Executor>, Arc<Mutex<Vec<u32>>>);

    fn tools(&self) -> Option<Self::Tools> {
        Some((self.executor.clone(), self.inits.clone()))
    }

    async fn make_spare((executor, inits): &Self::Tools, sort: &SpareSort) -> Option<Spare> {
        let spare = executor.prepare_spare(sort).await.unwrap();
        inits.lock().unwrap().push(spare.init_pid().unwrap());
        Some(spare)
    }

    fn is_alive(spare: &Spare) -> bool {
        spare.is_alive()
    }

    async fn end_spare(spare: Spare) {
        spare.end().await;
    }

    async fn died(resident: &Infallible) {
        match *resident {}
    }

    async fn end(resident: Arc<Infallible>) {
        match *resident {}
    }
}

pub(crate) fn a_pool_learns_fills_and_leaves_no_process() {
    let lab = Lab::new();
    let inits = Arc::new(Mutex::new(Vec::new()));
    let yard = Yard { executor: lab.executor.clone(), inits: inits.clone() };
    let bounds = Bounds {
        max_instances: 3,
        min_instances: 2,
        idle_timeout: WITHIN * 10,
        max_use_count: 1,
        acquire_timeout: WITHIN,
    };
    let inside = lab.runtime.enter();
    let pool = Pool::new(yard, bounds);
    drop(inside);
    let sort = || lab.executor.sort_for(&lab.python("print(1)")).unwrap();
    assert!(pool.take_spare(&sort()).is_none());
    comes("spares", || pool.figures().idle == 3);
    let spare = pool.take_spare(&sort()).expect("a warm box of this kind");
    let first = spare.init_pid().unwrap();
    assert_eq!(lab.serve(spare, lab.python("print(1)")).stdout, "1\n");
    comes("another", || pool.figures().idle == 3);
    // A dead warm box is detected when it would be taken.
    let last = *inits.lock().unwrap().last().unwrap();
    kill(last);
    comes("its end", || !exists(last));
    let spare = pool.take_spare(&sort()).expect("another one");
    let second = spare.init_pid().unwrap();
    assert_ne!(second, last);
    assert_eq!(lab.serve(spare, lab.python("print(2)")).stdout, "2\n");
    // Taken boxes no longer belong to the pool, and report the end of the command before they are
    // gone.
    comes("the ends of those that were used", || !lives(first) && !lives(second));
    lab.runtime.block_on(pool.stop());
    assert_eq!(pool.figures().total, 0);
    let left: Vec<u32> = inits.lock().unwrap().iter().copied().filter(|init| lives(*init)).collect();
    assert_eq!(left, [0; 0], "a box outlived the pool");
    assert!(pool.take_spare(&sort()).is_none());
}
