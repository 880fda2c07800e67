//! A persistent shell that runs commands on request, comparable to a kept HTTP connection.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// The command's words must not need quoting.
    pub(crate) fn for_command(command: &Command) -> Result<Self, Error> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let line: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let script = format!("while read; do {}; echo $?; done", line.join(" "));
        let mut shell = Command::new("/bin/bash");
        shell.args(["--norc", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |source| Error::Start { program: "bash".to_owned(), source };
        let mut process = shell.spawn().map_err(failed)?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(input), Some(output)) => Ok(Shell { process, input, output: BufReader::new(output) }),
            _ => Err(failed(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Runs the command once, which must succeed.
    pub(crate) fn run(&mut self) -> Result<Duration, Error> {
        let mut said = String::new();
        let began = Instant::now();
        self.input.write_all(b"\n").map_err(Error::Speaking)?;
        self.output.read_line(&mut said).map_err(Error::Speaking)?;
        let total = began.elapsed();
        if said.trim() == "0" { Ok(total) } else { Err(Error::ShellSaid(said)) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
