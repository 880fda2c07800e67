//! Which arguments of a command can name a file. The others are text by their position: patterns,
//! programs, printed text.
//!
//! Without this, the path rules would read `awk '/x/'` as a path and `find -name SKILL.md` as a
//! file.

use super::names::plain_name;

/// Options of a command whose first operand is text, unless an option provides it. Single-letter
/// options may be combined in one word, whose rest is the value of the last; long names may be
/// abbreviated.
struct Form {
    texts: Options,
    /// Options whose value is a file that contains the text.
    files: Options,
    /// Options with another value.
    values: Options,
    /// Letters with an optional value in the same word.
    rest: &'static str,
}

struct Options {
    letters: &'static str,
    names: &'static [&'static str],
}

const GREP: Form = Form {
    texts: Options { letters: "e", names: &["regexp"] },
    files: Options { letters: "f", names: &["file"] },
    values: Options {
        letters: "ABCmdD",
        names: &["after-context", "before-context", "context", "max-count", "directories", "devices", "label"],
    },
    rest: "",
};
const SED: Form = Form {
    texts: Options { letters: "e", names: &["expression"] },
    files: Options { letters: "f", names: &["file"] },
    values: Options { letters: "l", names: &["line-length"] },
    rest: "i",
};
const AWK: Form = Form {
    texts: Options { letters: "e", names: &["source"] },
    files: Options { letters: "fiE", names: &["file", "include", "exec"] },
    values: Options { letters: "Fvl", names: &["field-separator", "assign", "load"] },
    rest: "dDLop",
};
const TESTS: [&str; 8] = ["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex"];

/// How the arguments of `echo` and `printf`, which never open a file, are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Printed {
    AreTexts,
    CountAsWell,
}

pub fn paths<'a>(name: &str, arguments: &'a [String], printed: Printed) -> Vec<&'a str> {
    match plain_name(name) {
        "echo" | "printf" if printed == Printed::AreTexts => Vec::new(),
        "grep" => GREP.paths(arguments),
        "sed" => SED.paths(arguments),
        "awk" => AWK.paths(arguments),
        "find" => {
            let is_pattern = |at: usize| at > 0 && TESTS.contains(&arguments[at - 1].as_str());
            arguments.iter().enumerate().filter(|(at, _)| !is_pattern(*at)).map(|(_, word)| word.as_str()).collect()
        }
        _ => arguments.iter().map(String::as_str).collect(),
    }
}

/// What a word or the value of an option is.
#[derive(Clone, Copy)]
enum Part<'a> {
    Text,
    /// A file that contains the text.
    TextFile(&'a str),
    Operand(&'a str),
    /// An unknown option, which may contain a path.
    Unknown(&'a str),
}

impl Form {
    fn paths<'a>(&self, arguments: &'a [String]) -> Vec<&'a str> {
        let parts = self.parts(arguments);
        let mut has_text = parts.iter().any(|part| matches!(part, Part::Text | Part::TextFile(_)));
        let path = |part| match part {
            Part::Text => None,
            Part::Operand(_) if !std::mem::replace(&mut has_text, true) => None,
            Part::TextFile(path) | Part::Operand(path) | Part::Unknown(path) => Some(path),
        };
        parts.into_iter().filter_map(path).collect()
    }

    fn parts<'a>(&self, arguments: &'a [String]) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if word == "--" {
                parts.extend(words.by_ref().map(Part::Operand));
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let has = |options: &Options| options.names.iter().any(|known| known.starts_with(name));
                if has(&self.texts) {
                    parts.extend(value.or_else(|| words.next()).map(|_| Part::Text));
                } else if has(&self.files) {
                    parts.extend(value.or_else(|| words.next()).map(Part::TextFile));
                } else if has(&self.values) {
                    let _ = value.or_else(|| words.next());
                } else {
                    parts.push(Part::Unknown(word));
                }
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                let takes = |letter: &char| {
                    let valued = [self.texts.letters, self.files.letters, self.values.letters, self.rest];
                    valued.iter().any(|letters| letters.contains(*letter))
                };
                let Some((at, letter)) = letters.char_indices().find(|(_, letter)| takes(letter)) else { continue };
                let rest = Some(&letters[at + letter.len_utf8()..]).filter(|rest| !rest.is_empty());
                if self.rest.contains(letter) {
                    continue;
                }
                let value = rest.or_else(|| words.next());
                if self.texts.letters.contains(letter) {
                    parts.extend(value.map(|_| Part::Text));
                } else if self.files.letters.contains(letter) {
                    parts.extend(value.map(Part::TextFile));
                }
            } else {
                parts.push(Part::Operand(word));
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_or_program_is_not_a_path() {
        let table: [(&str, &[&str]); 25] = [
            ("cat a b", &["a", "b"]),
            ("grep -n p a b", &["a", "b"]),
            ("grep -m 1 p a", &["a"]),
            ("grep -e p a", &["a"]),
            ("grep a -e p", &["a"]),
            ("grep -hep a", &["a"]),
            ("grep -he p a", &["a"]),
            ("grep -ep -eq a", &["a"]),
            ("grep -f f a", &["f", "a"]),
            ("grep -nff a", &["f", "a"]),
            ("grep --file=f a", &["f", "a"]),
            ("grep --fil f a", &["f", "a"]),
            ("grep --regexp p a", &["a"]),
            ("grep --exclude=x p a", &["--exclude=x", "a"]),
            ("grep -rA3 p a", &["a"]),
            ("grep -n -- -p a", &["a"]),
            ("grep - -e p", &["-"]),
            ("sed -i p a", &["a"]),
            ("sed -ie p a", &["a"]),
            ("sed -n -e p -e q a", &["a"]),
            ("awk -F , p a", &["a"]),
            ("awk -F, -vx=1 -ff a", &["f", "a"]),
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
