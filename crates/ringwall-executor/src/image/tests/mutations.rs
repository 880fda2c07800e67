//! Random changes to archives, from a fixed seed: no panic, no change outside of the image, and
//! nothing left behind.

use super::compression::{gzip, zstd};
use super::{Archive, Fixture, name, seal};

/// xorshift with a fixed seed, so that a failure is reproducible by its round.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        // Prefers bytes that have a meaning in tar.
        const TELLING: &[u8] = b"\0/.0123457LKxgSD \x80\xff\n=";
        match self.roll(3) {
            0 => self.roll(256) as u8,
            _ => TELLING[self.roll(TELLING.len())],
        }
    }
}

/// An archive with one entry of each kind, pointing at the canary where possible.
fn subject(fixture: &Fixture) -> Vec<u8> {
    let outside = fixture.outside("");
    Archive::root()
        .symlink("door", outside.to_str().unwrap())
        .symlink("up", "../../../../outside")
        .file("etc/motd", 0o4755, b"hello")
        .hard_link("etc/link", "etc/motd")
        .long_name(b"usr/a/long/name")
        .file("x", 0o644, b"long")
        .pax(&[("path", b"usr/b"), ("size", b"3"), ("mtime", b"12.5")])
        .file("x", 0o644, b"pax")
        .directory("dev/", 0o755)
        .entry(b'3', b"usr/null", b"", 0o666, b"")
        .end()
}

fn act(fixture: &Fixture, archive: &[u8]) {
    if fixture.import(archive).is_ok() {
        fixture.store.remove(&name("box")).unwrap();
        fixture.check();
    }
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        match dice.roll(8) {
            0 => bytes.truncate(at.max(1)),
            1 => {
                bytes.remove(at);
            }
            2 => bytes.insert(at, dice.byte()),
            _ => bytes[at] = dice.byte(),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

#[test]
fn mutated_archive_changes_nothing_outside() {
    let fixture = Fixture::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let whole = subject(&fixture);
    for original in [whole.clone(), gzip(&whole), zstd(&whole)] {
        for _ in 0..300 {
            let mut bytes = original.clone();
            mutate(&mut dice, &mut bytes);
            act(&fixture, &bytes);
        }
    }
}

#[test]
fn mutated_header_with_valid_checksum_changes_nothing_outside() {
    // With a wrong checksum nearly every change would be refused before it is parsed.
    let fixture = Fixture::new();
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let whole = subject(&fixture);
    let headers: Vec<usize> = (0..whole.len())
        .step_by(512)
        .filter(|at| crate::image::entries::checksum_holds(&whole[*at..*at + 512]))
        .collect();
    for _ in 0..600 {
        let mut bytes = whole.clone();
        for _ in 0..=dice.roll(3) {
            let block = headers[dice.roll(headers.len())];
            // Changes the start of the name, the link, the size and the type, which are the risky
            // fields.
            let field = [0, 1, 2, 100, 124, 130, 134, 156, 157, 158, 257, 345, 482][dice.roll(13)];
            bytes[block + field + dice.roll(3)] = dice.byte();
            seal(&mut bytes[block..block + 512]);
        }
        act(&fixture, &bytes);
    }
}
