//! Generates `console_files.rs`, which embeds the files of `web/dist` in the binary.
//!
//! This script does not build the console, so that cargo needs no Node. Without a built console the
//! list is empty and the server explains it on `/`. The repository contains the directory `web/dist`,
//! because cargo reruns a build script every time if a path of `rerun-if-changed` is missing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo names no manifest directory")?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo names no output directory")?;
    let dist = Path::new(&manifest).join("../../web/dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", dist.display());
    if !dist.join("index.html").exists() {
        println!(
            "cargo::warning=the binary contains no console: web/dist/index.html is missing; `make build` builds it with Node and npm"
        );
    }
    let mut list = String::from("&[\n");
    for path in files(&dist)? {
        let name = path.strip_prefix(&dist)?.to_str().ok_or("a file of the console has no readable name")?;
        writeln!(list, "    ({name:?}, include_bytes!({:?})),", path.canonicalize()?)?;
    }
    list.push(']');
    std::fs::write(Path::new(&out).join("console_files.rs"), list)?;
    Ok(())
}

/// All files below a directory, sorted, without hidden files.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if entry.file_type()?.is_dir() { waiting.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    Ok(found)
}
