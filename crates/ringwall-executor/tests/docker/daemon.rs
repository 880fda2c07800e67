//! The tests' docker daemon with its images, and a docker backend that uses it.

#[path = "../../../../tests/support/docker_daemon.rs"]
mod started;

use std::fs::File;
use std::path::Path;

use ringwall_executor::docker::{Docker, DockerSettings};

pub(crate) use started::{Daemon, wait_until};

pub(crate) const IMAGE: &str = "ringwall-test:latest";
/// An image with an entry point, root as user, a health check, and labels that imitate attributes
/// of events.
pub(crate) const HOSTILE_IMAGE: &str = "ringwall-hostile:latest";
const PROGRAMS: [&str; 20] = [
    "cat", "dd", "dmesg", "env", "false", "grep", "head", "id", "kill", "ls", "mkdir", "mv", "pwd", "setsid", "sh",
    "sleep", "stty", "touch", "true", "yes",
];

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[String]) -> Self {
        let daemon = Self::launch(options);
        daemon.import(IMAGE, &[]);
        daemon.import(
            HOSTILE_IMAGE,
            &[
                "ENTRYPOINT [\"/bin/false\"]",
                "USER 0",
                "LABEL exitCode=0 name=other ringwall.maker=1-1-0 signal=9",
                "HEALTHCHECK --interval=1s CMD touch /workspace/work/health",
                "ENV FROM_IMAGE=yes",
            ],
        );
        daemon
    }

    /// A docker backend with a data directory of its own.
    pub(crate) fn docker(&self, data: &Path) -> Docker {
        Docker::new(DockerSettings { client: Some(self.client()), context: None }, data).unwrap()
    }

    /// Imports an image with the test programs and these changes of its configuration.
    fn import(&self, image: &str, changes: &[&str]) {
        let archive = self.path("image.tar");
        let mut tar = tar::Builder::new(File::create(&archive).unwrap());
        tar.append_path_with_name("/usr/bin/busybox", "bin/busybox").expect("a static busybox is installed");
        let programs = PROGRAMS.map(|program| (format!("bin/{program}"), "busybox"));
        for (at, to) in programs {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, at, to).unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_mode(0o644);
        tar.append_data(&mut header, "bin/not-executable", &b"text"[..]).unwrap();
        tar.finish().unwrap();
        let changes: Vec<String> = changes.iter().map(|change| format!("--change={change}")).collect();
        let mut words = vec!["import"];
        words.extend(changes.iter().map(String::as_str));
        words.extend([archive.to_str().unwrap(), image]);
        self.ask(&words);
    }
}
