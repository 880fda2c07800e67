//! Large requests use no more memory than small ones: pages of a long file, uploads, and downloads
//! of directories.
//!
//! Measured is the peak memory of the server process (VmHWM). Therefore each test starts a server
//! of its own, sends a small request first and the same request with a large size then.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};

use serde_json::json;
use tests::support::host;
use tests::support::server::Server;
use tests::support::wait::wait_until;

use crate::client::Client;
use crate::fixture::{Fixture, is_soak};
use crate::workspace::Workspace;
use crate::zips::{Entry, zip};

const MIB: usize = 1 << 20;
/// A stride, some buffers, and another thread.
const MAX_GROWTH_KB: u64 = 12 << 10;
/// For an upload of 50 MiB. Beside a busy neighbour 13 to 24 MiB were measured; a body held in
/// memory takes more than 50.
const MAX_UPLOAD_GROWTH_KB: u64 = 32 << 10;
const LINES: usize = 5_000_000;
const LINE_LENGTH: usize = 200;
/// The default of `files.upload_max_mb`.
const MAX_UPLOAD: usize = 50 * MIB;

/// Peak memory of a process.
fn peak_kb(process: u32) -> u64 {
    let field = host::field(process, "VmHWM").unwrap();
    field.split_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes that a process has read so far, from any source.
fn bytes_read(process: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Increase of the server's peak memory during `act`.
fn growth_kb(server: &Server, act: impl FnOnce()) -> u64 {
    let before = peak_kb(server.id());
    act();
    peak_kb(server.id()) - before
}

fn own_workspace(server: &Server) -> Workspace {
    Workspace::new(Client::of(server, &server.token), "default", "a")
}

/// A file of the workspace's owner with this content. Written on the host, which takes a tenth of
/// the time.
fn fill(agent: &Workspace, path: &str, pieces: usize, piece: impl Fn(usize) -> Vec<u8>) {
    agent.put(path, "");
    let mut file = OpenOptions::new().write(true).open(agent.on_disk(path)).unwrap();
    for number in 0..pieces {
        file.write_all(&piece(number)).unwrap();
    }
}

fn line(number: usize) -> String {
    format!("{:.<1$}", format!("line {number:09}"), LINE_LENGTH - 1)
}

/// The file has 5 million lines, 1 GB in total.
pub(crate) fn late_page_uses_no_more_memory(fixture: &Fixture) {
    let server = fixture.start();
    let agent = own_workspace(&server);
    agent.put("files/small", &format!("{}\n", line(1)));
    // All blocks but the last are equal, because formatting numbers is slow.
    let thousand = |from: usize| (from..from + 1000).map(|number| line(number) + "\n").collect::<String>().into_bytes();
    let (same, last) = (thousand(1), thousand(LINES - 999));
    let pieces = LINES / 1000;
    fill(&agent, "files/big", pieces, |piece| if piece + 1 < pieces { same.clone() } else { last.clone() });
    assert_eq!(fs::metadata(agent.on_disk("files/big")).unwrap().len(), 1_000_000_000);
    // The server does not cache line counts of a file that changed within the last tick of the
    // clock.
    let changed = fs::metadata(agent.on_disk("files/big")).unwrap().modified().unwrap();
    wait_until("a file that is no longer new", || changed.elapsed().is_ok_and(|age| age.as_millis() > 100));
    let page = |path: &str, number: usize, expected: usize| {
        let found = agent.page(path, &format!("&offset={number}&limit=1")).success();
        assert_eq!(found["lines"], json!([line(expected)]), "line {number} of {path}");
    };
    page("files/small", 1, 1);
    page("files/big", 1, 1);
    let grown = growth_kb(&server, || {
        page("files/big", LINES, LINES);
        let before = bytes_read(server.id());
        page("files/big", LINES - 10, LINES - 10);
        page("files/big", LINES / 2, 1000);
        let again = bytes_read(server.id()) - before;
        assert!(again < 4 * MIB as u64, "a page at a known offset read {again} bytes");
        let beyond = agent.page("files/big", &format!("&offset={}", LINES + 1)).success();
        assert_eq!(beyond, json!({ "content": "", "lines": [] }));
    });
    assert!(grown < MAX_GROWTH_KB, "late pages of a gigabyte took {grown} KiB more than the first of a short file");
}

/// Exactly the maximum size of an upload. Stored without compression, so that as much is written as
/// is received.
pub(crate) fn large_upload_uses_no_more_memory(fixture: &Fixture) {
    let server = fixture.start();
    let agent = own_workspace(&server);
    let archive = |length: usize| {
        let packed =
            |data: usize| zip(&[Entry::file("s/SKILL.md", b"name: s\n"), Entry::file("s/data", &vec![7; data])]);
        packed(length - packed(0).len())
    };
    let (small, large, too_large) = (archive(MIB), archive(MAX_UPLOAD), archive(MAX_UPLOAD + 1));
    agent.push(&small).success();
    agent.upload("x", &small).success();
    let grown = growth_kb(&server, || {
        agent.push(&large).success();
        agent.upload("x", &large).success();
        agent.push(&too_large).expect_error(413);
        agent.upload("x", &too_large).expect_error(413);
    });
    assert_eq!(fs::read(agent.on_disk("files/x")).unwrap(), large);
    assert!(fs::metadata(agent.on_disk("skills/s/data")).unwrap().len() > 49 << 20);
    assert!(grown < MAX_UPLOAD_GROWTH_KB, "uploads of 50 MiB took {grown} KiB more than those of one");
}

/// Random data, so that neither input nor output is compressible and buffering either would show.
pub(crate) fn large_download_uses_no_more_memory(fixture: &Fixture) {
    const FILES: usize = 2;
    // A debug build compresses no more than this in a few seconds.
    let pieces = if is_soak() { 256 } else { 16 };
    let server = fixture.start();
    let agent = own_workspace(&server);
    let mut random = vec![0; MIB];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    fill(&agent, "files/small/x", 1, |_| random.clone());
    for number in 0..FILES {
        fill(&agent, &format!("files/large/{number}"), pieces, |_| random.clone());
    }
    let download = |path: &str| {
        let authorization = format!("Bearer {}", server.token);
        let route = format!("/v1/a/download?path={path}");
        let answer = server.send("GET", &route, &[("authorization", &authorization)], None);
        assert_eq!(answer.status(), 200);
        std::io::copy(&mut answer.into_body().into_reader(), &mut std::io::sink()).unwrap()
    };
    assert!(download("files/small") > MIB as u64);
    let grown = growth_kb(&server, || assert!(download("files/large") > (FILES * pieces * MIB) as u64));
    assert!(grown < MAX_GROWTH_KB, "a zip of {} MiB took {grown} KiB more than one of one", FILES * pieces);
}
