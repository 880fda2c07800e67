//! The host paths that a line names, found by stepping through the line with the shell's current
//! directory and the variables that the line sets.
//!
//! All branches are taken, one after the other. Of a word whose end is known only at run time the
//! known directory counts. A word without one is left out, and so are relative words after a `cd`
//! to an unknown directory. Paths that are left out are not mounted into the box.

use std::collections::BTreeMap;

use ringwall_risk::shell_syntax::{Step, is_windows_path};

use super::expand::{End, Reading, Variables, expand, whole};
use super::grammar::Budget;
use super::line::{Command, CommandLine, LeadShell};
use crate::error::Error;
use crate::reach::{FileUse, HostPath, Operand, Sureness, looks_like_path, normalise, read_operands};

const DIRECTORY: &str = "PWD";
const DIRECTORY_BEFORE: &str = "OLDPWD";

impl CommandLine {
    /// The paths that the line names, normalised, each once, in order. It runs in `cwd`; `home`
    /// replaces `~`.
    pub fn operands(&self, cwd: &str, home: &str) -> Result<Vec<HostPath>, Error> {
        Ok(self.files(cwd, home)?.known.into_iter().map(|file| file.path).collect())
    }

    /// The same paths with the use that the line makes of each, and the words whose path is known
    /// only at run time.
    pub fn files(&self, cwd: &str, home: &str) -> Result<NamedFiles, Error> {
        let mut walk = Walk::new(self, cwd, home);
        walk.go()?;
        Ok(walk.files)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedFiles {
    pub known: Vec<NamedFile>,
    /// As written in the line; at most [`MAX_UNKNOWN`].
    pub unknown: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    pub path: HostPath,
    pub usage: FileUse,
}

const MAX_UNKNOWN: usize = 16;

struct Walk<'a> {
    line: &'a CommandLine,
    budget: Budget,
    /// Includes the shell's current directory.
    variables: Variables,
    /// Variables that were set, with their previous values.
    changes: Vec<(String, Option<Vec<Reading>>)>,
    files: NamedFiles,
    /// The index of each path in `files.known`.
    seen: BTreeMap<HostPath, usize>,
}

enum Todo {
    /// A script from step `at` on. `marks` has the number of changes before each earlier step.
    Steps { script: usize, at: usize, marks: Vec<usize> },
    /// Undoes the changes after this number.
    Undo(usize),
}

impl<'a> Walk<'a> {
    fn new(line: &'a CommandLine, cwd: &str, home: &str) -> Self {
        let mut variables = Variables::default();
        variables.set(DIRECTORY, vec![whole(cwd)]);
        variables.set("HOME", vec![whole(home)]);
        let (changes, files, seen) = (Vec::new(), NamedFiles::default(), BTreeMap::new());
        Self { line, budget: Budget::default(), variables, changes, files, seen }
    }

    fn go(&mut self) -> Result<(), Error> {
        let mut todo = vec![Todo::Steps { script: 0, at: 0, marks: Vec::new() }];
        while let Some(next) = todo.pop() {
            let (script, at, mut marks) = match next {
                Todo::Steps { script, at, marks } => (script, at, marks),
                Todo::Undo(mark) => {
                    self.undo(mark);
                    continue;
                }
            };
            let Some(step) = self.line.scripts.get(script).and_then(|steps| steps.get(at)) else { continue };
            let mark = self.changes.len();
            marks.push(mark);
            let begin = |script| Todo::Steps { script, at: 0, marks: Vec::new() };
            let mut below = Vec::new();
            match step {
                Step::Run(command) => {
                    if let Some(command) = self.line.commands.get(*command) {
                        self.run(command)?;
                        for lead in command.leads.iter().rev() {
                            below.extend((lead.place == LeadShell::OtherShell).then_some(Todo::Undo(mark)));
                            below.push(begin(lead.script));
                        }
                    }
                }
                Step::Open { word, usage } => {
                    self.open(Operand { word, sureness: Sureness::Path, usage: *usage })?;
                }
                Step::Assign { name, values } => {
                    let mut known = Vec::new();
                    for value in values {
                        known.extend(expand(value, &self.variables, &mut self.budget)?);
                    }
                    self.set(name, known);
                }
                Step::Text(script) => below.extend([Todo::Undo(mark), begin(*script)]),
                Step::Back(step) => {
                    let mark = marks.get(*step).copied().unwrap_or_default();
                    self.undo(mark);
                }
            }
            todo.push(Todo::Steps { script, at: at + 1, marks });
            todo.extend(below);
        }
        Ok(())
    }

    fn run(&mut self, command: &Command) -> Result<(), Error> {
        // The shell would remove the backslashes of a Windows path.
        let written = command.spelled_name.replace(r"\\", r"\");
        let name = if is_windows_path(&written) { &written } else { &command.name };
        if name.contains(['/', '\\']) {
            let (word, usage) = (command.spelled_name.as_str(), FileUse::Script);
            self.open(Operand { word, sureness: Sureness::Path, usage })?;
        }
        match name.as_str() {
            "cd" | "chdir" | "pushd" => self.change_directory(&command.spelled),
            "popd" => {
                self.go_to(self.variables.get(DIRECTORY_BEFORE).cloned().unwrap_or_default());
                self.set(DIRECTORY_BEFORE, Vec::new());
                Ok(())
            }
            name => {
                for operand in read_operands(name, &command.spelled) {
                    self.open(operand)?;
                }
                Ok(())
            }
        }
    }

    fn change_directory(&mut self, words: &[String]) -> Result<(), Error> {
        let is_option = |word: &&String| matches!(word.as_str(), "-L" | "-P" | "-e" | "-@" | "--");
        let word = words.iter().find(|word| !is_option(word));
        let readings = match word.map(String::as_str) {
            None => self.variables.get("HOME").cloned().unwrap_or_default(),
            Some("-") => self.variables.get(DIRECTORY_BEFORE).cloned().unwrap_or_default(),
            Some(word) => expand(word, &self.variables, &mut self.budget)?,
        };
        let mut paths = Vec::new();
        for reading in &readings {
            paths.extend(self.resolve(reading)?.map(|path| Reading { text: path.to_string(), end: reading.end }));
            self.name(reading, FileUse::Read)?;
        }
        self.go_to(paths);
        Ok(())
    }

    /// The directory is known only if there is exactly one reading and it has no unknown part.
    fn go_to(&mut self, paths: Vec<Reading>) {
        let is_known = matches!(&paths[..], [Reading { end: End::Whole, .. }]);
        let before = self.variables.get(DIRECTORY).cloned().unwrap_or_default();
        self.set(DIRECTORY_BEFORE, before);
        self.set(DIRECTORY, if is_known { paths } else { Vec::new() });
    }

    fn open(&mut self, operand: Operand<'_>) -> Result<(), Error> {
        for mut reading in expand(operand.word, &self.variables, &mut self.budget)? {
            if operand.sureness == Sureness::Perhaps && !looks_like_path(&reading.text) {
                continue;
            }
            match reading.text.split_once("://") {
                Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
                    let path = rest.find('/').map_or("", |at| &rest[at..]);
                    reading.text = path.to_owned();
                }
                Some((scheme, _)) if is_scheme(scheme) => continue,
                _ => {}
            }
            if !self.name(&reading, operand.usage)? {
                self.note_unknown(operand.word);
            }
        }
        Ok(())
    }

    /// `false` if the path of the word is unknown.
    fn name(&mut self, reading: &Reading, usage: FileUse) -> Result<bool, Error> {
        let Some(path) = self.resolve(reading)? else {
            return Ok(reading.end == End::Whole && reading.text == "-");
        };
        let usage = if reading.end == End::Whole { usage } else { FileUse::Unclear };
        match self.seen.get(&path).and_then(|at| self.files.known.get_mut(*at)) {
            Some(known) => known.usage = known.usage.max(usage),
            None => {
                self.seen.insert(path.clone(), self.files.known.len());
                self.files.known.push(NamedFile { path, usage });
            }
        }
        Ok(true)
    }

    fn note_unknown(&mut self, word: &str) {
        let unknown = &mut self.files.unknown;
        if unknown.len() < MAX_UNKNOWN && !unknown.iter().any(|known| known == word) {
            unknown.push(word.to_owned());
        }
    }

    /// The path that a reading means, if it can be known.
    fn resolve(&mut self, reading: &Reading) -> Result<Option<HostPath>, Error> {
        let separators = if is_windows_path(&reading.text) { &['/', '\\'][..] } else { &['/'] };
        let directory = reading.text.rfind(separators).map(|at| &reading.text[..=at]);
        let text = match reading.end {
            End::Whole if reading.text == "-" => return Ok(None),
            End::Whole => reading.text.as_str(),
            End::Pattern => directory.unwrap_or("."),
            End::Unknown => match directory {
                // Otherwise every path of the machine would be meant.
                Some(directory) if !is_root(directory) => directory,
                _ => return Ok(None),
            },
        };
        let base = if text.starts_with('/') || is_windows_path(text) {
            "/"
        } else {
            match self.variables.get(DIRECTORY).and_then(|directories| directories.first()) {
                Some(directory) => directory.text.as_str(),
                None => return Ok(None),
            }
        };
        self.budget.read(base.len() + text.len() + 1)?;
        // `expand` has replaced `~` already, so a leading `~` is part of a name.
        let path = if text.starts_with('~') {
            normalise(&format!("./{text}"), base, None)
        } else {
            normalise(text, base, None)
        };
        Ok(path.ok())
    }

    fn set(&mut self, name: &str, values: Vec<Reading>) {
        let before = self.variables.set(name, values);
        self.changes.push((name.to_owned(), before));
    }

    fn undo(&mut self, mark: usize) {
        for (name, before) in self.changes.drain(mark.min(self.changes.len())..).rev() {
            self.variables.set(&name, before.unwrap_or_default());
        }
    }
}

fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte);
    text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic()) && text.bytes().all(is_part)
}

fn is_root(directory: &str) -> bool {
    directory.trim_matches(['/', '.']).is_empty() || is_windows_path(directory) && directory.len() <= 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Shape;

    /// The work to parse a line and to find the paths that it names.
    fn work(text: &str) -> (usize, Result<(), Error>) {
        let mut budget = Budget::default();
        let line = CommandLine::read_within(text, &mut budget);
        let read = budget.done(text.len());
        match line {
            Err(error) => (read, Err(error)),
            Ok(line) => {
                let mut walk = Walk::new(&line, "/workspace", "/home/sandbox");
                let found = walk.go();
                (read + walk.budget.bytes_read(), found)
            }
        }
    }

    #[test]
    fn hostile_line_takes_linear_work() {
        let mut wrong = Vec::new();
        for shape in Shape::all().iter().filter(|shape| shape.language == "shell") {
            let text = shape.text(1024);
            let (once, first) = work(&text);
            let (twice, second) = work(&shape.text(2048));
            // A path that grows with the line is limited to the longest path, so these shapes take
            // more work.
            let most = if text.starts_with("a=b/") { 4 } else { 2 };
            // Differences of a few parser steps are worth some hundred.
            if twice > most * once + once / 4 + 400 {
                wrong.push(format!("{shape:?}: {once} {first:?}, {twice} {second:?}"));
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn repeated_line_takes_linear_work() {
        let shapes = [
            "cat /a;",
            "cd /a; cat b;",
            "(cd a; ls b);",
            "ls a | cat b;",
            "cd a & ",
            "X=/a; cat $X;",
            "for X in a /b/*; do cat $X; done;",
            "cat {a,b}{c,d};",
            "cat {a{b{c;",
            "cat ${a}{};",
            "echo `cat a`;",
            "bash -c 'cd a; cat b';",
            "find a -exec cat {} + ;",
            "cat <(ls a);",
            "[ -f a ];",
            "pushd /a; popd;",
            "cat C:\\a;",
        ];
        // The path grows with the line, up to the longest path.
        let growing = ["cd a;", "eval 'cd a';", "X=$X/a;", "X=$X$X;", "for X in a $X; do cat $X; done;"];
        let work = |shape: &str, count: usize| {
            let line = CommandLine::read(&shape.repeat(count)).expect("a short line");
            let mut walk = Walk::new(&line, "/workspace", "/home/sandbox");
            walk.go().expect("few paths");
            walk.budget.bytes_read()
        };
        for (shape, most) in shapes.map(|shape| (shape, 2)).into_iter().chain(growing.map(|shape| (shape, 4))) {
            let (once, twice) = (work(shape, 25), work(shape, 50));
            assert!(once > 0 && twice <= most * once + 64, "{shape}: {once}, {twice}");
        }
        for letter in ["{", "{a", "{a,", "${", "\\{", "a,", "*", "~", "[", "{}", "'{'"] {
            let work = |count: usize| {
                let mut budget = Budget::default();
                let known = Variables::default();
                expand(&letter.repeat(count), &known, &mut budget).expect("a short word");
                budget.bytes_read()
            };
            let (once, twice) = (work(1000), work(2000));
            assert!(twice <= 2 * once + 64, "{letter}: {once}, {twice}");
        }
    }
}
