//! Collects the commands of one text from its syntax tree, and the order of their effects.
//!
//! The tree is walked once. Some text that the shell runs is not parsed by the grammar: backquotes
//! in here-documents and in default values of variables. Such text is returned in [`Survey::texts`]
//! and parsed separately.
//!
//! The steps contain what affects relative paths, in the shell's order: a redirection is opened
//! before its command changes the directory, and the changes of a subshell end with it.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use tree_sitter::{Node, Tree};

use super::file_use::{FileUse, asks_about_file, compares_files};
use super::found::{Found, Redirect, Setting, Step, Survey};
use super::word::{self, Word, in_backquotes, is_word, source};

/// Parents of words that may name a file without being an argument of a command.
const HOLDERS: [&str; 9] = [
    "array",
    "binary_expression",
    "case_statement",
    "file_redirect",
    "for_statement",
    "herestring_redirect",
    "test_command",
    "unary_expression",
    "variable_assignment",
];

/// Context of the nodes below a node.
#[derive(Debug, Clone, Copy, Default)]
struct Frame<'t> {
    parent: &'t str,
    /// In a subprocess: a subshell, a pipeline or a substitution.
    apart: bool,
    /// In a here-document without expansion.
    verbatim: bool,
    /// In a here-document with expansion.
    expanded: bool,
    /// In text that was already searched for backquotes.
    searched: bool,
    /// The command that runs after the commands inside of it.
    run: Option<usize>,
    /// The step whose state is restored after the node.
    back: Option<usize>,
    /// The first step of the named child that was visited last.
    part: usize,
    /// Start of the pipeline around the node.
    pipe: Option<usize>,
    /// Not the first command of its pipeline.
    fed: bool,
    /// The name of the function around the node.
    function: Option<Node<'t>>,
}

/// Limit of the bytes copied from a text: `COPIES` times its length plus `ANY_COPIED`. A quoted
/// word contains its substitutions, and these may contain quoted words again, so nesting multiplies
/// copies.
const COPIES: usize = 32;
const ANY_COPIED: usize = 64 * 1024;

struct Walk<'a> {
    text: &'a str,
    survey: Survey,
    /// Bytes copied so far.
    copied: Cell<usize>,
    /// Arguments after a redirection, by the id of their command's node.
    late: HashMap<usize, Vec<Word>>,
    /// Files that a command's redirections open, by the id of its node.
    opened: HashMap<usize, Vec<Step>>,
    /// Input of a command from a here-document or here-string, by the id of its node.
    inputs: HashMap<usize, String>,
}

/// `None` if more would have to be copied than the limit allows.
pub fn survey(tree: &Tree, text: &str) -> Option<Survey> {
    let mut walk = Walk {
        text,
        survey: Survey::default(),
        copied: Cell::new(0),
        late: HashMap::new(),
        opened: HashMap::new(),
        inputs: HashMap::new(),
    };
    let mut cursor = tree.walk();
    let mut frames = vec![Frame::default()];
    loop {
        if walk.is_too_much() {
            return None;
        }
        let node = cursor.node();
        let began = walk.survey.steps.len();
        if let Some(frame) = frames.last_mut() {
            if node.kind() == "&" {
                // The command before `&` runs in a subshell.
                walk.survey.steps.push(Step::Back(frame.part));
            } else if node.is_named() {
                frame.part = began;
            }
        }
        let frame = frames.last().copied().unwrap_or_default();
        let own = Frame { run: None, back: (frame.parent == "pipeline").then_some(began), part: began, ..frame };
        if let Some(below) = walk.process(node, own) {
            if cursor.goto_first_child() {
                frames.push(Frame { parent: node.kind(), ..below });
                continue;
            }
            walk.leave(below);
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                walk.survey.copied = walk.copied.get();
                return (!walk.is_too_much()).then_some(walk.survey);
            }
            frames.pop().into_iter().for_each(|frame| walk.leave(frame));
        }
    }
}

impl Walk<'_> {
    fn is_too_much(&self) -> bool {
        self.copied.get() > ANY_COPIED + COPIES * self.text.len()
    }

    /// Counts bytes that are about to be copied.
    fn count(&self, length: usize) {
        self.copied.set(self.copied.get() + length);
    }

    fn word(&self, node: Node<'_>) -> Word {
        self.count(2 * node.byte_range().len());
        word::word(node, self.text)
    }

    fn value(&self, node: Node<'_>) -> String {
        self.count(node.byte_range().len());
        word::value(node, self.text)
    }

    /// Collects what `node` contains and returns the context of its children; `None` to skip them.
    fn process<'t>(&mut self, node: Node<'t>, mut frame: Frame<'t>) -> Option<Frame<'t>> {
        frame.fed |= frame.parent == "pipeline" && node.is_named() && frame.pipe != Some(node.start_byte());
        if HOLDERS.contains(&frame.parent) && is_word(node) {
            let word = self.value(node);
            self.survey.words.push(word);
        }
        match node.kind() {
            "command" => return Some(Frame { run: self.take_command(node, frame), ..frame }),
            "file_redirect" => self.take_redirect(node),
            "declaration_command" | "unset_command" => self.take_declaration(node, frame),
            "redirected_statement" => {
                self.take_late_arguments(node);
                self.take_redirections(node);
                self.take_input(node);
            }
            "function_definition" => {
                let name = node.child_by_field_name("name").filter(|_| !frame.apart);
                let name = name.map(|name| self.value(name));
                self.survey.functions.extend(name);
                self.take_redirections(node);
                let function = node.child_by_field_name("name");
                return Some(Frame { back: Some(frame.part), function, ..frame });
            }
            "variable_assignment" => self.take_assignment(node, frame),
            "for_statement" => self.take_loop(node),
            "unary_expression" | "binary_expression" => self.take_test(node),
            "subshell" => return Some(Frame { apart: true, back: Some(frame.part), ..frame }),
            "pipeline" => return Some(Frame { apart: true, pipe: Some(node.start_byte()), ..frame }),
            "process_substitution" => return Some(substitution(frame)),
            "command_substitution" => return self.take_substitution(node, frame),
            "heredoc_redirect" => {
                let mut cursor = node.walk();
                let start = node.children(&mut cursor).find(|child| child.kind() == "heredoc_start");
                let verbatim = start.is_some_and(|start| source(start, self.text).contains(['\'', '"', '\\']));
                return Some(Frame { verbatim, ..frame });
            }
            "heredoc_body" if frame.verbatim => return None,
            "heredoc_body" => {
                self.take_backquotes(node, frame);
                return Some(Frame { expanded: true, searched: true, ..frame });
            }
            "expansion" => {
                self.take_backquotes(node, frame);
                return Some(Frame { searched: true, ..frame });
            }
            "word" | "regex" | "extglob_pattern" if node.child_count() == 0 => self.take_backquotes(node, frame),
            _ => {}
        }
        Some(frame)
    }

    fn leave(&mut self, frame: Frame<'_>) {
        self.survey.steps.extend(frame.run.map(Step::Run));
        self.survey.steps.extend(frame.back.map(Step::Back));
    }

    fn take_command(&mut self, node: Node<'_>, frame: Frame<'_>) -> Option<usize> {
        self.take_redirections(node);
        let opened = self.opened.remove(&node.id()).unwrap_or_default();
        self.survey.steps.extend(opened);
        let name = node.child_by_field_name("name")?;
        let mut cursor = node.walk();
        let mut words: Vec<Node<'_>> =
            std::iter::once(name).chain(node.children_by_field_name("argument", &mut cursor)).collect();
        if let Some(next) = words.windows(2).position(|pair| self.ends_between(pair[0], pair[1])) {
            // In some lists the grammar parses the next line as arguments of this command. For the
            // shell it is a separate command after this one; `+ 1` because this one is not in the
            // list yet.
            let begin = words[next + 1].start_byte();
            let row = words[next + 1].start_position().row;
            let rest = self.text.get(begin..node.end_byte()).unwrap_or_default();
            self.take_text_after(self.survey.commands.len() + 1, rest.to_owned(), row);
            words.truncate(next + 1);
        }
        let mut words: VecDeque<Word> = self.values(words.into_iter()).into();
        words.extend(self.late.remove(&node.id()).unwrap_or_default());
        let mut name = words.pop_front()?;
        // `time` is a reserved word, which the grammar parses as a command.
        while name.plain == "time"
            && let Some(next) = words.pop_front()
        {
            name = next;
            if name.plain == "-p" {
                "time".clone_into(&mut name.plain);
            }
        }
        let arguments = words.into();
        let setting = self.setting(node, frame);
        self.survey.commands.push(Found { name, arguments, setting });
        Some(self.survey.commands.len() - 1)
    }

    /// True if a line, and therefore the command, ends between two words.
    fn ends_between(&self, one: Node<'_>, other: Node<'_>) -> bool {
        let between = self.text.get(one.end_byte()..other.start_byte()).unwrap_or_default();
        between.replace("\\\n", "").contains('\n')
    }

    /// The words of these nodes. The grammar splits a word at a line continuation inside of it.
    fn values<'t>(&self, nodes: impl Iterator<Item = Node<'t>>) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut end = 0;
        for node in nodes {
            let between = self.text.get(end..node.start_byte()).unwrap_or_default();
            let word = self.word(node);
            match words.last_mut() {
                Some(last) if is_continued(between) => {
                    last.plain.push_str(&word.plain);
                    last.spelled.push_str(&word.spelled);
                }
                _ => words.push(word),
            }
            end = node.end_byte();
        }
        words
    }

    fn take_declaration(&mut self, node: Node<'_>, frame: Frame<'_>) {
        let mut cursor = node.walk();
        let mut words = node.children(&mut cursor).map(|node| self.word(node));
        let name = words.next().unwrap_or_default();
        let arguments = words.collect();
        let setting = self.setting(node, frame);
        self.survey.commands.push(Found { name, arguments, setting });
    }

    fn setting(&mut self, node: Node<'_>, frame: Frame<'_>) -> Setting {
        let mut cursor = node.walk();
        let given = node.children(&mut cursor).find_map(|child| self.given(child));
        let input = self.inputs.remove(&node.id()).or(given);
        let within = frame.function.map(|function| self.value(function));
        Setting { row: node.start_position().row, piped: frame.pipe.is_some(), fed: frame.fed, input, within }
    }

    /// A here-document or here-string of a statement is the input of its last command.
    fn take_input(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let given = node.children_by_field_name("redirect", &mut cursor).find_map(|redirect| self.given(redirect));
        if let (Some(given), Some(command)) = (given, node.child_by_field_name("body").and_then(last_command)) {
            self.inputs.insert(command.id(), given);
        }
    }

    fn given(&self, redirect: Node<'_>) -> Option<String> {
        let mut cursor = redirect.walk();
        match redirect.kind() {
            "heredoc_redirect" => {
                let body = redirect.children(&mut cursor).find(|child| child.kind() == "heredoc_body")?;
                self.count(body.byte_range().len());
                Some(source(body, self.text).to_owned())
            }
            "herestring_redirect" => redirect.named_child(0).map(|given| self.value(given)),
            _ => None,
        }
    }

    fn take_redirect(&mut self, node: Node<'_>) {
        let Some(target) = node.child_by_field_name("destination") else { return };
        let target = self.value(target);
        let mut cursor = node.walk();
        let writes = node.children(&mut cursor).any(|child| !child.is_named() && child.kind().contains('>'));
        self.survey.redirects.push(Redirect { target, writes, row: node.start_position().row });
    }

    /// The files that a statement's redirections open. In `cd a && ls > b` they belong to the last
    /// command.
    fn take_redirections(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut opened = Vec::new();
        for redirect in node.children_by_field_name("redirect", &mut cursor) {
            opened.extend(self.target(redirect));
            if redirect.kind() == "heredoc_redirect" {
                let mut cursor = redirect.walk();
                let inner = redirect.children_by_field_name("redirect", &mut cursor);
                opened.extend(inner.filter_map(|inner| self.target(inner)));
            }
        }
        if opened.is_empty() {
            return;
        }
        match node.child_by_field_name("body").and_then(last_command) {
            Some(command) => self.opened.entry(command.id()).or_default().extend(opened),
            None => self.survey.steps.extend(opened),
        }
    }

    fn target(&self, redirect: Node<'_>) -> Option<Step> {
        let is_file = |node: &Node<'_>| redirect.kind() == "file_redirect" && node.kind() != "number";
        let mut cursor = redirect.walk();
        let destinations = redirect.children_by_field_name("destination", &mut cursor);
        let word = self.values(destinations.take(1).filter(is_file)).pop()?.spelled;
        let mut cursor = redirect.walk();
        let mut operators = redirect.children(&mut cursor).filter(|child| !child.is_named());
        // `<>` reads as well.
        let usage =
            if operators.any(|operator| operator.kind().contains('<')) { FileUse::Read } else { FileUse::Written };
        Some(Step::Open { word, usage })
    }

    fn take_assignment(&mut self, node: Node<'_>, frame: Frame<'_>) {
        let (Some(name), Some(value)) = (node.child_by_field_name("name"), node.child_by_field_name("value")) else {
            return;
        };
        if name.kind() != "variable_name" {
            return;
        }
        let mut cursor = node.walk();
        // With `+=`, and as a loop counter, the variable gets other values than this one.
        let changes =
            frame.parent == "c_style_for_statement" || node.children(&mut cursor).any(|child| child.kind() == "+=");
        let mut cursor = value.walk();
        let values = match value.kind() {
            _ if changes => Vec::new(),
            "array" => self.values(value.named_children(&mut cursor)),
            _ => vec![self.word(value)],
        };
        if let [only] = values.as_slice() {
            let name = source(name, self.text).to_owned();
            self.survey.assignments.push((name, only.plain.clone()));
        }
        self.assign(name, values);
    }

    fn take_loop(&mut self, node: Node<'_>) {
        let Some(name) = node.child_by_field_name("variable") else { return };
        let mut cursor = node.walk();
        let values = self.values(node.children_by_field_name("value", &mut cursor));
        self.assign(name, values);
    }

    fn assign(&mut self, name: Node<'_>, values: Vec<Word>) {
        let name = source(name, self.text).to_owned();
        let values = values.into_iter().map(|word| word.spelled).collect();
        self.survey.steps.push(Step::Assign { name, values });
    }

    /// The files that `[` and `[[` examine.
    fn take_test(&mut self, node: Node<'_>) {
        let Some(operator) = node.child_by_field_name("operator") else { return };
        let operator = source(operator, self.text);
        let mut files = Vec::new();
        if asks_about_file(operator) {
            // The grammar parses `-f a -a b` as `-f (a -a b)`.
            let mut operand = node.named_child(1);
            while let Some(sum) = operand.filter(|operand| operand.kind() == "binary_expression") {
                operand = sum.child_by_field_name("left");
            }
            files.extend(operand);
        } else if compares_files(operator) {
            files.extend([node.child_by_field_name("left"), node.child_by_field_name("right")].into_iter().flatten());
        }
        let opened: Vec<Step> =
            files.into_iter().map(|file| Step::Open { word: self.word(file).spelled, usage: FileUse::Read }).collect();
        self.survey.steps.extend(opened);
    }

    fn take_text(&mut self, text: String, row: usize) {
        self.take_text_after(self.survey.commands.len(), text, row);
    }

    fn take_text_after(&mut self, commands: usize, text: String, row: usize) {
        self.count(text.len());
        self.survey.text_rows.push(row);
        self.survey.steps.push(Step::Text(self.survey.texts.len()));
        self.survey.texts.push(text);
        self.survey.before_texts.push(commands);
    }

    /// Arguments may follow a redirection; the grammar adds them to the redirection.
    fn take_late_arguments(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut late = Vec::new();
        for redirect in node.children_by_field_name("redirect", &mut cursor) {
            let mut cursor = redirect.walk();
            // The first destination is the target of the redirection.
            let (field, targets) =
                if redirect.kind() == "file_redirect" { ("destination", 1) } else { ("argument", 0) };
            late.extend(self.values(redirect.children_by_field_name(field, &mut cursor)).into_iter().skip(targets));
        }
        if late.is_empty() {
            return;
        }
        match node.child_by_field_name("body").and_then(last_command) {
            Some(command) => {
                let known = self.late.entry(command.id()).or_default();
                known.splice(0..0, late);
            }
            None => self.survey.words.extend(late.into_iter().map(|word| word.plain)),
        }
    }

    fn take_substitution<'t>(&mut self, node: Node<'t>, frame: Frame<'t>) -> Option<Frame<'t>> {
        let written = source(node, self.text);
        if let Some(inner) = written.strip_prefix('`') {
            // Text in nested backquotes has one more level of backslashes, so it is parsed without
            // that level.
            let inner = inner.strip_suffix('`').unwrap_or(inner);
            self.take_text(in_backquotes(inner), node.start_position().row);
            return None;
        }
        if frame.expanded && written.starts_with("$((") {
            // In here-documents the grammar parses an arithmetic expansion as a command.
            self.take_text(format!(": {written}"), node.start_position().row);
            return None;
        }
        Some(substitution(frame))
    }

    fn take_backquotes(&mut self, node: Node<'_>, frame: Frame<'_>) {
        let written = source(node, self.text);
        if frame.searched || !written.contains('`') {
            return;
        }
        let mut inside: Option<String> = None;
        let (mut row, mut begin) = (node.start_position().row, 0);
        let mut characters = written.chars();
        while let Some(character) = characters.next() {
            row += usize::from(character == '\n');
            match (character, &mut inside) {
                ('`', Some(text)) => {
                    self.take_text(in_backquotes(text), begin);
                    inside = None;
                }
                ('`', None) => (inside, begin) = (Some(String::new()), row),
                ('\\', Some(text)) => text.extend(std::iter::once('\\').chain(characters.next())),
                ('\\', None) => drop(characters.next()),
                (character, Some(text)) => text.push(character),
                (_, None) => {}
            }
        }
        if let Some(text) = inside {
            self.take_text(in_backquotes(&text), begin);
        }
    }
}

fn substitution(frame: Frame<'_>) -> Frame<'_> {
    Frame { apart: true, expanded: false, back: Some(frame.part), pipe: None, fed: false, ..frame }
}

fn is_continued(between: &str) -> bool {
    !between.is_empty() && between.replace("\\\n", "").is_empty()
}

/// The command to which a redirection at the end of a statement applies.
fn last_command(mut node: Node<'_>) -> Option<Node<'_>> {
    loop {
        node = match node.kind() {
            "command" => return Some(node),
            "redirected_statement" => node.child_by_field_name("body")?,
            "pipeline" | "list" | "negated_command" => {
                let last = u32::try_from(node.named_child_count().checked_sub(1)?).ok()?;
                node.named_child(last)?
            }
            _ => return None,
        };
    }
}
