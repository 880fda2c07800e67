//! Judges one command or one redirection by the rules.

use super::INDEX;
use super::commands::Command;
use super::tools::{Deed, deed, verb};
use super::words::{
    goes_nowhere, is_delicate, is_device, is_secret, is_socket, is_system, names_everything, shell_alias,
};
use crate::findings::Findings;
use crate::level::Content;
use crate::shell_syntax::{Printed, is_builtin, paths, plain_name};

pub(super) fn redirect(target: &str, writes: bool, line: usize, findings: &mut Findings) {
    let mut add = |id: &str| findings.add_by_id(&INDEX, id, line);
    if is_socket(target) {
        add("sh.exec.remote");
    } else if !writes {
        if is_secret(target) {
            add("sh.read.secret");
        }
    } else if is_device(target) {
        add("sh.wipe.redirect");
    } else if is_delicate(target) {
        add("sh.write.system");
    } else if !goes_nowhere(target) {
        add("sh.write");
    }
}

pub(super) fn command(command: &Command, findings: &mut Findings) {
    let name = name_of(&command.name);
    let found: Vec<&str> = match name {
        _ if is_dynamic(&command.name) => vec!["sh.exec.dynamic"],
        "rm" => vec![removal(command)],
        "find" | "fd" => search(command),
        "dd" => vec![copy_of_blocks(command)],
        name if name == "mkfs" || name.starts_with("mkfs.") || name == "mke2fs" || name.starts_with("mkfs_") => {
            vec!["sh.wipe.format"]
        }
        "eval" => vec!["sh.exec.eval"],
        "source" | "." => script(command),
        "bash" | "sh" | "dash" | "zsh" | "ksh" | "ash" | "fish" | "rbash" => shell(command, findings),
        "node" | "nodejs" | "deno" | "bun" => interpreter(command, Content::Javascript, findings),
        name if is_python(name) => python(command, findings),
        "perl" | "ruby" | "php" | "lua" => one_liner(command),
        "awk" | "gawk" | "mawk" if command.arguments.iter().any(|word| runs_from_awk(word)) => {
            vec!["sh.exec.interpreter"]
        }
        "sed" if command.has_letter(&['i']) || command.has(&["--in-place"]) => vec!["sh.write"],
        "git" => git(command),
        "nc" | "ncat" | "netcat" | "socat" if is_remote_shell(command) => vec!["sh.exec.remote"],
        "printenv" => vec!["sh.environment"],
        "env" if command.arguments.iter().all(|word| word.starts_with('-')) => vec!["sh.environment"],
        "export" | "declare" | "set" if command.arguments.is_empty() || command.has(&["-p", "-x"]) => {
            vec!["sh.environment"]
        }
        "tar" | "unzip" if command.has_letter(&['t', 'l']) => Vec::new(),
        "tee" | "cp" | "mv" | "ln" | "install" | "touch" | "mkdir" | "truncate" | "shred" => {
            vec![target_of(name, command)]
        }
        name if is_builtin(name) => Vec::new(),
        name => by_deed(name, command),
    };
    for id in found {
        findings.add_by_id(&INDEX, id, command.line());
    }
    let named = paths(name, &command.arguments, Printed::AreTexts);
    if named.into_iter().any(is_secret) {
        findings.add_by_id(&INDEX, "sh.read.secret", command.line());
    }
}

/// The program's name without a directory of system programs, including those of administrators.
fn name_of(name: &str) -> &str {
    let plain = plain_name(name);
    ["/usr/sbin/", "/sbin/", "/usr/local/sbin/"].iter().find_map(|place| plain.strip_prefix(place)).unwrap_or(plain)
}

/// A name that is known only at run time.
fn is_dynamic(name: &str) -> bool {
    name.contains(['$', '`']) || name == "{}"
}

fn is_python(name: &str) -> bool {
    name.strip_prefix("python")
        .or_else(|| name.strip_prefix("pypy"))
        .is_some_and(|version| version.chars().all(|character| character.is_ascii_digit() || character == '.'))
}

fn by_deed(name: &str, command: &Command) -> Vec<&'static str> {
    let id = match deed(name, &command.arguments) {
        Deed::Nothing => return Vec::new(),
        Deed::Writes => "sh.write",
        Deed::Deletes => "sh.delete",
        Deed::Network => "sh.network",
        Deed::System => "sh.system",
        Deed::Container => "sh.container",
        Deed::Signals => "sh.signal",
        Deed::Permissions => "sh.permission",
        Deed::Privilege => "sh.privilege",
        Deed::Disk => "sh.wipe.disk",
        Deed::Unknown if command.name.contains('/') => "sh.script",
        Deed::Unknown => "sh.unknown",
    };
    vec![id]
}

fn removal(command: &Command) -> &'static str {
    let recursive = command.has_letter(&['r', 'R']) || command.has(&["--recursive", "--no-preserve-root"]);
    if recursive && command.operands().any(names_everything) {
        "sh.wipe.everything"
    } else if recursive && (command.operands().any(is_system) || command.has(&["--no-preserve-root"])) {
        "sh.wipe.system"
    } else {
        "sh.delete"
    }
}

fn search(command: &Command) -> Vec<&'static str> {
    let is_rm = |word: &String| name_of(word) == "rm" || word == "-delete";
    if !command.arguments.iter().any(is_rm) {
        return Vec::new();
    }
    let begins = command.arguments.iter().take_while(|word| !word.starts_with('-'));
    let narrowed = command.has(&["-name", "-iname", "-path", "-mtime", "-size", "-regex", "-newer", "-mmin", "-empty"]);
    match (begins.into_iter().any(|word| names_everything(word)), narrowed) {
        (true, false) => vec!["sh.wipe.everything"],
        _ => vec!["sh.delete"],
    }
}

fn copy_of_blocks(command: &Command) -> &'static str {
    let mut targets = command.arguments.iter().filter_map(|word| word.strip_prefix("of="));
    if targets.any(is_device) { "sh.wipe.device" } else { "sh.write" }
}

fn script(command: &Command) -> Vec<&'static str> {
    match command.arguments.first() {
        Some(given) if given.contains("<(") || given.starts_with("/dev/") => vec!["sh.exec.pipe"],
        _ => vec!["sh.script"],
    }
}

fn is_question(command: &Command) -> bool {
    command.has(&["--version", "-V", "-v", "--help", "-h"]) && command.operands().next().is_none()
}

fn shell(command: &Command, findings: &mut Findings) -> Vec<&'static str> {
    // The text is assessed as a nested one.
    let runs_text = !crate::shell_syntax::follow(shell_alias(name_of(&command.name)), &command.arguments).is_empty();
    if runs_text || is_question(command) {
        return Vec::new();
    }
    reads_code(command, Content::Shell, findings)
}

/// An interpreter that gets a script by name or on standard input.
fn reads_code(command: &Command, content: Content, findings: &mut Findings) -> Vec<&'static str> {
    let operand = command.operands().next().filter(|word| *word != "/dev/stdin");
    match (operand, &command.input) {
        (Some(word), _) if word.contains("<(") || word.starts_with("/dev/fd") => vec!["sh.exec.pipe"],
        (Some(_), _) if !command.has(&["-", "-s"]) => vec!["sh.script"],
        (_, Some(text)) => {
            findings.nest(content, text, command.lines.within(1));
            Vec::new()
        }
        (_, None) if command.fed => vec!["sh.exec.pipe"],
        _ => vec!["sh.script"],
    }
}

fn option_value<'a>(command: &'a Command, options: &[&str]) -> Option<&'a str> {
    let at = command.arguments.iter().position(|word| options.contains(&word.as_str()))?;
    command.arguments.get(at + 1).map(String::as_str)
}

fn interpreter(command: &Command, content: Content, findings: &mut Findings) -> Vec<&'static str> {
    if let Some(code) = option_value(command, &["-e", "--eval", "-p", "--print", "-pe", "eval"]) {
        findings.nest(content, code, command.lines);
        return Vec::new();
    }
    if is_question(command) {
        return Vec::new();
    }
    reads_code(command, content, findings)
}

fn python(command: &Command, findings: &mut Findings) -> Vec<&'static str> {
    // `-c` may be combined with other letters: `-Sc`.
    let takes_code = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let first = command.arguments.iter().take_while(|word| word.starts_with('-')).position(takes_code);
    if let Some(code) = first.and_then(|at| command.arguments.get(at + 1)) {
        findings.nest(Content::Python, code, command.lines);
        return Vec::new();
    }
    match option_value(command, &["-m"]) {
        Some("pip" | "ensurepip" | "http.server" | "smtpd" | "twine" | "webbrowser" | "SimpleHTTPServer") => {
            vec!["sh.network"]
        }
        Some("json.tool" | "this" | "calendar" | "tabnanny" | "tokenize" | "ast" | "dis") => Vec::new(),
        Some(_) => vec!["sh.script"],
        None => interpreter(command, Content::Python, findings),
    }
}

fn one_liner(command: &Command) -> Vec<&'static str> {
    let Some(code) =
        option_value(command, &["-e", "-r", "-pe", "-ne", "-i", "-pie", "-lne", "-lpe", "-nle", "-ple", "-E"])
    else {
        return match command.operands().next() {
            _ if is_question(command) => Vec::new(),
            // Without a script it runs its standard input.
            None if command.fed => vec!["sh.exec.pipe"],
            _ => vec!["sh.script"],
        };
    };
    let runs = ["system", "exec", "`", "popen", "fork", "socket", "Socket", "eval", "unlink", "qx"];
    if runs.iter().any(|word| code.contains(word)) { vec!["sh.exec.interpreter"] } else { vec!["sh.script"] }
}

fn runs_from_awk(program: &str) -> bool {
    program.contains("system(")
        || program.contains("|getline")
        || program.contains("| getline")
        || program.contains("/inet/")
}

fn is_remote_shell(command: &Command) -> bool {
    command.has(&["-e", "-c", "--exec", "--sh-exec"])
        || command.arguments.iter().any(|word| {
            let word = word.to_ascii_lowercase();
            word.starts_with("exec:") || word.starts_with("system:")
        })
}

fn git(command: &Command) -> Vec<&'static str> {
    let verb = verb("git", &command.arguments);
    match verb {
        "push" => vec!["sh.git.push"],
        "clean" => vec!["sh.delete"],
        "reset" if command.has(&["--hard"]) => vec!["sh.delete"],
        "branch" | "tag" | "stash" | "remote" | "config" => {
            let changes = command
                .has(&["-D", "-d", "-m", "add", "set-url", "remove", "drop", "clear", "pop", "--global"])
                || (verb == "config" && command.operands().count() > 2);
            if changes { vec!["sh.write"] } else { Vec::new() }
        }
        _ => match deed("git", &command.arguments) {
            Deed::Unknown => vec!["sh.write"],
            _ => by_deed("git", command),
        },
    }
}

/// The finding for a command that writes to a target.
fn target_of(name: &str, command: &Command) -> &'static str {
    let deletes = matches!(name, "shred" | "truncate");
    let targets: Vec<&str> = match name {
        "cp" | "mv" | "ln" | "install" => command.operands().last().into_iter().collect(),
        _ => command.operands().collect(),
    };
    if targets.iter().any(|target| is_device(target)) {
        "sh.wipe.redirect"
    } else if targets.iter().any(|target| is_delicate(target)) {
        "sh.write.system"
    } else if deletes {
        "sh.delete"
    } else {
        "sh.write"
    }
}
