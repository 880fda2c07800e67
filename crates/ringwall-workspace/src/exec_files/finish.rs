//! Writes the last two files of an exec: `meta.json` describes the exec and `manifest.json` lists
//! its files.
//!
//! Each is written completely before it becomes visible, the manifest last. If the output is still
//! in `.staging`, all files become visible by one rename. Nothing is synced to disk: the record in
//! the database is authoritative, and if a power cut loses the manifest, the directory is listed
//! instead.

use std::fs::File;
use std::io::{self, Write};

use ringwall_ids::hexadecimal;
use rustix::fs::{AtFlags, RenameFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::exec_files::begin;
use crate::exec_files::begin::{ArtifactsDir, DescriptionFiles};
use crate::exec_files::collect::Collected;
use crate::exec_files::output::{OutputFile, Stream};
use crate::fs::beneath;
use crate::relative_path::RelativePath;

pub(crate) const META: &str = "meta.json";
pub(crate) const MANIFEST: &str = "manifest.json";

/// One file among the artifacts of an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ArtifactFile {
    /// Relative to `artifacts/<exec_id>/`.
    #[schema(value_type = String)]
    pub path: RelativePath,
    pub size: u64,
    /// The sha256, in hexadecimal.
    pub hash: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) files: Vec<ArtifactFile>,
}

impl Collected {
    /// Writes `meta.json` and `manifest.json`. Returns every file of the exec except the manifest,
    /// sorted by path.
    pub fn finish(self, meta: &Value) -> Result<Vec<ArtifactFile>, Error> {
        let described = self.describe(meta);
        // The output is moved to the project even if the description failed.
        if let ArtifactsDir::Omitted(_) = self.files.artifacts_dir {
            let (staging, artifacts) = (self.files.project.staging(), self.files.project.artifacts_root());
            let (from, to) = (begin::output_name(&self.files.exec), self.files.exec.as_str());
            let moved = rustix::fs::renameat_with(staging, from, artifacts, to, RenameFlags::NOREPLACE);
            moved.map_err(|errno| self.failure("the output directory", errno.into()))?;
        }
        described
    }

    fn describe(&self, meta: &Value) -> Result<Vec<ArtifactFile>, Error> {
        let meta = serialize(meta).map_err(|source| self.failure(META, source))?;
        self.write_file(META, |description_files| &description_files.meta, &meta)?;
        let mut files = self.left.kept.clone();
        files.push(output(Stream::Stdout, &self.files.stdout)?);
        files.push(output(Stream::Stderr, &self.files.stderr)?);
        let hash = hexadecimal(&Sha256::digest(&meta));
        files.push(ArtifactFile { path: META.parse()?, size: meta.len() as u64, hash });
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let manifest = Manifest { files };
        let bytes = serialize(&manifest).map_err(|source| self.failure(MANIFEST, source))?;
        self.write_file(MANIFEST, |description_files| &description_files.manifest, &bytes)?;
        Ok(manifest.files)
    }

    /// Writes a file in `.staging` and renames it. If the whole directory is still in `.staging`,
    /// the file exists there already and is written in place.
    fn write_file(
        &self,
        name: &'static str,
        which: fn(&DescriptionFiles) -> &File,
        content: &[u8],
    ) -> Result<(), Error> {
        if let ArtifactsDir::Omitted(description_files) = &self.files.artifacts_dir {
            return which(description_files).write_all(content).map_err(|source| self.failure(name, source));
        }
        let staging = self.files.project.staging();
        let staged = format!("{}.json", self.files.exec);
        let written = beneath::create_file(staging, staged.as_str())
            .map_err(io::Error::from)
            .and_then(|mut file| file.write_all(content))
            .and_then(|()| Ok(rustix::fs::renameat(staging, staged.as_str(), &self.files.exec_dir, name)?));
        written.map_err(|source| {
            // If this fails, the sweep removes it with the other files of the exec.
            let _ = rustix::fs::unlinkat(staging, staged.as_str(), AtFlags::empty());
            self.failure(name, source)
        })
    }

    fn failure(&self, name: &'static str, source: io::Error) -> Error {
        Error::Finish { exec: self.files.exec.clone(), name, source }
    }
}

fn output(stream: Stream, file: &OutputFile) -> Result<ArtifactFile, Error> {
    let (size, hash) = file.digest();
    Ok(ArtifactFile { path: stream.file_name().parse()?, size, hash })
}

fn serialize(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::from)
}
