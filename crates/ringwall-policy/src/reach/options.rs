//! Finds the words of a command that name paths, by its row of the table.
//!
//! The words are not expanded. A relative word that is wrongly taken for a path is harmless,
//! because relative paths lie in the workspace. The rows therefore need to be exact only about
//! words that can start with a slash.

use ringwall_risk::shell_syntax::is_windows_path;

use super::forms;
use super::table::{Row, Takes, row};
use super::usage::{self, FileUse};

/// A word, or a part of one, that may name a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand<'w> {
    pub(crate) word: &'w str,
    pub(crate) sureness: Sureness,
    pub(crate) usage: FileUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sureness {
    /// A path by its position.
    Path,
    /// A path only if it looks like one.
    Perhaps,
}

impl<'w> Operand<'w> {
    pub(super) fn path(word: &'w str) -> Self {
        Self { word, sureness: Sureness::Path, usage: FileUse::Read }
    }

    pub(super) fn used(self, usage: FileUse) -> Self {
        Self { usage, ..self }
    }

    pub(super) fn perhaps(word: &'w str) -> Self {
        // In `name=value` the value may be a path.
        let value = match word.split_once('=') {
            Some((name, value)) if !name.contains('/') && value.starts_with(['/', '~', '.', '$']) => value,
            _ => word,
        };
        Self { word: value, sureness: Sureness::Perhaps, usage: FileUse::Read }
    }
}

/// True if a word looks like a path, for commands and words without a rule.
pub(crate) fn looks_like_path(text: &str) -> bool {
    let has_shape = text.contains('/') || text.starts_with(['~', '.']) || is_windows_path(text);
    has_shape && !text.contains('\n')
}

/// The words of a command that may name a path, in order.
pub(crate) fn read_operands<'w>(name: &str, words: &'w [String]) -> Vec<Operand<'w>> {
    let (mut name, mut words) = (program(name), words);
    // `cmd /c` is followed by another command.
    while name == "cmd" {
        let Some(at) = words.iter().position(|word| word.eq_ignore_ascii_case("/c") || word.eq_ignore_ascii_case("/k"))
        else {
            return Vec::new();
        };
        let Some((next, rest)) = words[at + 1..].split_first() else { return Vec::new() };
        (name, words) = (program(next), rest);
    }
    match name.as_str() {
        "find" => forms::find(words),
        "tar" | "bsdtar" | "gtar" => forms::tar(words),
        "zip" => forms::zip(words),
        "dd" => forms::dd(words),
        "test" | "[" => forms::test(words),
        _ => match row(&name) {
            Some(row) => by_row(&name, row, words),
            None => words.iter().flat_map(|word| unknown(word)).collect(),
        },
    }
}

/// The program's name without directory and `.exe`, in lower case.
fn program(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name).to_ascii_lowercase();
    name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
}

/// A word of a command without a row.
fn unknown(word: &str) -> Option<Operand<'_>> {
    match word.strip_prefix('-') {
        Some(_) => word.split_once('=').map(|(_, value)| Operand::perhaps(value)),
        None => Some(Operand::perhaps(word)),
    }
}

/// What a word of the command line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item<'w> {
    Operand(&'w str),
    Path {
        value: &'w str,
        option: &'static str,
    },
    /// A value that may contain a path after `@`, as in `curl -d @file`.
    Upload(&'w str),
    /// A value of an option that the row does not contain.
    Stray(&'w str),
    /// An option that replaces the first operand, such as `grep -e`.
    Replaces,
}

fn by_row<'w>(name: &str, row: &Row, words: &'w [String]) -> Vec<Operand<'w>> {
    let items = items(row, words);
    let mut is_replaced = items.contains(&Item::Replaces);
    let mut operands: Vec<Operand<'w>> = Vec::new();
    let mut plain = Vec::new();
    let mut count = 0;
    for item in items {
        match item {
            Item::Path { value, option } => {
                operands.push(Operand::path(value).used(usage::of_option(name, row, option)));
            }
            Item::Stray(word) => operands.push(Operand::perhaps(word)),
            Item::Upload(word) => {
                operands.extend(word.split_once(['@', '<']).map(|(_, path)| Operand::path(path)));
            }
            Item::Replaces => {}
            Item::Operand(word) => {
                count += 1;
                let before = operands.len();
                match row.takes {
                    Takes::Files => operands.push(Operand::path(word)),
                    Takes::Command => {}
                    Takes::Nothing => operands.extend(word.starts_with("file:").then(|| Operand::path(word))),
                    Takes::Perhaps => operands.push(Operand::perhaps(word)),
                    Takes::OneFile => operands.extend((count == 1).then(|| Operand::path(word))),
                    Takes::TextThenFiles if is_replaced => operands.push(Operand::path(word)),
                    Takes::TextThenFiles => is_replaced = true,
                    Takes::Script if count == 1 && !is_replaced => {
                        operands.push(Operand::path(word).used(FileUse::Script));
                    }
                    Takes::Script => operands.extend(unknown(word)),
                    Takes::LocalFiles => operands.extend((!is_remote(word)).then(|| Operand::path(word))),
                    Takes::FilesAndSwitches => operands.extend((!is_switch(word)).then(|| Operand::path(word))),
                }
                plain.extend(before..operands.len());
            }
        }
    }
    usage::mark_written(name, &mut operands, &plain);
    operands
}

fn items<'w>(row: &Row, words: &'w [String]) -> Vec<Item<'w>> {
    let mut items = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let (option, attached) = match word.strip_prefix('-') {
            None | Some("") => {
                match row.takes {
                    Takes::Command => return items,
                    Takes::Script => {
                        items.push(Item::Operand(word));
                        break;
                    }
                    _ => items.push(Item::Operand(word)),
                }
                continue;
            }
            Some("-") if row.takes == Takes::Command => return items,
            Some("-") => break,
            Some(_) => find_option(row, word),
        };
        let Some(option) = option else {
            items.extend(attached.map(Item::Stray));
            continue;
        };
        if row.replacing.split(' ').any(|name| name == option.name) {
            items.push(Item::Replaces);
        }
        let value = if option.is_attached { attached } else { attached.or_else(|| words.next()) };
        match (option.kind, value) {
            (Kind::Path, Some(value)) => items.push(Item::Path { value, option: option.name }),
            (Kind::Upload, Some(value)) => items.push(Item::Upload(value)),
            _ => {}
        }
    }
    // The remaining words follow a `--` or a script.
    items.extend(words.map(Item::Operand));
    items
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Path,
    Value,
    Upload,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    name: &'static str,
    kind: Kind,
    /// The value can only be in the same word.
    is_attached: bool,
}

/// The option with a value that `word` is or, for combined letters, ends with; and the value if it
/// is in the word.
fn find_option<'w>(row: &Row, word: &'w str) -> (Option<Known>, Option<&'w str>) {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let exact = known(row, |option| option == name);
        // Long options may be abbreviated.
        return (exact.or_else(|| known(row, |option| option.len() > 1 && option.starts_with(name))), value);
    }
    if let Some(option) = known(row, |option| option.len() > 2 && option == word) {
        return (Some(option), None);
    }
    // Flags are letters or digits; anything else starts a value.
    for (at, letter) in word.char_indices().skip(1).take_while(|(_, letter)| letter.is_ascii_alphanumeric()) {
        let mut buffer = [0; 4];
        let letter = &*letter.encode_utf8(&mut buffer);
        if let Some(option) = known(row, |option| option == letter) {
            let rest = &word[at + letter.len()..];
            return (Some(option), Some(rest).filter(|rest| !rest.is_empty()));
        }
    }
    (None, word.split_once('=').map(|(_, value)| value))
}

fn known(row: &Row, is_meant: impl Fn(&str) -> bool) -> Option<Known> {
    [(Kind::Path, row.paths), (Kind::Value, row.values), (Kind::Upload, row.uploads)].into_iter().find_map(
        |(kind, names)| {
            let mut names = names.split(' ').filter(|name| !name.is_empty());
            let name = names.find(|name| is_meant(name.trim_end_matches('=')))?;
            Some(Known { name: name.trim_end_matches('='), kind, is_attached: name.ends_with('=') })
        },
    )
}

/// `host:path` of `scp` and `rsync`.
fn is_remote(word: &str) -> bool {
    let host = word.split('/').next().unwrap_or_default();
    host.contains(':') && !is_windows_path(&word.replace(r"\\", r"\"))
}

/// Switches of Windows commands: `/s`, `/ad`, `/-y`, `/o:n`. Longer names are Linux directories.
fn is_switch(word: &str) -> bool {
    let Some(name) = word.strip_prefix('/') else { return false };
    let letters = name.split(':').next().unwrap_or_default().trim_start_matches('-');
    let is_short =
        matches!(letters.len(), 1 | 2) && letters.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'?');
    is_short || name.contains(':') && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operands of a space-separated line that are paths or look like one.
    pub(in super::super) fn named(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let is_meant = |operand: &Operand<'_>| operand.sureness == Sureness::Path || looks_like_path(operand.word);
        let operands = read_operands(&words[0], &words[1..]);
        operands.into_iter().filter(is_meant).map(|operand| operand.word.to_owned()).collect()
    }

    #[test]
    fn operands_follow_options_of_row() {
        let table: [(&str, &[&str]); 62] = [
            ("cat a -n b -- -c", &["a", "b", "-c"]),
            ("cat -", &["-"]),
            ("head -n 10 f", &["f"]),
            ("head -n10 -c 5 f -10", &["f"]),
            ("grep foo a b", &["a", "b"]),
            ("grep -rn /foo a", &["a"]),
            ("grep -rne /foo a", &["a"]),
            ("grep a -e /foo b", &["a", "b"]),
            ("grep -f p a", &["p", "a"]),
            ("grep -fp a", &["p", "a"]),
            ("grep --file=p a", &["p", "a"]),
            ("grep --fil p a", &["p", "a"]),
            ("grep --exclude-dir=/x --include /y foo a", &["a"]),
            ("grep -A 3 -B3 foo a", &["a"]),
            ("rg -g /x foo a", &["a"]),
            ("rg --files a", &["a"]),
            ("sed -i /x/d a", &["a"]),
            ("sed -i.e /x/d a", &["a"]),
            ("sed -ne /x/p a", &["a"]),
            ("awk -F / {print} a", &["a"]),
            ("awk -f p a", &["p", "a"]),
            ("chmod u+x f", &["f"]),
            ("chmod -R 755 f", &["f"]),
            ("chmod --reference=r f", &["r", "f"]),
            ("chown u:g f", &["f"]),
            ("cp -t d a b", &["d", "a", "b"]),
            ("cp --target-directory=d a", &["d", "a"]),
            ("sort -t / -k 2 -o out a", &["out", "a"]),
            ("cut -d / -f1 a", &["a"]),
            ("cut -d/ -f1 a", &["a"]),
            ("tr / _", &[]),
            ("echo /a /b", &[]),
            ("basename /a/b", &[]),
            ("curl -o out -d @body -H /x https://h/p", &["out", "body"]),
            ("curl -F a=@f file:///etc/passwd", &["f", "file:///etc/passwd"]),
            ("wget -P d -O out http://h/p", &["d", "out"]),
            ("git -C d log", &["d"]),
            ("git commit -m /x", &[]),
            ("git add ./a", &["./a"]),
            ("make -C d -j4 all", &["d"]),
            ("gcc -o out -I/inc -DX=/y a.c", &["out", "/inc", "a.c"]),
            ("gcc -isystem /inc a.c", &["/inc", "a.c"]),
            ("python3 s.py --in=/x /y z", &["s.py", "/x", "/y"]),
            ("python3 -c /x /y", &["/y"]),
            ("python3 -m mod -o /y", &["/y"]),
            ("bash -x s.sh /y -v", &["s.sh", "/y"]),
            ("perl -pe /x/ /f", &["/f"]),
            ("scp -i k host:/x u@h:y /y", &["k", "/y"]),
            ("rsync -av --exclude /x a h::m b", &["a", "b"]),
            ("frob /a b ./c --o=/d -x=/e -f g=/h ~/i", &["/a", "./c", "/d", "/e", "/h", "~/i"]),
            ("dir /s /b /ad /o:n C:\\x", &["C:\\x"]),
            ("dir /etc", &["/etc"]),
            ("DEL.EXE /f /q C:\\x", &["C:\\x"]),
            ("xcopy /exclude:f a b", &["a", "b"]),
            ("cmd /c type C:\\x", &["C:\\x"]),
            ("cmd /c cmd /k del /q x", &["x"]),
            ("/usr/bin/python3.11 s.py", &["s.py"]),
            ("jq /x f", &["f"]),
            ("grep --color /x f", &["f"]),
            ("xargs -a l grep -a /x", &["l"]),
            ("env -C d cat -C /x", &["d"]),
            ("ssh -i k host cat -i /x", &["k"]),
        ];
        for (line, expected) in table {
            assert_eq!(named(line), expected, "{line}");
        }
    }
}
