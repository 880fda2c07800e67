//! libFuzzer target of [`ringwall_fuzz::pax`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwall_fuzz::pax(bytes));

/// On stable: runs the target on the files given as arguments.
#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    ringwall_fuzz::run_files(ringwall_fuzz::pax)
}
