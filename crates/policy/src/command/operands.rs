//! Which arguments of a command can name a file, and which are texts by their place: patterns, programs, what is printed.
//!
//! Rules about paths would otherwise take `awk '/x/'` for a path and `find -name SKILL.md` for a file.

use super::lists::plain_name;

/// Options of a command that takes a text as its first operand.
struct Form {
    /// Options whose value is such a text, which then is no operand.
    texts: &'static [&'static str],
    /// Options whose value is a file with the text in it.
    files: &'static [&'static str],
    /// Options with any other value.
    values: &'static [&'static str],
}

const GREP: Form = Form {
    texts: &["-e", "--regexp"],
    files: &["-f", "--file"],
    values: &["-A", "-B", "-C", "-m", "-d", "-D", "--include", "--exclude"],
};
const SED: Form = Form { texts: &["-e", "--expression"], files: &["-f", "--file"], values: &["-l"] };
const AWK: Form = Form { texts: &[], files: &["-f", "--file"], values: &["-F", "-v"] };
const TESTS: [&str; 8] = ["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex"];

/// Whose arguments are printed and never opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    AreTexts,
    CountAsWell,
}

pub(crate) fn paths<'a>(name: &str, arguments: &'a [String], printed: Printed) -> Vec<&'a str> {
    match plain_name(name) {
        "echo" | "printf" if printed == Printed::AreTexts => Vec::new(),
        "grep" => without_text(arguments, &GREP),
        "sed" => without_text(arguments, &SED),
        "awk" => without_text(arguments, &AWK),
        "find" => {
            let is_pattern = |at: usize| at > 0 && TESTS.contains(&arguments[at - 1].as_str());
            arguments.iter().enumerate().filter(|(at, _)| !is_pattern(*at)).map(|(_, word)| word.as_str()).collect()
        }
        _ => arguments.iter().map(String::as_str).collect(),
    }
}

fn without_text<'a>(arguments: &'a [String], form: &Form) -> Vec<&'a str> {
    let is_named = |word: &str, options: &[&str]| {
        options.iter().any(|option| {
            word == *option || (option.len() > 2 && word.strip_prefix(option).is_some_and(|rest| rest.starts_with('=')))
        })
    };
    let mut has_text = arguments.iter().any(|word| is_named(word, form.texts) || is_named(word, form.files));
    let mut paths = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if form.texts.contains(&word) || form.values.contains(&word) {
            words.next();
        } else if form.files.contains(&word) {
            paths.extend(words.next());
        } else if has_text || word.starts_with('-') {
            paths.push(word);
        } else {
            has_text = true;
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_programs_are_no_paths() {
        let table: [(&str, &[&str]); 12] = [
            ("cat a b", &["a", "b"]),
            ("grep -n p a b", &["-n", "a", "b"]),
            ("grep -m 1 p a", &["a"]),
            ("grep -e p a", &["a"]),
            ("grep -f f a", &["f", "a"]),
            ("grep --file=f a", &["--file=f", "a"]),
            ("sed -i p a", &["-i", "a"]),
            ("sed -n -e p -e q a", &["-n", "a"]),
            ("awk -F , p a", &["a"]),
            ("find a -name p -newer b", &["a", "-name", "-newer", "b"]),
            ("echo a", &[]),
            ("tee a", &["a"]),
        ];
        for (line, expected) in table {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(paths(&words[0], &words[1..], Printed::AreTexts), expected, "{line}");
        }
        assert_eq!(paths("echo", &["a".to_owned()], Printed::CountAsWell), ["a"]);
    }
}
