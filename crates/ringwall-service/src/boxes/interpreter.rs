//! An interpreter that waits for code: a process in a session box, with a channel for requests and
//! answers beside its standard streams.

use std::time::Duration;

use ringwall_executor::session_box::{
    Enabled, ProcessInput, ProcessOptions, ProcessOutput, SessionBox, SessionProcess, StartedProcess,
};
use ringwall_executor::{BoxControl as _, Outcome, RunningBox};
use ringwall_policy::Grant;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::answer::{CellAnswer, read_answer, read_line};
use crate::boxes::Language;

const PYTHON: &str = include_str!("runner.py");
const JAVASCRIPT: &str = include_str!("runner.js");
const PORTION: usize = 16 << 10;

/// The interpreter's argv; `None` for shell, which has no contexts.
pub(crate) fn words(language: Language) -> Option<Vec<String>> {
    let words = match language {
        Language::Python => ["python3", "-c", PYTHON],
        Language::Javascript => ["node", "-e", JAVASCRIPT],
        Language::Shell => return None,
    };
    Some(words.map(str::to_owned).to_vec())
}

#[derive(Debug)]
pub(crate) struct Interpreter {
    process: SessionProcess,
    running: RunningBox,
    asked: ProcessInput,
    said: ProcessOutput,
    stdout: ProcessOutput,
    stderr: ProcessOutput,
    /// Bytes from the channel after the last answer.
    held: Vec<u8>,
    cells: u64,
}

/// The end of a cell.
#[derive(Debug)]
pub(crate) enum Conversed {
    /// The interpreter answered and is ready for the next cell.
    Answered { answer: CellAnswer, interpreter: Box<Interpreter>, is_late: bool },
    /// The interpreter ended, by itself (`exit`) or because it was killed.
    Gone { outcome: Result<Outcome, ringwall_executor::Error>, is_late: bool },
}

impl Interpreter {
    pub(crate) async fn start(session_box: &SessionBox, grant: Grant) -> Result<Self, ringwall_executor::Error> {
        let options = ProcessOptions { terminal: None, channel: Enabled::Yes, stdin: Enabled::No };
        let StartedProcess { process, streams, running } = session_box.process(grant, options).await?;
        let (Some((asked, said)), stdout, Some(stderr)) = (streams.channel, streams.stdout, streams.stderr) else {
            return Err(ringwall_executor::Error::BoxDied { why: "its agent gave a command no streams".to_owned() });
        };
        Ok(Self { process, running, asked, said, stdout, stderr, held: Vec::new(), cells: 0 })
    }

    pub(crate) fn process(&self) -> &SessionProcess {
        &self.process
    }

    /// Runs one cell. When `limit` has passed on the box's clock, interrupts the cell; if it does
    /// not react, kills the interpreter, and ends the box if that fails too.
    pub(crate) async fn converse(mut self, code: &str, limit: Duration, streams: [DuplexStream; 2]) -> Conversed {
        self.cells += 1;
        let id = self.cells;
        let line = format!("{}\n", json!({ "id": id, "code": code }));
        let [out, err] = streams;
        let mut out = Pump { from: self.stdout, held: Vec::new(), to: Some(out) };
        let mut err = Pump { from: self.stderr, held: Vec::new(), to: Some(err) };
        let (process, mut is_late) = (self.process.clone(), false);
        let said = {
            let talk = async {
                self.asked.write(line.as_bytes()).await.ok()?;
                let line = read_line(&mut self.said, &mut self.held).await?;
                read_answer(line, id).await
            };
            let watch = async {
                process.passed(limit).await;
                is_late = true;
                process.interrupt().await;
                std::future::pending::<()>().await;
            };
            let pump = async {
                tokio::join!(out.run(), err.run());
                // Both streams are closed. The interpreter has ended or has closed only its
                // streams; `talk` finds out which.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                said = talk => said,
                () = watch => None,
                () = pump => None,
            }
        };
        match said {
            Some(answer) => {
                let (stdout, stderr) = tokio::join!(out.finish(), err.finish());
                let interpreter = Box::new(Self { stdout, stderr, ..self });
                Conversed::Answered { answer, interpreter, is_late }
            }
            None => {
                // The interpreter has ended, did not react to the interrupt, or sent an invalid
                // answer. In every case it is killed.
                let end = async {
                    tokio::select! {
                        biased;
                        outcome = self.running.wait() => outcome,
                        never = async {
                            process.stop(Signal::KILL).await;
                            std::future::pending().await
                        } => never,
                    }
                };
                let (outcome, (), ()) = tokio::join!(end, out.run(), err.run());
                Conversed::Gone { outcome, is_late }
            }
        }
    }
}

/// Copies a stream of the interpreter to the exec. Cancel-safe: bytes that were read are kept in
/// `held`.
struct Pump {
    from: ProcessOutput,
    held: Vec<u8>,
    /// `None` after the exec has closed its end.
    to: Option<DuplexStream>,
}

impl Pump {
    /// Copies until the stream ends.
    async fn run(&mut self) {
        loop {
            self.pass_on().await;
            let mut portion = [0; PORTION];
            match self.from.read(&mut portion).await {
                Ok(read) if read > 0 => self.held.extend_from_slice(&portion[..read]),
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn pass_on(&mut self) {
        while !self.held.is_empty() {
            let Some(to) = &mut self.to else { return self.held.clear() };
            match to.write(&self.held).await {
                Ok(written) => drop(self.held.drain(..written)),
                Err(_) => self.to = None,
            }
        }
    }

    /// Copies the bytes that have arrived. The agent sends all output from before the answer ahead
    /// of it, so none is missing.
    async fn finish(mut self) -> ProcessOutput {
        let rest = self.from.read_now();
        self.held.extend(rest);
        self.pass_on().await;
        self.from
    }
}
