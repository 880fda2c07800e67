//! Packs a folder as a ZIP archive while it is sent, and unpacks an archive into a folder.
//!
//! Packing refuses everything but regular files and directories, because the server would refuse it too.
//! Unpacking does not trust the archive: it fills a new temporary directory, accepts only names that stay
//! below it, and renames the directory when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::thread::JoinHandle;

use indicatif::ProgressBar;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{ZipArchive, ZipWriter};

use crate::cli::transfer::parent_of;
use crate::message::Message;

/// An entry of this size or larger needs ZIP64.
const ZIP64_BYTES: u64 = u32::MAX as u64;

/// A reader of an archive that a thread packs.
pub(crate) struct Packed {
    pipe: PipeReader,
    /// `None` after the thread was joined.
    packer: Option<JoinHandle<io::Result<()>>>,
}

impl Packed {
    /// Starts to pack a folder and returns its name, which is the top directory of the archive. Advances
    /// `bar` by the packed bytes.
    pub(crate) fn start(folder: &Path, bar: ProgressBar) -> Result<(Self, String), Message> {
        let failed = |error: io::Error| Message::io(format!("{}: {error}", folder.display()));
        let name = std::path::absolute(folder).map_err(failed)?;
        let Some(name) = name.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            return Err(Message::new(format!("{} does not end in a UTF-8 name for the skill", folder.display()))
                .with_hint("name the skill's folder, such as ./my-skill"));
        };
        let (pipe, writer) = io::pipe().map_err(failed)?;
        let (root, top) = (folder.to_owned(), name.clone());
        let packer = std::thread::Builder::new().name("pack".into()).spawn(move || pack(&root, &top, writer, &bar));
        Ok((Packed { pipe, packer: Some(packer.map_err(failed)?) }, name))
    }
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.pipe.read(buffer)?;
        // The pipe is also closed after an error; without the check an incomplete archive would be sent.
        if count == 0
            && !buffer.is_empty()
            && let Some(packer) = self.packer.take()
        {
            packer.join().unwrap_or_else(|_| Err(io::Error::other("the packing thread panicked")))?;
        }
        Ok(count)
    }
}

/// Bytes in all files of a folder, for the progress bar. Ignores errors, because packing reports them.
pub(crate) fn size(folder: &Path) -> u64 {
    let mut size = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => size += entry.metadata().map_or(0, |found| found.len()),
                _ => {}
            }
        }
    }
    size
}

type Writer = ZipWriter<StreamWriter<BufWriter<PipeWriter>>>;

fn pack(root: &Path, top: &str, to: PipeWriter, bar: &ProgressBar) -> io::Result<()> {
    let mut archive = ZipWriter::new_stream(BufWriter::new(to));
    let mut open = vec![(root.to_owned(), top.to_owned())];
    while let Some((directory, name)) = open.pop() {
        archive.add_directory(&name, SimpleFileOptions::default())?;
        let mut entries =
            fs::read_dir(&directory).map_err(|error| with_path(&directory, &error))?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let refused = |why: &str| with_path(&path, &io::Error::other(why.to_owned()));
            let own = entry.file_name();
            let own = own.to_str().ok_or_else(|| refused("its name is not UTF-8"))?;
            let name = format!("{name}/{own}");
            match entry.file_type()? {
                kind if kind.is_dir() => open.push((path, name)),
                kind if kind.is_file() => {
                    pack_file(&mut archive, &path, &name, bar).map_err(|error| with_path(&path, &error))?
                }
                kind if kind.is_symlink() => return Err(refused("a skill cannot contain a symbolic link")),
                _ => return Err(refused("a skill can contain only files and directories")),
            }
        }
    }
    archive.finish()?.into_inner().flush()
}

fn pack_file(archive: &mut Writer, path: &Path, name: &str, bar: &ProgressBar) -> io::Result<()> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    let options = SimpleFileOptions::default()
        .unix_permissions(found.permissions().mode() & 0o777)
        .large_file(found.len() >= ZIP64_BYTES);
    archive.start_file(name, options)?;
    io::copy(&mut bar.wrap_read(file), archive).map(drop)
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Unpacks an archive as the new directory `target` and returns the number of files.
pub(crate) fn unpack(archive: File, target: &Path) -> Result<usize, Message> {
    let failed = |error: io::Error| Message::io(format!("{}: {error}", target.display()));
    if target.symlink_metadata().is_ok() {
        return Err(Message::new(format!("{} already exists", target.display()))
            .with_hint("remove it first, or choose another directory"));
    }
    let fresh = tempfile::Builder::new().prefix(".ringwall-").tempdir_in(parent_of(target)).map_err(failed)?;
    let files = fill(archive, fresh.path()).map_err(|error| {
        Message::new(format!("could not unpack the server's archive into {}: {error}", target.display()))
    })?;
    fs::set_permissions(fresh.path(), fs::Permissions::from_mode(0o755)).map_err(failed)?;
    rename_new(fresh.path(), target).map_err(failed)?;
    // The directory was renamed, so there is nothing to delete.
    let _ = fresh.keep();
    Ok(files)
}

/// Renames a directory. Fails if `to` exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::NOREPLACE);
    Ok(rustix::fs::renameat_with(here, from, here, to, flags)?)
}

fn fill(archive: File, root: &Path) -> io::Result<usize> {
    let mut archive = ZipArchive::new(archive)?;
    let mut files = 0;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let name = entry.name()?.into_owned();
        let entry_path = entry_path(&name).ok_or_else(|| io::Error::other(format!("unsafe entry name {name:?}")))?;
        let path = root.join(entry_path);
        if entry.is_dir() {
            fs::create_dir_all(&path)?;
        } else if entry.is_file() {
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            let mode = if entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0) { 0o777 } else { 0o666 };
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
            io::copy(&mut entry, &mut file)?;
            files += 1;
        } else {
            return Err(io::Error::other(format!("entry {name:?} is neither a file nor a directory")));
        }
    }
    Ok(files)
}

/// The relative path of an entry, or `None` if it could leave the directory.
fn entry_path(name: &str) -> Option<PathBuf> {
    if name.contains(['\\', '\0']) || name.is_empty() {
        return None;
    }
    let path = Path::new(name);
    path.components().all(|part| matches!(part, Component::Normal(_))).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(folder: &Path) -> io::Result<Vec<u8>> {
        let bar = ProgressBar::hidden();
        let (mut packed, name) = Packed::start(folder, bar.clone()).unwrap();
        assert_eq!(name, "s");
        let mut bytes = Vec::new();
        packed.read_to_end(&mut bytes)?;
        assert_eq!(bar.position(), size(folder), "the bar is at its end");
        Ok(bytes)
    }

    fn archive_of(entries: &[&str]) -> File {
        let mut archive = ZipWriter::new(tempfile::tempfile().unwrap());
        for name in entries {
            archive.start_file(name, SimpleFileOptions::default()).unwrap();
            archive.write_all(b"x").unwrap();
        }
        archive.finish().unwrap()
    }

    #[test]
    fn unpacked_folder_equals_the_packed_one() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("s");
        fs::create_dir_all(folder.join("d/empty")).unwrap();
        fs::write(folder.join("SKILL.md"), "name: s").unwrap();
        fs::create_dir(folder.join("s")).unwrap();
        fs::write(folder.join("s/s"), "of the same name").unwrap();
        fs::write(folder.join("d/ü.sh"), vec![7; 300_000]).unwrap();
        fs::set_permissions(folder.join("d/ü.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&packed(&folder).unwrap()).unwrap();
        let target = home.path().join("back");
        assert_eq!(unpack(file.try_clone().unwrap(), &target).unwrap(), 3);
        let back = target.join("s");
        assert_eq!(fs::read(back.join("d/ü.sh")).unwrap(), vec![7; 300_000]);
        assert_eq!(fs::read(back.join("SKILL.md")).unwrap(), b"name: s");
        assert_eq!(fs::read(back.join("s/s")).unwrap(), b"of the same name");
        assert!(back.join("d/empty").is_dir());
        assert_ne!(fs::metadata(back.join("d/ü.sh")).unwrap().permissions().mode() & 0o100, 0);
        assert!(unpack(file, &target).is_err(), "an existing target was replaced");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "a temporary directory is left");
    }

    #[test]
    fn symbolic_link_fails_the_packed_stream() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("s");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
        let error = packed(&folder).unwrap_err().to_string();
        assert!(error.contains("link") && error.contains("symbolic"), "{error}");
    }

    #[test]
    fn hostile_names_are_not_unpacked() {
        let home = tempfile::tempdir().unwrap();
        for name in ["../x", "/x", "a/../../x", "s/../../x", "a\\..\\x", "..", "s/.."] {
            let target = home.path().join("t");
            assert!(unpack(archive_of(&["good", name]), &target).is_err(), "{name}");
            assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "{name} left files behind");
        }
        let mut link = ZipWriter::new(tempfile::tempfile().unwrap());
        link.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
        assert!(unpack(link.finish().unwrap(), &home.path().join("t")).is_err());
    }
}
