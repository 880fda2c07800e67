//! Writes the list of the console's files, so that the binary carries them: `web/dist`, as the page's own build left it.
//!
//! It never builds the page: cargo needs no Node. Where nobody built it the list is empty, and the server says so instead.
//! `web/dist` itself is always there, because cargo would take a directory that is missing for one that always changes.

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
            "cargo::warning=the console is not built, and the server will say so: `make build` builds it, with Node and npm"
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

/// Every file beneath a directory, in a fixed order, without those whose name begins with a dot.
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
