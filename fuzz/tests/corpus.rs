//! Runs every fuzz target on its corpus and on mutations of it, as an ordinary test on the stable toolchain.
//!
//! A mutation depends only on its number, so a failure repeats. `RINGWALL_SOAK=1` runs 100 times as many.

use std::path::Path;

use ringwall_fuzz::TARGETS;

const MUTATIONS: u64 = 200;
const MUTATIONS_IN_SOAK: u64 = 20_000;

#[test]
fn targets_return_for_corpus_and_mutations() {
    let count = if std::env::var_os("RINGWALL_SOAK").is_some() { MUTATIONS_IN_SOAK } else { MUTATIONS };
    for (name, target) in TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut paths: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{} has no files", directory.display());
        let corpus: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        for (path, bytes) in paths.iter().zip(&corpus) {
            run(&format!("{}", path.display()), target, bytes);
            for number in 0..count {
                run(&format!("{}, mutation {number}", path.display()), target, &mutate(bytes, &corpus, number));
            }
        }
    }
}

/// Names the input of a panic.
fn run(input: &str, target: ringwall_fuzz::Target, bytes: &[u8]) {
    let outcome = std::panic::catch_unwind(|| target(bytes));
    assert!(outcome.is_ok(), "panicked on {input}");
}

/// Flips, removes, repeats and inserts bytes, and splices in parts of other inputs.
fn mutate(bytes: &[u8], corpus: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut mutated = bytes.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(mutated.len() + 1);
        let end = at + random.below((mutated.len() - at).min(64) + 1);
        match random.below(6) {
            0 if at < mutated.len() => mutated[at] ^= 1 << random.below(8),
            1 if at < mutated.len() => mutated[at] = [0, 0xFF, 0x7F, 0x80, b'/', b'.', b'\n', b'"'][random.below(8)],
            2 => drop(mutated.drain(at..end)),
            3 => {
                let part = mutated[at..end].to_vec();
                mutated.splice(at..at, part);
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let to = from + random.below((other.len() - from).min(256) + 1);
                mutated.splice(at..at, other[from..to].iter().copied());
            }
            _ => mutated.truncate(at.max(mutated.len() / 2)),
        }
    }
    mutated
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    /// A number below `limit`, which must not be 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
