//! Commands whose operands have a syntax of their own: `find`, `tar`, `zip`, `dd`, `test`.

use ringwall_risk::shell_syntax::{asks_about_file, compares_files};

use super::options::Operand;
use super::usage::FileUse;

/// Tests and actions of `find` whose first argument is a file, with the number of their arguments.
const FIND_FILES: [(&str, usize); 10] = [
    ("-newer", 1),
    ("-anewer", 1),
    ("-cnewer", 1),
    ("-samefile", 1),
    ("-fprint", 1),
    ("-fprint0", 1),
    ("-fls", 1),
    ("-fprintf", 2),
    ("-files0-from", 1),
    ("--files0-from", 1),
];
const FIND_RUNS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

pub(super) fn find(words: &[String]) -> Vec<Operand<'_>> {
    let mut operands = Vec::new();
    let mut is_expression = false;
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if FIND_RUNS.contains(&word) {
            is_expression = true;
            // The survey of the command line reads the words of that command.
            while rest.next().is_some_and(|word| word != ";" && word != "+") {}
        } else if let Some((_, count)) = FIND_FILES.iter().find(|(name, _)| *name == word) {
            is_expression = true;
            let usage = if word.starts_with("-f") && word != "-files0-from" { FileUse::Written } else { FileUse::Read };
            operands.extend(rest.next().map(|file| Operand::path(file).used(usage)));
            if *count == 2 {
                rest.next();
            }
        } else if word == "-D" {
            rest.next();
        } else if word.strip_prefix("-newer").is_some_and(|kinds| !kinds.ends_with('t')) {
            is_expression = true;
            operands.extend(rest.next().map(Operand::path));
        } else if word.starts_with('-') {
            is_expression |= !matches!(word, "-H" | "-L" | "-P" | "--") && !word.starts_with("-O");
        } else if matches!(word, "(" | ")" | "!" | ",") {
            is_expression = true;
        } else if !is_expression {
            operands.push(Operand::path(word));
        }
    }
    operands
}

/// Option letters of `tar` whose value is a path (or, for `I`, a program: see `is_tar_path`), and
/// those with another value.
const TAR_PATHS: &str = "fCTXgI";
const TAR_VALUES: &str = "bFHKLNV";
const TAR_LONG_PATHS: [&str; 6] =
    ["file", "directory", "files-from", "exclude-from", "listed-incremental", "one-top-level"];
const TAR_LONG_VALUES: [&str; 12] = [
    "exclude",
    "transform",
    "xform",
    "strip-components",
    "owner",
    "group",
    "mode",
    "mtime",
    "format",
    "blocking-factor",
    "use-compress-program",
    "label",
];

/// Members are paths of the host only if they are added to the archive.
pub(super) fn tar(words: &[String]) -> Vec<Operand<'_>> {
    let mut operands = Vec::new();
    let mut members = Vec::new();
    let mut makes = false;
    let mut rest = words.iter().map(String::as_str);
    let mut is_first = true;
    while let Some(word) = rest.next() {
        let bundle = if is_first && !word.starts_with('-') { Some(word) } else { None };
        is_first = false;
        if let Some(letters) = bundle {
            makes |= letters.contains(['c', 'r', 'u', 'A']);
            for letter in letters.chars().filter(|letter| TAR_PATHS.contains(*letter) || TAR_VALUES.contains(*letter)) {
                let value = rest.next();
                operands.extend(value.filter(|_| is_tar_path(letter)).map(Operand::path));
            }
        } else if word == "--" {
            break;
        } else if let Some(long) = word.strip_prefix("--") {
            makes |= matches!(long, "create" | "append" | "update" | "catenate" | "concatenate");
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            if TAR_LONG_PATHS.contains(&name) {
                operands.extend(value.or_else(|| rest.next()).map(Operand::path));
            } else if TAR_LONG_VALUES.contains(&name) && value.is_none() {
                rest.next();
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for (at, letter) in letters.char_indices().take_while(|(_, letter)| letter.is_ascii_alphanumeric()) {
                makes |= "cruA".contains(letter);
                if TAR_PATHS.contains(letter) || TAR_VALUES.contains(letter) {
                    let attached = &letters[at + letter.len_utf8()..];
                    let value = if attached.is_empty() { rest.next() } else { Some(attached) };
                    operands.extend(value.filter(|_| is_tar_path(letter)).map(Operand::path));
                    break;
                }
            }
        } else {
            members.push(word);
        }
    }
    members.extend(rest);
    operands.extend(members.into_iter().filter(|_| makes).map(Operand::path));
    operands
}

fn is_tar_path(letter: char) -> bool {
    // The compression program is the name of a command.
    letter != 'I' && TAR_PATHS.contains(letter)
}

/// Options of `zip` whose value is a path, and those with another value.
const ZIP_PATHS: [&str; 4] = ["-b", "--temp-path", "-O", "--output-file"];
const ZIP_VALUES: [&str; 17] = [
    "-n",
    "--suffixes",
    "-P",
    "--password",
    "-t",
    "--from-date",
    "-tt",
    "--before-date",
    "-s",
    "--split-size",
    "-Z",
    "--compression-method",
    "-TT",
    "--unzip-command",
    "-ds",
    "--dot-size",
    "-sp",
];
/// Options with a list of patterns that ends at the next option or at a single `@`.
const ZIP_PATTERNS: [&str; 6] = ["-x", "--exclude", "-i", "--include", "-R", "--recurse-patterns"];

pub(super) fn zip(words: &[String]) -> Vec<Operand<'_>> {
    let mut operands = Vec::new();
    let mut rest = words.iter().map(String::as_str).peekable();
    let mut are_patterns = false;
    while let Some(word) = rest.next() {
        if word == "--" {
            operands.extend(rest.map(Operand::path));
            break;
        }
        let Some(option) = word.strip_prefix('-').filter(|letters| !letters.is_empty()).map(|_| word) else {
            match word {
                "@" if are_patterns => are_patterns = false,
                _ if are_patterns => {}
                word => operands.push(Operand::path(word)),
            }
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        // Single-letter options may be combined in one word; the last of them has the list.
        let ends_in_list = ["x", "i"].iter().any(|letter| !option.starts_with("--") && option.ends_with(letter));
        // `-x@file` reads the patterns from `file`.
        if let Some((_, list)) = option.split_once('@') {
            operands.push(Operand::path(list));
        } else if ZIP_PATHS.contains(&name) {
            operands.extend(value.or_else(|| rest.next()).map(Operand::path));
        } else if ZIP_VALUES.contains(&name) {
            value.is_none().then(|| rest.next());
        }
        // After `-R` the first operand is the archive, the others are patterns.
        if option == "-R" {
            operands.extend(rest.next_if(|word| operands.is_empty() && !word.starts_with('-')).map(Operand::path));
        }
        are_patterns = value.is_none() && !option.contains('@') && (ZIP_PATTERNS.contains(&name) || ends_in_list);
    }
    operands
}

pub(super) fn dd(words: &[String]) -> Vec<Operand<'_>> {
    let operands = words.iter().filter_map(|word| match word.split_at_checked(3) {
        Some(("if=", file)) => Some(Operand::path(file)),
        Some(("of=", file)) => Some(Operand::path(file).used(FileUse::Written)),
        _ => None,
    });
    operands.collect()
}

pub(super) fn test(words: &[String]) -> Vec<Operand<'_>> {
    let mut operands = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let word = word.as_str();
        if compares_files(word) && at > 0 {
            operands.push(Operand::path(&words[at - 1]));
            operands.extend(words.get(at + 1).map(|next| Operand::path(next)));
        } else if asks_about_file(word) {
            operands.extend(words.get(at + 1).map(|next| Operand::path(next)));
        }
    }
    operands
}

#[cfg(test)]
mod tests {
    use super::*;

    type Form = fn(&[String]) -> Vec<Operand<'_>>;

    #[test]
    fn operands_follow_syntax_of_command() {
        let table: [(Form, &str, &[&str]); 30] = [
            (find, "a b -name /x", &["a", "b"]),
            (find, "-L a -path /x -newer b", &["a", "b"]),
            (find, "a -newermt /x -newercm c", &["a", "c"]),
            (find, "-O3 -D all a ( -name x ) b", &["a"]),
            (find, "a -fprintf out %p /x -fprint o2", &["a", "out", "o2"]),
            (find, "a -exec cat /x ; -samefile b", &["a", "b"]),
            (find, "a -exec cat /x", &["a"]),
            (find, "a ! -perm /022", &["a"]),
            (tar, "xzf a.tgz -C d", &["a.tgz", "d"]),
            (tar, "xzf a.tgz member", &["a.tgz"]),
            (tar, "czf a.tgz d e", &["a.tgz", "d", "e"]),
            (tar, "cbf 20 a.tar d", &["a.tar", "d"]),
            (tar, "-xzf a.tgz --directory=d", &["a.tgz", "d"]),
            (tar, "-xf a -Cd m", &["a", "d"]),
            (tar, "--create --file a.tar d --exclude /x", &["a.tar", "d"]),
            (tar, "-tf - -- m", &["-"]),
            (tar, "-I zstd -cf a d", &["a", "d"]),
            (zip, "-r a.zip /d", &["a.zip", "/d"]),
            (zip, "-r a.zip d -x /x/* /y", &["a.zip", "d"]),
            (zip, "-r a.zip d -x /x @ /e", &["a.zip", "d", "/e"]),
            (zip, "a.zip d -i /x -q /e -x/y /f", &["a.zip", "d", "/e", "/f"]),
            (zip, "-x@/list a.zip d --exclude /x", &["/list", "a.zip", "d"]),
            (zip, "-rx /x -b /t a.zip d", &["/t", "a.zip", "d"]),
            (zip, "-P /p -n .a:.b a.zip -- -x", &["a.zip", "-x"]),
            (zip, "-R a.zip /x/*.c", &["a.zip"]),
            (dd, "if=/dev/zero of=x bs=1M", &["/dev/zero", "x"]),
            (test, "-f a", &["a"]),
            (test, "a = /b", &[]),
            (test, "a -nt b", &["a", "b"]),
            (test, "! -d a -a -n /x ]", &["a"]),
        ];
        for (form, line, expected) in table {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let named: Vec<&str> = form(&words).into_iter().map(|operand| operand.word).collect();
            assert_eq!(named, expected, "{line}");
        }
    }
}
