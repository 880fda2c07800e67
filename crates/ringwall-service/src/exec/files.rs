//! The directories and files of an exec: opened or created before its box starts.

use std::sync::Arc;

use ringwall_workspace::{ExecFiles, Input, Names, Project, Session, Stream, Tree, Usage};
use tokio::task::block_in_place;

use crate::blocking;
use crate::blocking::briefly;
use crate::disk::{Disk, DiskReservation};
use crate::error::Error;
use crate::exec::lifecycle::{Exec, Step};
use crate::exec::spec::{Backend, Target};

/// Session files compared before and after code runs. In a session with more names, the created
/// files are unknown.
const MAX_NAMES: usize = 20_000;
/// Listing this many names takes less time than `block_in_place` needs to hand the event loop to
/// another thread.
const FEW_NAMES: usize = 500;

#[derive(Debug)]
pub(crate) struct PreparedFiles {
    pub(crate) project: Project,
    pub(crate) target: OpenTarget,
    pub(crate) files: ExecFiles,
    /// The disk quotas that the exec counts against: its workspace and, if it has one, its session.
    pub(crate) disks: Vec<Disk>,
    /// The session's names before code runs, to find the files that it creates. `None` for other
    /// execs, on an AIO service, and if the session has more than 20,000 names.
    pub(crate) names_before: Option<Arc<Names>>,
}

/// The opened directories that the exec works on. [`PreparedFiles::project`] is open in any case.
#[derive(Debug)]
pub(crate) enum OpenTarget {
    Project,
    Agent(Tree),
    Session(Session),
}

impl Exec {
    /// The files prepared while the intent was being recorded or kept from an earlier attempt;
    /// otherwise prepares them now.
    pub(crate) async fn prepared_files(&mut self) -> Step<PreparedFiles> {
        match self.early_files.take() {
            Some(files) => files,
            None => {
                let inputs = self.spec.take_inputs();
                self.prepare_files(inputs).await
            }
        }
    }

    /// Opens or creates the directories, reserves the disk space of the inputs and writes them.
    pub(crate) async fn prepare_files(&self, inputs: Vec<Input>) -> Step<PreparedFiles> {
        let writes_files = !inputs.is_empty() || matches!(&self.spec.target, Target::Code(code) if code.has_files());
        let prepare = || self.open_files(&inputs);
        let files = if writes_files { block_in_place(prepare) } else { briefly(prepare) }?;
        let [stdout, stderr] = [Stream::Stdout, Stream::Stderr].map(|stream| files.files.output(stream).clone());
        self.running.set_output(stdout, stderr);
        Ok(files)
    }

    fn open_files(&self, inputs: &[Input]) -> Result<PreparedFiles, Error> {
        let (spec, exec_id) = (&self.spec, &self.intent.exec_id);
        let workspace = self.service.inner.workspaces.workspace(&spec.user_id, &spec.agent_id, self.owner)?;
        let disk = self.service.disk(&spec.user_id, &spec.agent_id, &workspace);
        let session_disk = spec.session().map(|session| self.service.session_disk(&disk, session));
        let disks = std::iter::once(disk).chain(session_disk).map(|disk| disk.for_box());
        let disks = disks.collect::<Result<Vec<_>, _>>()?;
        let sizes = inputs.iter().map(|input| Usage::of_file(input.content.len() as u64));
        let mut more = sizes.fold(Usage::default(), Usage::plus);
        if let Target::Code(code) = &spec.target {
            more = more.plus(code.size());
        }
        let reserved = disks.iter().map(|disk| disk.reserve(more)).collect::<Result<Vec<DiskReservation>, _>>()?;
        let mut names_before = None;
        let target = match &spec.target {
            Target::Project { .. } => OpenTarget::Project,
            Target::Agent { .. } => OpenTarget::Agent(workspace.tree()?),
            Target::Session { session, .. } => OpenTarget::Session(workspace.session(session)?),
            Target::Code(code) => {
                let session = workspace.session(code.session())?;
                // An AIO service receives the files with the request and keeps them on its side.
                if spec.backend == Backend::AioService {
                    session.create_directories()?;
                } else {
                    if code.has_files() {
                        session.create_directories()?;
                        code.write_files(&session)?;
                    }
                    names_before = list_names(|max| session.names_with_directories(max))?;
                }
                OpenTarget::Session(session)
            }
        };
        let project = workspace.project(&spec.project_id)?;
        project.write_inputs(exec_id, inputs)?;
        reserved.into_iter().for_each(|reserved| reserved.settle(more));
        let files = match &spec.target {
            // Files that code creates stay in its session, so only output files are needed.
            Target::Code(_) => project.begin_output(exec_id)?,
            Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } => project.begin(exec_id)?,
        };
        Ok(PreparedFiles { project, target, files, disks, names_before })
    }
}

/// Removes the files prepared for an exec that does not run.
pub(crate) async fn discard(files: Option<Step<PreparedFiles>>) {
    if let Some(Ok(PreparedFiles { project, files, .. })) = files {
        // The conversion to `Error` logs a failure. It leaves an empty directory, which is
        // harmless.
        let _ = blocking::in_place(move || Ok(project.remove_artifacts(files.exec())?)).await;
    }
}

/// Lists the names of a session: up to [`FEW_NAMES`] on the event loop, more after moving the
/// loop's other tasks to another thread. `None` if there are more than [`MAX_NAMES`].
pub(crate) fn list_names<T>(
    list: impl Fn(usize) -> Result<Option<T>, ringwall_workspace::Error>,
) -> Result<Option<T>, ringwall_workspace::Error> {
    match list(FEW_NAMES)? {
        None => block_in_place(|| list(MAX_NAMES)),
        few => Ok(few),
    }
}
