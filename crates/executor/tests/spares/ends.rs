//! How spares end: used, killed, unfit, left over.

use std::time::{Duration, Instant};

use executor::Ending;
use executor::warm::{Bounds, SpareKind, Stock};
use policy::Field;
use rustix::process::{Pid, Signal, kill_process};

use super::lab::{Lab, UIDS};

const WITHIN: Duration = Duration::from_secs(20);

fn kill(process: u32) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

fn comes(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < WITHIN, "{what}");
        std::thread::yield_now();
    }
}

fn exists(process: u32) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

fn child(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.trim().parse().expect("one child")
}

pub(crate) fn a_spare_that_was_killed_is_not_handed_out() {
    let lab = Lab::new();
    let grant = lab.grant(&["true"]);
    let shape = lab.executor.shape_for(&grant).unwrap();
    let stock = Stock::new(Bounds { least: 1, most: 2, idle: WITHIN });
    assert!(stock.take(SpareKind::Plain, &shape).is_none());
    let spare = lab.spare(SpareKind::Plain, &grant);
    let init = spare.init_pid().unwrap();
    stock.put(spare);
    kill(init);
    comes("its end", || !exists(init));
    assert!(stock.take(SpareKind::Plain, &shape).is_none());

    // Killed after it was taken: the grant comes back, and the command has not begun.
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

pub(crate) fn what_a_spare_cannot_serve_comes_back() {
    let lab = Lab::new();
    let other = lab.grant_of(UIDS[0], &["true"], &[], &[(Field::MemoryMb, 99)]);
    let spare = lab.spare(SpareKind::Plain, &lab.grant(&["true"]));
    let init = spare.init_pid().unwrap();
    let unserved = lab.runtime.block_on(lab.executor.start_spare(spare, other)).unwrap_err();
    assert_eq!(unserved.to_string(), "a box that was made ahead cannot serve: its shape is another");
    comes("its end", || !exists(init));
    // Its time limit is not what a spare was made with.
    let timed = lab.grant_of(UIDS[0], &["true"], &[], &[(Field::TimeoutMs, 9_000)]);
    assert_eq!(lab.executor.shape_for(&timed), lab.executor.shape_for(&lab.grant(&["true"])));
    // A workspace that was removed meanwhile: the error is that of any box.
    let gone = lab.grant_of(UIDS[1], &["true"], &[], &[]);
    let spare = lab.spare(SpareKind::Plain, &gone);
    std::fs::remove_dir(lab.workspace(UIDS[1])).unwrap();
    let unserved = lab.runtime.block_on(lab.executor.start_spare(spare, gone)).unwrap_err();
    assert!(matches!(unserved.error, executor::Error::DirectoryMissing(_)), "{}", unserved.error);
}

pub(crate) fn the_time_limit_is_the_commands() {
    let lab = Lab::new();
    let code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), exit(0))); print('up', flush=True); time.sleep(1000)";
    let grant = || lab.grant_of(UIDS[0], &["python3", "-c", code], &[], &[(Field::TimeoutMs, 300)]);
    let said = lab.warm(SpareKind::Python, grant());
    assert_eq!((said.stdout.as_str(), said.ending), ("up\nasked\n", Ending::TimedOut));
    let deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)";
    let grant = lab.grant_of(UIDS[0], &["python3", "-c", deaf], &[], &[(Field::TimeoutMs, 100)]);
    assert_eq!(lab.warm(SpareKind::Python, grant).ending, Ending::TimedOut);
}

pub(crate) fn what_the_interpreter_took_before_is_not_the_commands() {
    let lab = Lab::new();
    let [warm, cold] = [true, false].map(|warm| {
        let grant = lab.python("print(1)");
        let running = match warm {
            true => {
                let spare = lab.spare(SpareKind::Python, &grant);
                lab.runtime.block_on(lab.executor.start_spare(spare, grant)).unwrap()
            }
            false => lab.runtime.block_on(lab.executor.start(grant, executor::Options::default())).unwrap(),
        };
        lab.follow(running, b"").1.usage.cpu.expect("it was counted")
    });
    assert!(warm * 2 < cold, "{warm:?} {cold:?}");
    let busy = "import time\nwhile time.process_time() < 0.3: pass";
    let spare = lab.spare(SpareKind::Python, &lab.python(busy));
    let running = lab.runtime.block_on(lab.executor.start_spare(spare, lab.python(busy))).unwrap();
    let counted = lab.follow(running, b"").1.usage.cpu.expect("it was counted");
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

/// The whole life of a stock, driven as a server drives it.
pub(crate) fn a_stock_learns_fills_and_ends() {
    let lab = Lab::new();
    let stock = Stock::new(Bounds { least: 2, most: 3, idle: WITHIN });
    let grant = lab.python("print(1)");
    let shape = lab.executor.shape_for(&grant).unwrap();
    assert!(stock.take(SpareKind::Python, &shape).is_none());
    let fill = || {
        lab.runtime.block_on(async {
            let (kind, shape) = stock.next().await;
            stock.put(lab.executor.prepare_spare(kind, &shape).await.unwrap());
        });
    };
    (0..3).for_each(|_| fill());
    let counts = stock.counts();
    assert_eq!((counts.idle, counts.being_made, counts.hits, counts.misses), (3, 0, 0, 1));
    let spare = stock.take(SpareKind::Python, &shape).unwrap();
    assert_eq!(lab.serve(spare, grant).stdout, "1\n");
    fill();
    // One that failed is not tried again at once.
    let spare = stock.take(SpareKind::Python, &shape).unwrap();
    let (kind, shape) = lab.runtime.block_on(stock.next());
    stock.fail(kind, &shape);
    let soon =
        lab.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(10), stock.next()).await.is_ok() });
    assert!(!soon);
    let inits: Vec<u32> = std::iter::once(spare)
        .chain(std::iter::from_fn(|| stock.take(SpareKind::Python, &shape)))
        .map(|spare| {
            let init = spare.init_pid().unwrap();
            stock.put(spare);
            init
        })
        .take(1)
        .collect();
    stock.close();
    assert_eq!(stock.counts().idle, 0);
    inits.into_iter().for_each(|init| comes("its end", || !exists(init)));
    assert!(stock.take(SpareKind::Python, &shape).is_none());
}
