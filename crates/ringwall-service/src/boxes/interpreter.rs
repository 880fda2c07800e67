//! An interpreter that waits for code: a command in a session's box, with a channel beside its streams.

use std::time::Duration;

use ringwall_executor::session_box::{
    Channel, Enabled, Resident, SessionProcess, StartedProcess, VisitInput, VisitOptions, VisitOutput,
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

/// The words that start it; nothing for a language that has none.
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
    asked: VisitInput,
    said: VisitOutput,
    stdout: VisitOutput,
    stderr: VisitOutput,
    /// What was said and not read yet.
    held: Vec<u8>,
    cells: u64,
}

/// How a piece of code ended that it was given.
#[derive(Debug)]
pub(crate) enum Conversed {
    /// It answered, and waits for the next.
    Answered { answer: CellAnswer, interpreter: Box<Interpreter>, is_late: bool },
    /// It is gone, as it would be after `exit`, or because it had to be ended.
    Gone { outcome: Result<Outcome, ringwall_executor::Error>, is_late: bool },
}

impl Interpreter {
    pub(crate) async fn start(resident: &Resident, grant: Grant) -> Result<Self, ringwall_executor::Error> {
        let options = VisitOptions { terminal: None, channel: Channel::Open, stdin: Enabled::No };
        let StartedProcess { process, streams, running } = resident.visit(grant, options).await?;
        let (Some((asked, said)), stdout, Some(stderr)) = (streams.channel, streams.stdout, streams.stderr) else {
            return Err(ringwall_executor::Error::BoxDied { why: "its agent gave a command no streams".to_owned() });
        };
        Ok(Self { process, running, asked, said, stdout, stderr, held: Vec::new(), cells: 0 })
    }

    pub(crate) fn process(&self) -> &SessionProcess {
        &self.process
    }

    /// Has it run code, within a time of its box: asked to stop then, and after a moment ended, with its box where that is
    /// what it takes.
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
                // They have ended, and so has it, unless it only closed them.
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
                // It is over already, or says what no interpreter says. Then it is ended, as every command is.
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

/// From a stream of the interpreter to the one of the exec. What was read is never lost when it is stopped halfway.
struct Pump {
    from: VisitOutput,
    held: Vec<u8>,
    /// Nothing when nobody reads there any more.
    to: Option<DuplexStream>,
}

impl Pump {
    /// To the end of the stream.
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

    /// What was printed before the answer is there by then.
    async fn finish(mut self) -> VisitOutput {
        let rest = self.from.read_now();
        self.held.extend(rest);
        self.pass_on().await;
        self.from
    }
}
