//! Shell lines against the lists: tables of allowed and of denied lines, and laws on random lines.
//!
//! The tables are lines as people and models write them. The laws hide a forbidden command in each
//! construct that can contain one.

#![expect(clippy::panic, reason = "a failed assumption is a failed test")]

use proptest::prelude::*;
use proptest::sample::select;
use ringwall_policy::{CommandLine, CommandLists, DenialCode, Error};

fn check(line: &str) -> Result<Result<(), String>, Error> {
    let line = CommandLine::read(line)?;
    Ok(line.check(&CommandLists::default()).map_err(|denial| denial.message))
}

/// The name of the denied command.
fn refused(line: &str) -> Option<String> {
    let message = check(line).unwrap_or_else(|error| panic!("{line}: {error}")).err()?;
    let name = message.strip_prefix("Security Error: Command '")?.strip_suffix("' is not allowed.")?;
    Some(name.to_owned())
}

#[test]
fn ordinary_line_is_allowed() {
    let lines = include_str!("lines/ordinary.txt").split("\n---\n");
    for line in lines {
        assert_eq!(check(line), Ok(Ok(())), "{line}");
    }
}

#[test]
fn forbidden_command_is_found_in_line() {
    for block in include_str!("lines/refused.txt").split("\n---\n") {
        let (name, line) = block.split_once('\n').expect("a name and a line");
        assert_eq!(refused(line).as_deref(), Some(name), "{line}");
    }
}

#[test]
fn empty_list_denies_every_line() {
    let none: CommandLists = serde_json::from_str(r#"{"allowed":[]}"#).expect("a list");
    for line in ["ls", "cd", "> files/x", "X=1", "f() { :; }", "# nothing"] {
        let denial = CommandLine::read(line).expect("a line").check(&none).expect_err(line);
        assert_eq!(denial.code, DenialCode::CommandNotAllowed, "{line}");
    }
}

#[test]
fn malformed_line_is_an_error_and_no_denial() {
    for empty in ["", " ", "\n\t"] {
        assert_eq!(CommandLine::read(empty).map(drop), Err(Error::CommandEmpty));
    }
    assert_eq!(Error::CommandEmpty.to_string(), "Command cannot be empty.");
    for bad in ["ls )", "echo \"x", "if ls", "ls | | cat", "ls &&", "bash -c 'if'", "eval 'a ('", "echo `if`"] {
        assert!(matches!(check(bad), Err(Error::CommandMalformed { .. })), "{bad}");
    }
    // Each `-exec` could end at any later one, so the work is quadratic.
    assert_eq!(check(&"find . -exec ".repeat(100)), Err(Error::CommandTooComplex));
    let nested = (0..40).fold("ls".to_owned(), |inner, _| format!("eval {inner}"));
    assert_eq!(check(&nested), Err(Error::CommandTooComplex));
}

#[test]
fn misplaced_skill_file_is_denied() {
    let reserved = |line: &str| {
        let line = CommandLine::read(line).expect("a line");
        line.check(&CommandLists::default()).is_err_and(|denial| denial.code == DenialCode::FileReserved)
    };
    for bad in [
        "echo x > skills/a/b/SKILL.md",
        "touch skills/a/b/skill.md",
        "cat SKILL.md",
        "cp files/x skills/a/b/SKILL.md",
        "bash -c 'touch skills/a/b/SKILL.md'",
        "X=skills/a/b/SKILL.md; cat $X",
        "tee skills/SKILL.md < files/x",
        "cat <<EOF > skills/a/b/SKILL.md\nx\nEOF",
        "ls; if [ -f skills/a/b/SKILL.md ]; then ls; fi",
        "for f in skills/a/b/SKILL.md; do cat $f; done",
        "curl -o skills/a/b/SKILL.md http://x",
        "ls && cd skills/a && cat SKILL.md",
        "find . -exec cp {} skills/a/b/SKILL.md \\;",
    ] {
        assert!(reserved(bad), "{bad}");
    }
    for good in [
        "cat skills/a/SKILL.md",
        "echo x > ./skills/a/SKILL.md",
        "echo x > files/SKILL.md",
        "find skills -name SKILL.md",
        "find skills -iname 'skill.md' -exec cat {} +",
        "echo 'read SKILL.md' SKILL.md",
        "grep -r SKILL.md skills",
        "cat skills/*/SKILL.md",
        "for d in skills/*; do cat $d/SKILL.md; done",
        "python3 -c \"print('skills/a/b/SKILL.md')\"",
    ] {
        assert!(!reserved(good), "{good}");
    }
}

#[test]
fn settings_replace_list() {
    let lists: CommandLists = serde_json::from_str(r#"{"allowed":["git","env"],"allowed_filters":[]}"#).expect("lists");
    let allowed = |line: &str| CommandLine::read(line).expect("a line").check(&lists).is_ok();
    assert!(allowed("git log") && allowed("env A=b git log") && !allowed("ls") && !allowed("git log | wc -l"));
    assert!(!allowed("env ls"), "the command of a wrapper is checked too");
    assert!(allowed("git log && cd x"));
}

#[test]
fn network_program_is_found_by_name() {
    let wants = |line: &str| CommandLine::read(line).expect("a line").wants_network();
    assert!(wants("curl x") && wants("ls; bash -c 'pip install x'") && wants("python3 -m pip install x"));
    assert!(!wants("echo curl") && !wants("python3 -m venv x"));
}

/// Constructs that contain a command; `@` marks its place.
const HOLDERS: [&str; 44] = [
    "ls; @",
    "ls && @",
    "ls || @ x",
    "ls | @",
    "ls |& @",
    "ls & @",
    "ls\n@",
    "(@)",
    "{ @; }",
    "! @",
    "time @",
    "A=b @",
    ">x @",
    "ls 2>&1 | @ >y",
    "echo $(@)",
    "echo `@`",
    "echo \"a $(@) b\"",
    "echo \"a `@` b\"",
    "echo ${x:-$(@)}",
    "echo ${x:-`@`}",
    "echo $(( $(@) + 1 ))",
    "x=$(@)",
    "x=`@` ls",
    "cat <(@)",
    "ls > >(@)",
    "cat <<E\n$(@)\nE",
    "cat <<E\n`@`\nE",
    "cat <<< $(@)",
    "cat <<E | @\nx\nE",
    "if @; then ls; fi",
    "if ls; then @; else ls; fi",
    "while @; do ls; done",
    "for x in $(@); do ls; done",
    "for x in a; do @; done",
    "case a in a) @;; esac",
    "case $(@) in a) ls;; esac",
    "f() { @; }",
    "[[ -n $(@) ]]",
    "[ \"$(@)\" ] && ls",
    "ls | xargs -n 1 @",
    "ls | xargs > out @",
    "find . -exec @ {} \\;",
    "bash -c '@'",
    "command @",
];

/// Constructs that contain a line, nested according to `how`.
fn nest(line: &str, how: u8) -> String {
    match how % 5 {
        0 => format!("echo $( {line}\n)"),
        1 => format!("( {line}\n)"),
        2 => format!("bash -c '{}'", line.replace('\'', r"'\''")),
        3 => format!("ls && eval '{}'", line.replace('\'', r"'\''")),
        _ => format!("ls\nif ls; then\n{line}\nfi"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(4), ..ProptestConfig::with_cases(400) })]

    #[test]
    fn forbidden_command_is_found_in_any_construct(
        holder in select(&HOLDERS[..]),
        name in "[b-df-hj-np-tv-z]{4,8}",
        spelling in 0u8..5,
        nesting in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        let (first, rest) = name.split_at(1);
        let spelled = match spelling {
            0 => name.clone(),
            1 => format!("\"{name}\""),
            2 => format!("{first}\\{rest}"),
            3 => format!("{first}\"{rest}\""),
            _ => format!("{first}\\\n{rest}"),
        };
        // Single quotes and backquotes have quoting rules of their own.
        let spelled = if holder.contains(['\'', '`']) || spelling == 4 && !nesting.is_empty() { name.clone() } else { spelled };
        let line = nesting.iter().fold(holder.replace('@', &spelled), |line, how| nest(&line, *how));
        let line = format!("ls\n{line}");
        prop_assert_eq!(refused(&line), Some(name), "{}", line);
    }

    #[test]
    fn any_text_is_checked_without_panic(text in any::<String>()) {
        let _ = check(&text);
    }

    #[test]
    fn any_shell_fragments_are_checked_without_panic(parts in proptest::collection::vec(select(&PARTS[..]), 0..400)) {
        let _ = check(&parts.concat());
    }
}

const PARTS: [&str; 48] = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    "((",
    "))",
    "$(",
    "${",
    "$((",
    "`",
    "\"",
    "'",
    "$'",
    "<<E",
    "<<-E",
    "<<'E'",
    "\nE\n",
    "<<<",
    "<(",
    ">(",
    ">",
    "2>&1",
    "|",
    "||",
    "&&",
    "&",
    ";",
    ";;",
    "\n",
    " ",
    "\\",
    "if ",
    "then ",
    "fi",
    "do ",
    "done",
    "case a in ",
    "esac",
    "a",
    "=",
    "#",
    "=~",
    "é\u{1F980}",
    "ls ",
];
