//! stub
use crate::message::Message;
use std::path::Path;
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArguments {
    #[arg(long)]
    json: bool,
}
pub(crate) fn run(_a: &DoctorArguments, _d: &Path) -> Result<ExitCode, Message> {
    Ok(ExitCode::SUCCESS)
}
