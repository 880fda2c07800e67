//! `ringwall image build-docker`: builds the default image of the docker backend from packages of this
//! machine's distribution.
//!
//! Uses the docker client and context of a server with the same data directory and environment.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use ringwall_executor::docker::{BuildStep, DEFAULT_IMAGE, Docker};
use ringwall_policy::DockerImage;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::message::Message;
use crate::server::{config, config::DockerOverride};

#[derive(Debug, clap::Args)]
pub(crate) struct BuildArguments {
    /// Name and tag of the image in docker
    #[arg(long, value_name = "NAME:TAG", default_value = DEFAULT_IMAGE)]
    tag: DockerImage,
    #[command(flatten)]
    docker: DockerOverride,
}

/// Builds the image and returns the text to print.
pub(crate) fn build(arguments: &BuildArguments, data: &Path) -> Result<String, Message> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Message::new(format!("could not start the event loop: {error}")))?;
    let pinned = config::docker(data, arguments.docker.clone())?;
    let docker = Docker::new(ringwall_service::docker_settings(&pinned)?, data)?;
    let bar = spinner();
    let built = runtime.block_on(async {
        let mut show = |step: BuildStep| bar.set_message(description(step));
        let listen =
            |kind| signal(kind).map_err(|error| Message::new(format!("could not install signal handlers: {error}")));
        let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        // A signal drops the future of the build, which kills its programs and removes its directory.
        tokio::select! {
            built = docker.build_image(&arguments.tag, data, &mut show) => Ok(built?),
            _ = interrupt.recv() => Err(Message::new("interrupted; nothing was changed")),
            _ = terminate.recv() => Err(Message::new("interrupted; nothing was changed")),
        }
    });
    bar.finish_and_clear();
    built.map(|id| format!("built {} ({id})\n", arguments.tag))
}

fn description(step: BuildStep) -> String {
    match step {
        BuildStep::Install(line) => line,
        BuildStep::Pack => "packing".to_owned(),
        BuildStep::Import => "importing into docker".to_owned(),
    }
}

fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
