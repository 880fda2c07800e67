//! The meaning of a project's directories: the same checks for the docker and the native backend.

use std::os::unix::fs::MetadataExt;

use ringwall_executor::{Ending, Error};
use ringwall_policy::{Access, ProjectAccess, Root};

use super::daemon::Daemon;
use super::project::{GID, Project, Run, RunRequest, UID, block_on};
use super::session::{Session, TestBackend};

type Backend<'a> = Box<dyn Fn(&Project, &RunRequest, &[&str]) -> Result<Run, Error> + 'a>;

fn backends<'a>(daemon: &'a Daemon) -> [(&'static str, Backend<'a>); 2] {
    let docker: Backend<'a> =
        Box::new(|project, run_request, command| project.run(&daemon.docker(project.data()), run_request, command));
    let native: Backend<'a> = Box::new(|project, run_request, command| {
        let run_request = RunRequest { root: Root::Host, ..run_request.clone() };
        project.run_natively(&run_request, command)
    });
    [("docker", docker), ("native", native)]
}

pub(crate) fn project_is_same_on_docker_and_native(daemon: &Daemon) {
    let script = "pwd; cat ../inputs/given; echo made > made; echo result > ../artifacts/result; echo \"$WORD\"; ls ..
        for place in /workspace /workspace/inputs; do touch $place/planted && echo \"planted in $place\"; done
        echo complaint >&2; exit 3";
    let run_request = RunRequest { env: vec![("WORD", "two words, \"three\"".to_owned())], ..RunRequest::default() };
    for (name, run) in backends(daemon) {
        let project = Project::new();
        let run = run(&project, &run_request, &["sh", "-c", script]).unwrap();
        assert_eq!(run.outcome.ending, Ending::Exited(3), "{name}: {run:?}");
        let expected = "/workspace/work\ngiven\ntwo words, \"three\"\nartifacts\ninputs\nwork\n";
        assert_eq!(run.stdout, expected, "{name}: {}", run.stderr);
        assert!(run.stderr.ends_with("complaint\n"), "{name}: {}", run.stderr);
        for made in ["work/made", "artifacts/result"] {
            let status = std::fs::metadata(project.path(made)).unwrap();
            assert_eq!((status.uid(), status.gid()), (UID, GID), "{name}: {made} belongs to the owner");
        }
        assert!(!project.path("inputs/planted").exists(), "{name}");
        assert!(!run.outcome.out_of_memory, "{name}");
        assert!(!run.outcome.protections.is_empty(), "{name}");
    }
}

pub(crate) fn narrow_mounts_are_enforced_on_docker_and_native(daemon: &Daemon) {
    let access = ProjectAccess { inputs: Access::Empty, work: Access::ReadOnly, artifacts: Access::Empty };
    let script =
        "ls ../inputs ../artifacts; cat kept; echo x > kept; echo x > ../artifacts/x; echo x > ../inputs/x; true";
    for (name, run) in backends(daemon) {
        let project = Project::new();
        std::fs::write(project.path("work/kept"), "kept\n").unwrap();
        let run_request = RunRequest { access, ..RunRequest::default() };
        let run = run(&project, &run_request, &["sh", "-c", script]).unwrap();
        assert_eq!(run.outcome.ending, Ending::Exited(0), "{name}: {run:?}");
        assert!(!run.stdout.contains("given") && run.stdout.ends_with("kept\n"), "{name}: {run:?}");
        assert_eq!(std::fs::read_to_string(project.path("work/kept")).unwrap(), "kept\n", "{name}");
        assert_eq!(std::fs::read_dir(project.path("artifacts")).unwrap().count(), 0, "{name}");
        // The control: with the default mounts the same command does write.
        let run = match name {
            "docker" => project.run(
                &daemon.docker(project.data()),
                &RunRequest::default(),
                &["sh", "-c", "echo x > ../artifacts/x"],
            ),
            _ => project.run_natively(
                &RunRequest { root: Root::Host, ..RunRequest::default() },
                &["sh", "-c", "echo x > ../artifacts/x"],
            ),
        };
        assert_eq!(run.unwrap().outcome.ending, Ending::Exited(0), "{name}");
        assert!(project.path("artifacts/x").exists(), "{name}");
    }
}

pub(crate) fn missing_or_linked_working_directory_is_refused(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    std::fs::create_dir_all(project.path("work/a/b")).unwrap();
    std::fs::write(project.path("work/file"), "").unwrap();
    std::os::unix::fs::symlink("/proc/self/fd", project.path("work/link")).unwrap();
    std::os::unix::fs::symlink("a", project.path("work/inner")).unwrap();
    let run = |cwd: &str| {
        let run_request = RunRequest { cwd: Some(format!("/workspace/work/{cwd}").into()), ..RunRequest::default() };
        project.run(&docker, &run_request, &["pwd"]).map(|run| run.stdout)
    };
    assert_eq!(run("a/b").unwrap(), "/workspace/work/a/b\n");
    assert!(matches!(run("missing"), Err(Error::DirectoryMissing(_))));
    assert!(!project.path("work/missing").exists(), "the missing directory was created");
    assert!(matches!(run("file"), Err(Error::NotADirectory(_))));
    for link in ["link", "link/7", "inner/b"] {
        assert!(matches!(run(link), Err(Error::DirectoryIsLink(_))), "{link}");
    }
}

pub(crate) fn session_directory_is_same_on_every_backend(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        let script = "pwd; echo made > made; cat made; ls";
        let (outcome, stdout) = block_on(session.run_alone(&["sh", "-c", script])).unwrap();
        assert_eq!((outcome.ending, stdout.as_str()), (Ending::Exited(0), "/workspace\nmade\nmade\n"), "{maker:?}");
        let status = std::fs::metadata(session.path("made")).unwrap();
        assert_eq!((status.uid(), status.gid()), (UID, GID), "{maker:?}");
    }
}
