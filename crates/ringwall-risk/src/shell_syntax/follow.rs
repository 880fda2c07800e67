//! The commands that a command such as `xargs` or `bash -c` runs: other words, or text for a shell.
//!
//! Only arguments are known. Commands from a pipe, a file or a variable are not followed. If the
//! command name itself comes from there, the name keeps its placeholder, which no list contains.

use super::names::plain_name;

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The words of a command, and the index of the first among the arguments.
    Words { at: usize, words: Vec<String> },
    /// Text for the same shell.
    Text(String),
    /// Text for a new shell.
    OtherShell(String),
}

/// Options of a command that precede the words of the command it runs.
struct Options {
    /// Letters with a value, in the same word or as the next one.
    letters: &'static str,
    /// Long names with a value in the next word.
    names: &'static [&'static str],
}

const PLAIN: Options = Options { letters: "", names: &[] };
const XARGS: Options = Options {
    letters: "adEILnPs",
    names: &["arg-file", "delimiter", "max-args", "max-chars", "max-procs", "process-slot-var"],
};
const SUDO: Options = Options {
    letters: "aCcDghpRrtTuU",
    names: &["chdir", "chroot", "close-from", "command-timeout", "group", "host", "prompt", "role", "type", "user"],
};

pub fn follow(name: &str, arguments: &[String]) -> Vec<Next> {
    let after = |options: &Options| words(arguments, operand(arguments, options), arguments.len());
    match plain_name(name) {
        name if is_shell(name) => shell(arguments),
        "xargs" => xargs(arguments),
        "find" => find(arguments),
        "eval" => text(arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments).join(" ")),
        "trap" => trap(arguments),
        "command" if is_question(arguments) => Vec::new(),
        "command" | "builtin" | "nohup" | "setsid" | "coproc" => after(&PLAIN),
        "exec" => after(&Options { letters: "a", names: &[] }),
        "nice" => after(&Options { letters: "n", names: &["adjustment"] }),
        "stdbuf" => after(&Options { letters: "ioe", names: &["input", "output", "error"] }),
        "timeout" => {
            let first = operand(arguments, &Options { letters: "ks", names: &["kill-after", "signal"] });
            words(arguments, first + 1, arguments.len())
        }
        "sudo" => after(&SUDO),
        "doas" => after(&Options { letters: "Cu", names: &[] }),
        "env" => env(arguments),
        _ => Vec::new(),
    }
}

fn words(arguments: &[String], at: usize, end: usize) -> Vec<Next> {
    match arguments.get(at..end) {
        None | Some([]) => Vec::new(),
        Some(words) => vec![Next::Words { at, words: words.to_vec() }],
    }
}

fn text(text: String) -> Vec<Next> {
    if text.trim().is_empty() { Vec::new() } else { vec![Next::Text(text)] }
}

/// Index of the first word that is neither an option nor the value of one.
fn operand(arguments: &[String], options: &Options) -> usize {
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        at += 1;
        if argument == "--" {
            return at;
        }
        if let Some(long) = argument.strip_prefix("--") {
            // Long options may be abbreviated.
            let takes_next = options.names.iter().any(|name| name.starts_with(long));
            at += usize::from(takes_next);
        } else if let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let valued = letters.char_indices().find(|(_, letter)| options.letters.contains(*letter));
            let takes_next = valued.is_some_and(|(index, letter)| index + letter.len_utf8() == letters.len());
            at += usize::from(takes_next);
        } else {
            return at - 1;
        }
    }
    arguments.len()
}

/// `bash -c TEXT`, with any options before the text.
fn shell(arguments: &[String]) -> Vec<Next> {
    let mut reads_text = false;
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        at += 1;
        let letters = argument.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty());
        match letters {
            None if argument == "-" => break,
            None => {
                at -= 1;
                break;
            }
            Some("-") => break,
            Some("-rcfile" | "-init-file") => at += 1,
            Some(long) if long.starts_with('-') => {}
            Some(letters) => {
                reads_text |= argument.starts_with('-') && letters.contains('c');
                at += letters.matches(['o', 'O']).count();
            }
        }
    }
    match arguments.get(at).filter(|text| reads_text && !text.trim().is_empty()) {
        Some(text) => vec![Next::OtherShell(text.clone())],
        None => Vec::new(),
    }
}

fn xargs(arguments: &[String]) -> Vec<Next> {
    let at = operand(arguments, &XARGS).min(arguments.len());
    let mark = replaced(&arguments[..at]).filter(|mark| !mark.is_empty());
    let mut found = words(arguments, at, arguments.len());
    if let Some(Next::Words { words, .. }) = found.first_mut()
        && let Some(mark) = mark
    {
        fill_in(words, &mark);
        if let Some(name) = words.first_mut().filter(|name| name.contains(&mark)) {
            // `xargs` reads the name from its input.
            "{}".clone_into(name);
        }
    }
    found
}

/// Replaces the placeholder in text for a shell by an unknown variable, because its value is
/// unknown.
fn fill_in(words: &mut [String], mark: &str) {
    let Some(shell) = words.iter().position(|word| is_shell(plain_name(word))) else { return };
    for word in &mut words[shell + 1..] {
        if word.contains(mark) {
            *word = word.replace(mark, "${_}");
        }
    }
}

fn is_shell(name: &str) -> bool {
    matches!(name, "bash" | "sh" | "dash" | "ash" | "ksh" | "zsh")
}

/// The placeholder that `xargs` replaces, if it has one.
fn replaced(options: &[String]) -> Option<String> {
    let mut options = options.iter();
    let mut mark = None;
    while let Some(option) = options.next() {
        if option == "-I" {
            mark = options.next().cloned();
        } else if option == "-i" || option == "--replace" {
            mark = Some("{}".to_owned());
        } else if let Some(given) = ["-I", "-i", "--replace="].iter().find_map(|prefix| option.strip_prefix(prefix)) {
            mark = Some(given.to_owned());
        }
    }
    mark
}

fn find(arguments: &[String]) -> Vec<Next> {
    let runs = |word: &String| matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(before) = arguments[at..].iter().position(runs) {
        at += before + 1;
        // The words up to `;` or `+` belong to the command, even if they look like another `-exec`.
        let length = arguments[at..].iter().position(|word| word == ";" || word == "+");
        let end = length.map_or(arguments.len(), |length| at + length);
        let mut next = words(arguments, at, end);
        if let Some(Next::Words { words, .. }) = next.first_mut() {
            fill_in(words, "{}");
        }
        found.extend(next);
        at = end;
    }
    found
}

fn trap(arguments: &[String]) -> Vec<Next> {
    let arguments = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    match arguments {
        [action, _, ..] if !matches!(action.as_str(), "-" | "-l" | "-p") => text(action.clone()),
        _ => Vec::new(),
    }
}

/// `command -v NAME` prints the path of a command and runs nothing.
fn is_question(arguments: &[String]) -> bool {
    let is_one = |word: &String| word.starts_with('-') && word.contains(['v', 'V']);
    arguments.iter().take_while(|word| word.starts_with('-')).any(is_one)
}

fn env(arguments: &[String]) -> Vec<Next> {
    if let Some(at) = arguments.iter().position(|word| word.starts_with("-S") || word.starts_with("--split-string")) {
        let given = arguments[at].trim_start_matches("-S").trim_start_matches("--split-string").trim_start_matches('=');
        let rest = arguments.get(at + 1..).unwrap_or_default().join(" ");
        return text(format!("{given} {rest}"));
    }
    let at = operand(arguments, &Options { letters: "uC", names: &["unset", "chdir"] });
    let rest = arguments.get(at..).unwrap_or_default();
    let assigned = rest.iter().take_while(|word| word.contains('=')).count();
    words(arguments, at + assigned, arguments.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(line: &str) -> Vec<String> {
        // Words are separated by a space; `_` stands for a space inside a word.
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        let show = |next| match next {
            Next::Words { words, .. } => words.join(" "),
            Next::Text(text) => format!("text {text}"),
            Next::OtherShell(text) => format!("shell {text}"),
        };
        follow(&words[0], &words[1..]).into_iter().map(show).collect()
    }

    #[test]
    fn command_is_followed_to_commands_it_runs() {
        let table: [(&str, &[&str]); 43] = [
            ("ls nc", &[]),
            ("bash -c nc_x", &["shell nc x"]),
            ("/bin/sh -ec nc", &["shell nc"]),
            ("bash -lc nc a b", &["shell nc"]),
            ("bash -o pipefail -c nc", &["shell nc"]),
            ("bash -eo pipefail -c nc", &["shell nc"]),
            ("bash +x --norc -c nc", &["shell nc"]),
            ("bash --rcfile x -c nc", &["shell nc"]),
            ("bash -c -e nc", &["shell nc"]),
            ("bash -- -c nc", &[]),
            ("bash script -c nc", &[]),
            ("bash -c", &[]),
            ("xargs nc a", &["nc a"]),
            ("xargs", &[]),
            ("xargs -0 -n 1 -P4 nc", &["nc"]),
            ("xargs -I {} cp {} x", &["cp {} x"]),
            ("xargs -I{} -r -t cp {}", &["cp {}"]),
            ("xargs -I ls ls", &["{}"]),
            ("xargs -i {}", &["{}"]),
            ("xargs --max-args 2 --null nc", &["nc"]),
            ("xargs --max-args=2 nc", &["nc"]),
            ("xargs --max-a 2 nc", &["nc"]),
            ("xargs -d , -- nc", &["nc"]),
            ("xargs sh -c nc", &["sh -c nc"]),
            ("xargs -I{} sh -c {}", &["sh -c ${_}"]),
            ("xargs -IX sudo sh -c X_x", &["sudo sh -c ${_} x"]),
            ("xargs -I{} cp sh {}", &["cp sh ${_}"]),
            ("find . -exec sh -c {}_x ;", &["sh -c ${_} x"]),
            ("find . -name x -exec nc {} ; -o -execdir cat {} +", &["nc {}", "cat {}"]),
            ("find . -ok nc", &["nc"]),
            ("find . -exec find x -exec nc ; -ok cat ;", &["find x -exec nc", "cat"]),
            ("find . -exec", &[]),
            ("eval nc x", &["text nc x"]),
            ("trap nc EXIT", &["text nc"]),
            ("trap - EXIT", &[]),
            ("command -v nc", &[]),
            ("command -p nc", &["nc"]),
            ("exec -a name nc", &["nc"]),
            ("exec", &[]),
            ("env -i -u A B=c nc x", &["nc x"]),
            ("env -Snc_x y", &["text nc x y"]),
            ("timeout -k 1 5 nc", &["nc"]),
            ("nice -n 5 nohup nc", &["nohup nc"]),
        ];
        for (line, expected) in table {
            assert_eq!(led(line), expected, "{line}");
        }
    }
}
