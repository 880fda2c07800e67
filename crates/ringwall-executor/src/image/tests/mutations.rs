//! Archives changed at random, from a fixed seed: whatever comes of one, nothing panics, leaks or leaves.

use super::compression::{gzip, zstd};
use super::{Archive, Lab, name, seal};

/// A small generator (xorshift), so that a failure is found again by its round.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        // Bytes that mean something to tar are worth more than others.
        const TELLING: &[u8] = b"\0/.0123457LKxgSD \x80\xff\n=";
        match self.roll(3) {
            0 => self.roll(256) as u8,
            _ => TELLING[self.roll(TELLING.len())],
        }
    }
}

/// One of everything, pointing at the canary where it can.
fn subject(lab: &Lab) -> Vec<u8> {
    let outside = lab.outside("");
    Archive::root()
        .symlink("door", outside.to_str().unwrap())
        .symlink("up", "../../../../outside")
        .file("etc/motd", 0o4755, b"hello")
        .hard_link("etc/link", "etc/motd")
        .long_name(b"usr/a/long/name")
        .file("x", 0o644, b"long")
        .pax(&[("path", b"usr/b"), ("size", b"3"), ("mtime", b"12.5")])
        .file("x", 0o644, b"pax")
        .pax(&[("GNU.sparse.size", b"1000"), ("GNU.sparse.map", b"0,3,500,2")])
        .file("sparse", 0o644, b"abcde")
        .directory("dev/", 0o755)
        .entry(b'3', b"usr/null", b"", 0o666, b"")
        .end()
}

fn act(lab: &Lab, archive: &[u8]) {
    if lab.import(archive).is_ok() {
        lab.store.remove(&name("box")).unwrap();
        lab.check();
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
fn mutated_archives_do_no_harm() {
    let lab = Lab::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let whole = subject(&lab);
    for original in [whole.clone(), gzip(&whole), zstd(&whole)] {
        for _ in 0..300 {
            let mut bytes = original.clone();
            mutate(&mut dice, &mut bytes);
            act(&lab, &bytes);
        }
    }
}

#[test]
fn mutated_headers_with_good_checksums_do_no_harm() {
    // Without this the checksum would stop nearly every change before it is understood.
    let lab = Lab::new();
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let whole = subject(&lab);
    let headers: Vec<usize> = (0..whole.len())
        .step_by(512)
        .filter(|at| crate::image::entries::checksum_holds(&whole[*at..*at + 512]))
        .collect();
    for _ in 0..600 {
        let mut bytes = whole.clone();
        for _ in 0..=dice.roll(3) {
            let block = headers[dice.roll(headers.len())];
            // The start of a name, a link, the size and the type are where it hurts.
            let field = [0, 1, 2, 100, 124, 130, 134, 156, 157, 158, 257, 345, 482][dice.roll(13)];
            bytes[block + field + dice.roll(3)] = dice.byte();
            seal(&mut bytes[block..block + 512]);
        }
        act(&lab, &bytes);
    }
}
