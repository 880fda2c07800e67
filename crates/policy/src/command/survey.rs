//! Every command of one text, where it stands in the tree of it.
//!
//! The tree is walked once, from its beginning to its end. The grammar leaves some text unread that the shell reads:
//! backquotes in here-documents and in defaults of variables. Such text is handed back, to be read as a text of its own.

use std::collections::HashMap;

use tree_sitter::{Node, Tree};

use super::word::{source, unescape, value};

/// Whose children are words that may name a file without being a command's arguments.
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

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    /// The line that it stands on, from 0.
    pub(crate) row: usize,
    /// Whether it stands in a pipe, and whether there is something before it there.
    pub(crate) piped: bool,
    pub(crate) fed: bool,
    /// What a here-document or a here-string gives it to read.
    pub(crate) input: Option<String>,
    /// The function that it is a part of.
    pub(crate) within: Option<String>,
}

/// A file that is opened for a command.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) target: String,
    pub(crate) writes: bool,
    /// From 0.
    pub(crate) row: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) commands: Vec<Found>,
    /// Words beside commands: targets of redirections, values, what is tested.
    pub(crate) words: Vec<String>,
    /// Names that are functions afterwards, in this shell.
    pub(crate) functions: Vec<String>,
    /// Texts that the shell runs and the grammar did not read.
    pub(crate) texts: Vec<String>,
    pub(crate) redirects: Vec<Redirect>,
    /// Variables and what is assigned to them.
    pub(crate) assignments: Vec<(String, String)>,
}

/// What holds for everything below a node.
#[derive(Debug, Clone, Copy, Default)]
struct Frame<'t> {
    parent: &'t str,
    /// In a process of its own.
    apart: bool,
    /// In a here-document that is taken as it is.
    verbatim: bool,
    /// In a here-document that is expanded.
    expanded: bool,
    /// In text whose backquotes were looked for already.
    searched: bool,
    /// In a pipe that begins here.
    pipe: Option<usize>,
    /// With something before it in the pipe.
    fed: bool,
    /// The name of the function around it.
    function: Option<Node<'t>>,
}

struct Walk<'a> {
    text: &'a str,
    survey: Survey,
    /// Arguments that stand behind a redirection, by the command that they belong to.
    late: HashMap<usize, Vec<String>>,
    /// What commands are given to read, likewise.
    inputs: HashMap<usize, String>,
}

pub(crate) fn survey(tree: &Tree, text: &str) -> Survey {
    let mut walk = Walk { text, survey: Survey::default(), late: HashMap::new(), inputs: HashMap::new() };
    let mut cursor = tree.walk();
    let mut frames = vec![Frame::default()];
    loop {
        let node = cursor.node();
        let frame = frames.last().copied().unwrap_or_default();
        if let Some(below) = walk.visit(node, frame)
            && cursor.goto_first_child()
        {
            frames.push(Frame { parent: node.kind(), ..below });
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return walk.survey;
            }
            frames.pop();
        }
    }
}

impl Walk<'_> {
    /// Takes what a node says, and gives what holds below it; nothing where nothing below is to be looked at.
    fn visit<'t>(&mut self, node: Node<'t>, mut frame: Frame<'t>) -> Option<Frame<'t>> {
        if frame.parent == "pipeline" && node.is_named() && frame.pipe != Some(node.start_byte()) {
            frame.fed = true;
        }
        if HOLDERS.contains(&frame.parent) && is_word(node) {
            self.survey.words.push(value(node, self.text));
        }
        match node.kind() {
            "command" => self.take_command(node, frame),
            "file_redirect" => self.take_redirect(node),
            "variable_assignment" => self.take_assignment(node),
            "declaration_command" | "unset_command" => self.take_declaration(node, frame),
            "redirected_statement" => self.take_late_arguments(node),
            "function_definition" => {
                let function = node.child_by_field_name("name");
                if !frame.apart {
                    self.survey.functions.extend(function.map(|name| value(name, self.text)));
                }
                return Some(Frame { function, ..frame });
            }
            "subshell" => return Some(Frame { apart: true, ..frame }),
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

    fn take_command(&mut self, node: Node<'_>, frame: Frame<'_>) {
        let Some(name) = node.child_by_field_name("name") else { return };
        let mut cursor = node.walk();
        let words = std::iter::once(name).chain(node.children_by_field_name("argument", &mut cursor));
        let mut arguments = self.values(words);
        let mut name = arguments.remove(0);
        arguments.extend(self.late.remove(&node.id()).unwrap_or_default());
        // A word of the shell's own, which the grammar takes for a command.
        while name == "time" && !arguments.is_empty() {
            name = arguments.remove(0);
            if name == "-p" {
                name = "time".to_owned();
            }
        }
        let mut cursor = node.walk();
        let given = node.children(&mut cursor).find(|child| child.kind() == "herestring_redirect");
        let given = given.and_then(|given| given.named_child(0)).map(|given| value(given, self.text));
        let input = self.inputs.remove(&node.id()).or(given);
        self.found(name, arguments, input, node, frame);
    }

    fn found(&mut self, name: String, arguments: Vec<String>, input: Option<String>, node: Node<'_>, frame: Frame<'_>) {
        let within = frame.function.map(|function| value(function, self.text));
        let (row, piped, fed) = (node.start_position().row, frame.pipe.is_some(), frame.fed);
        self.survey.commands.push(Found { name, arguments, row, piped, fed, input, within });
    }

    fn take_redirect(&mut self, node: Node<'_>) {
        let Some(target) = node.child_by_field_name("destination") else { return };
        let target = value(target, self.text);
        let mut cursor = node.walk();
        let writes = node.children(&mut cursor).any(|child| !child.is_named() && child.kind().contains('>'));
        self.survey.redirects.push(Redirect { target, writes, row: node.start_position().row });
    }

    fn take_assignment(&mut self, node: Node<'_>) {
        let parts = (node.child_by_field_name("name"), node.child_by_field_name("value"));
        if let (Some(name), Some(assigned)) = parts {
            self.survey.assignments.push((source(name, self.text).to_owned(), value(assigned, self.text)));
        }
    }

    /// The words that these nodes are. A line that goes on in the middle of a word is taken for the word's end by the
    /// grammar.
    fn values<'t>(&self, nodes: impl Iterator<Item = Node<'t>>) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut end = 0;
        for node in nodes {
            let between = self.text.get(end..node.start_byte()).unwrap_or_default();
            let word = value(node, self.text);
            match words.last_mut() {
                Some(last) if is_continued(between) => last.push_str(&word),
                _ => words.push(word),
            }
            end = node.end_byte();
        }
        words
    }

    fn take_declaration(&mut self, node: Node<'_>, frame: Frame<'_>) {
        let mut cursor = node.walk();
        let mut words = node.children(&mut cursor).map(|word| value(word, self.text));
        let name = words.next().unwrap_or_default();
        let arguments = words.collect();
        self.found(name, arguments, None, node, frame);
    }

    /// Arguments may stand behind a redirection; the grammar counts them to it.
    fn take_late_arguments(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut late = Vec::new();
        let mut input = None;
        for redirect in node.children_by_field_name("redirect", &mut cursor) {
            let mut cursor = redirect.walk();
            // What a file is redirected to comes first.
            let (field, targets) =
                if redirect.kind() == "file_redirect" { ("destination", 1) } else { ("argument", 0) };
            input = self.input(redirect).or(input);
            late.extend(self.values(redirect.children_by_field_name(field, &mut cursor)).into_iter().skip(targets));
        }
        if let (Some(input), Some(command)) = (input, node.child_by_field_name("body").and_then(last_command)) {
            self.inputs.insert(command.id(), input);
        }
        if late.is_empty() {
            return;
        }
        match node.child_by_field_name("body").and_then(last_command) {
            Some(command) => {
                let known = self.late.entry(command.id()).or_default();
                known.splice(0..0, late);
            }
            None => self.survey.words.extend(late),
        }
    }

    fn input(&self, redirect: Node<'_>) -> Option<String> {
        let mut cursor = redirect.walk();
        match redirect.kind() {
            "heredoc_redirect" => {
                let body = redirect.children(&mut cursor).find(|child| child.kind() == "heredoc_body")?;
                Some(source(body, self.text).to_owned())
            }
            "herestring_redirect" => redirect.named_child(0).map(|given| value(given, self.text)),
            _ => None,
        }
    }

    fn take_substitution<'t>(&mut self, node: Node<'t>, frame: Frame<'t>) -> Option<Frame<'t>> {
        let written = source(node, self.text);
        if let Some(inner) = written.strip_prefix('`') {
            // What is quoted once more in backquotes is a text of its own when one layer is off.
            let inner = inner.strip_suffix('`').unwrap_or(inner);
            self.survey.texts.push(in_backquotes(inner));
            return None;
        }
        if frame.expanded && written.starts_with("$((") {
            // In here-documents the grammar takes a sum for a command.
            self.survey.texts.push(format!(": {written}"));
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
        let mut characters = written.chars();
        while let Some(character) = characters.next() {
            match (character, &mut inside) {
                ('`', Some(text)) => {
                    self.survey.texts.push(in_backquotes(text));
                    inside = None;
                }
                ('`', None) => inside = Some(String::new()),
                ('\\', Some(text)) => text.extend(std::iter::once('\\').chain(characters.next())),
                ('\\', None) => drop(characters.next()),
                (character, Some(text)) => text.push(character),
                (_, None) => {}
            }
        }
        self.survey.texts.extend(inside.map(|text| in_backquotes(&text)));
    }
}

fn substitution(frame: Frame<'_>) -> Frame<'_> {
    Frame { apart: true, expanded: false, pipe: None, fed: false, ..frame }
}

fn in_backquotes(written: &str) -> String {
    unescape(written, |character| matches!(character, '$' | '`' | '\\'))
}

fn is_continued(between: &str) -> bool {
    !between.is_empty() && between.replace("\\\n", "").is_empty()
}

fn is_word(node: Node<'_>) -> bool {
    matches!(node.kind(), "word" | "string" | "raw_string" | "ansi_c_string" | "concatenation" | "translated_string")
}

/// The command that a redirection at the end of a statement belongs to.
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
