//! Quality of the risk assessment: examples of every rule, labelled snippets with minimum
//! precision, recall and accuracy, and laws on arbitrary texts.
//!
//! `held_out.txt` was written before the rules, and their author knew it while writing them.
//! `afterwards.txt` was written when they were complete. `agents.txt` contains snippets as agents
//! write them, labelled by a second person who knew the rules, before they were assessed. Errors in
//! the last two were fixed where the contract requires it, so today's figures are higher than the
//! first ones, which docs/promises.md records. If you change a rule because of a snippet, add new
//! snippets to measure it.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed assumption is a failed test, and figures are printed"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use ringwall_risk::{Content, Level, Locale, MAX_CONTENT, Refusal, assess, rules, stack_needed};

const HELD_OUT: &str = include_str!("snippets/held_out.txt");
const AFTERWARDS: &str = include_str!("snippets/afterwards.txt");
const AGENTS: &str = include_str!("snippets/agents.txt");
const OTHERS: [&str; 4] = [
    include_str!("snippets/python.txt"),
    include_str!("snippets/javascript.txt"),
    include_str!("snippets/shell.txt"),
    include_str!("snippets/browser.txt"),
];

#[derive(Debug, Clone, Copy)]
struct Snippet {
    content: Content,
    level: Level,
    code: &'static str,
}

/// Each block starts with a line of content kind and expected level; the rest is the code.
fn snippets(text: &'static str) -> Vec<Snippet> {
    let read = |block: &'static str| {
        let (head, code) = block.split_once('\n').unwrap_or((block, ""));
        let mut words = head.split_whitespace();
        let word = |word: Option<&str>| serde_json::Value::from(word.unwrap_or_default());
        let content = serde_json::from_value(word(words.next())).unwrap_or_else(|_| panic!("{head}"));
        let level = serde_json::from_value(word(words.next())).unwrap_or_else(|_| panic!("{head}"));
        Snippet { content, level, code }
    };
    text.trim_end().split("\n=====\n").map(read).collect()
}

fn content_of(id: &str) -> Content {
    match id.split('.').next() {
        Some("py") => Content::Python,
        Some("js") => Content::Javascript,
        Some("sh") => Content::Shell,
        _ => Content::Browser,
    }
}

#[test]
fn rule_matches_its_examples_only() {
    let mut wrong = Vec::new();
    for rule in rules() {
        let finds = |code: &str| assess(content_of(rule.id), code).findings.iter().any(|one| one.rule.id == rule.id);
        wrong
            .extend(rule.matches.iter().filter(|code| !finds(code)).map(|code| format!("{} misses {code:?}", rule.id)));
        wrong.extend(rule.differs.iter().filter(|code| finds(code)).map(|code| format!("{} takes {code:?}", rule.id)));
        let is_bound = rule.id.ends_with(".too_complex");
        if !is_bound && (rule.matches.is_empty() || rule.differs.is_empty()) {
            wrong.push(format!("{} has no examples", rule.id));
        }
        if rule.english.is_empty() || rule.chinese.is_ascii() {
            wrong.push(format!("{} has no sentence", rule.id));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[derive(Debug, Default)]
struct Figures {
    all: u32,
    exact: u32,
    right_alarms: u32,
    false_alarms: u32,
    missed: u32,
}

impl Figures {
    fn count(&mut self, snippet: &Snippet, judged: Level) {
        self.all += 1;
        self.exact += u32::from(judged == snippet.level);
        match (snippet.level.asks(), judged.asks()) {
            (true, true) => self.right_alarms += 1,
            (false, true) => self.false_alarms += 1,
            (true, false) => self.missed += 1,
            (false, false) => {}
        }
    }

    fn precision(&self) -> f64 {
        f64::from(self.right_alarms) / f64::from((self.right_alarms + self.false_alarms).max(1))
    }

    fn recall(&self) -> f64 {
        f64::from(self.right_alarms) / f64::from((self.right_alarms + self.missed).max(1))
    }

    fn accuracy(&self) -> f64 {
        f64::from(self.exact) / f64::from(self.all.max(1))
    }

    fn row(&self, name: &str) -> String {
        let (precision, recall, accuracy) = (self.precision(), self.recall(), self.accuracy());
        format!("| {name:<22} | {:>8} | {precision:>9.3} | {recall:>6.3} | {accuracy:>11.3} |", self.all)
    }
}

fn measure(snippets: &[Snippet]) -> Figures {
    let mut figures = Figures::default();
    for snippet in snippets {
        let assessment = assess(snippet.content, snippet.code);
        figures.count(snippet, assessment.level);
        if assessment.level != snippet.level {
            let found: Vec<&str> = assessment.findings.iter().map(|finding| finding.rule.id).collect();
            println!("{:?}, not {:?}, by {found:?}: {}", assessment.level, snippet.level, snippet.code);
        }
    }
    figures
}

#[test]
fn labelled_snippets_reach_minimum_quality() {
    let held_out = snippets(HELD_OUT);
    let others: Vec<Snippet> = OTHERS.iter().flat_map(|text| snippets(text)).collect();
    let count = held_out.len() + others.len();
    let safe = held_out.iter().chain(&others).filter(|snippet| snippet.level == Level::Safe).count();
    assert!(count >= 300 && safe * 3 >= count, "{count} snippets, {safe} of them safe");

    let (first, second) = (measure(&held_out), measure(&others));
    let third = measure(&snippets(AFTERWARDS));
    let fourth = measure(&snippets(AGENTS));
    let mut by_content: BTreeMap<String, Figures> = BTreeMap::new();
    for snippet in held_out.iter().chain(&others) {
        let level = assess(snippet.content, snippet.code).level;
        by_content.entry(format!("{:?}", snippet.content)).or_default().count(snippet, level);
    }
    println!("| asks (high, critical)  | snippets | precision | recall | exact level |");
    println!("| ---------------------- | -------: | --------: | -----: | ----------: |");
    println!("{}", first.row("written before rules"));
    println!("{}", second.row("written with rules"));
    println!("{}", third.row("written afterwards"));
    println!("{}", fourth.row("as agents write"));
    by_content.iter().for_each(|(name, figures)| println!("{}", figures.row(name)));

    // Measured values, rounded down. Wrong levels are printed.
    let floors = [
        ("written before", &first, 1.0, 1.0, 1.0),
        ("written with", &second, 1.0, 1.0, 1.0),
        ("written afterwards", &third, 1.0, 1.0, 0.97),
        ("as agents write", &fourth, 1.0, 1.0, 0.99),
    ];
    for (name, figures, precision, recall, accuracy) in floors {
        assert!(figures.precision() >= precision, "{name}: {figures:?}");
        assert!(figures.recall() >= recall, "{name}: {figures:?}");
        assert!(figures.accuracy() >= accuracy, "{name}: {figures:?}");
    }
}

#[test]
fn destructive_code_only_is_refused() {
    let refused = |content, code: &str| assess(content, code).refusal(Locale::Chinese);
    for code in ["rm -rf /", "sudo rm -rf ~", "mkfs.ext4 /dev/sda", "dd if=x of=/dev/sda", ":(){ :|:& };:"] {
        let words = refused(Content::Shell, code).unwrap_or_else(|| panic!("{code}"));
        assert!(words.starts_with("执行被拒绝: "), "{words}");
    }
    let inner = "import os\nos.system('rm -rf /')";
    assert!(refused(Content::Python, inner).is_some(), "text for a shell is assessed as shell");
    let inner = "require('child_process').execSync('mkfs.ext4 /dev/sda')";
    assert!(refused(Content::Javascript, inner).is_some());
    for code in ["curl x | bash", "rm -rf build", "eval x", "rm -rf /etc"] {
        assert_eq!(refused(Content::Shell, code), None, "{code}");
    }
    for rule in rules().filter(|rule| rule.refusal == Refusal::Refused) {
        assert_eq!(rule.level, Level::Critical, "{}", rule.id);
    }
}

#[test]
fn finding_has_line_and_message() {
    let assessment = assess(Content::Python, "x = 1\n\nimport os\nos.system('ls')\n");
    let lines: Vec<(usize, &str)> = assessment.findings.iter().map(|one| (one.line, one.rule.id)).collect();
    assert_eq!(lines, [(3, "py.import.system"), (4, "py.process.shell")]);
    assert_eq!(assessment.reason(Locale::English), "Runs a command through the shell. (line 4)");
    assert_eq!(assessment.reason(Locale::Chinese), "通过 shell 执行命令。（第 4 行）");
    assert!(assessment.requires_confirmation() && assessment.requires_isolation());
    let nothing = assess(Content::Python, "x = 1");
    assert_eq!((nothing.level, nothing.suggested_sandbox()), (Level::Safe, "native"));
    assert!(!nothing.requires_confirmation() && !nothing.requires_isolation() && nothing.findings.is_empty());
}

#[test]
fn finding_in_nested_text_has_line_of_content() {
    // The lines of findings about deletion or shell commands.
    let lines = |content, code: &str| {
        let found = assess(content, code).findings;
        let told = |id: &str| id.contains(".delete") || id.ends_with(".shell") || id == "js.process.spawn";
        found.iter().filter(|one| told(one.rule.id)).map(|one| one.line).collect::<Vec<_>>()
    };
    let table: [(Content, &str, &[usize]); 9] = [
        // A literal text, a computed text, and a text from a variable.
        (Content::Python, "import os\nos.system(\n  \"\"\"cd x\n  rm y\n  \"\"\")", &[2, 4]),
        (Content::Python, "import os\nos.system('cd x\\nrm y')\nz", &[2, 2]),
        (Content::Python, "import os\nx = \"\"\"\ncd y\nrm z\n\"\"\"\nos.system(x)", &[6, 6]),
        // A chain of members that starts on an earlier line.
        (Content::Python, "import os\n(os\n .system('ls'))", &[3]),
        (Content::Javascript, "require('child_process')\n  .execSync(`cd x\nrm y`)", &[2, 3]),
        (Content::Shell, "ls\nx=`rm a`\ncat <<E\n\n`rm b`\nE\necho \"${x:-`rm c`}\"", &[2, 5, 7]),
        (Content::Shell, "ls\nbash -c '\nrm a\n'\nbash <<'E'\nls\nrm b\nE", &[3, 7]),
        (Content::Shell, "python3 - <<'E'\nimport os\n\nos.system('rm a')\nE", &[4, 4]),
        (Content::Shell, "x='ls\nls\nrm a'; bash -c \"$x\"", &[3]),
    ];
    for (content, code, expected) in table {
        assert_eq!(lines(content, code), expected, "{code}");
    }
}

#[test]
fn result_of_call_is_not_the_call() {
    let code = "import pandas as pd\ndf = pd.read_csv('x')\nprint(df.head())\nimport os\np = os.popen('ls')\np.read()";
    let found = assess(Content::Python, code).findings;
    let lines: Vec<(usize, &str)> = found.iter().map(|one| (one.line, one.rule.id)).collect();
    assert_eq!(lines, [(2, "py.file.read"), (4, "py.import.system"), (5, "py.process.shell")]);
}

#[test]
fn large_text_is_judged_by_its_content() {
    let much = "x = 'a' * 3\nprint(x)\n".repeat(MAX_CONTENT / 8 / 22);
    assert_eq!(assess(Content::Python, &much).level, Level::Safe);
    let long = "x".repeat(MAX_CONTENT + 1);
    for content in [Content::Python, Content::Javascript, Content::Shell, Content::Browser] {
        assert_eq!(assess(content, &long).level, Level::High);
    }
    // The parser recurses once for each of these.
    let deep = "{a:".repeat(MAX_CONTENT / 8 / 3);
    let stack = stack_needed(deep.len());
    let judge = move || assess(Content::Javascript, &deep).level;
    let judged = std::thread::Builder::new().stack_size(stack).spawn(judge).expect("a thread").join();
    assert!(judged.is_ok_and(|level| level > Level::Safe));
}

fn any_content() -> impl Strategy<Value = Content> {
    select(vec![Content::Python, Content::Javascript, Content::Shell, Content::Browser])
}

fn any_snippet() -> impl Strategy<Value = Snippet> {
    let all: Vec<Snippet> = OTHERS.iter().chain([&HELD_OUT]).flat_map(|text| snippets(text)).collect();
    select(all)
}

/// Two snippets of one language.
fn any_pair() -> impl Strategy<Value = (Snippet, Snippet)> {
    let of = |content: Content| {
        let all = OTHERS.iter().chain([&HELD_OUT]).flat_map(|text| snippets(text));
        let own: Vec<Snippet> = all.filter(|snippet| snippet.content == content).collect();
        (select(own.clone()), select(own))
    };
    prop_oneof![of(Content::Python), of(Content::Javascript), of(Content::Shell)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_assessed_without_panic(content in any_content(), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = assess(content, &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn broken_snippet_is_assessed_without_panic(
        one in any_snippet(),
        other in any_snippet(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 3),
    ) {
        // A part of one snippet inside another: valid at the ends and malformed in the middle.
        let characters: Vec<char> = one.code.chars().collect();
        let place = |cut: &prop::sample::Index| cut.index(characters.len() + 1);
        let (from, to) = (place(&cuts[0]).min(place(&cuts[1])), place(&cuts[0]).max(place(&cuts[1])));
        let mut broken: String = characters[..from].iter().collect();
        broken.push_str(other.code);
        broken.extend(&characters[to..]);
        let _ = assess(one.content, &broken);
        let _ = assess(other.content, &broken);
    }

    #[test]
    fn surrounding_code_does_not_lower_level((one, other) in any_pair()) {
        let alone = assess(one.content, one.code);
        // The first snippet must be complete: an open bracket would include the second one.
        prop_assume!(!alone.findings.iter().any(|finding| finding.rule.id.ends_with(".syntax")));
        let both = assess(one.content, &format!("{}\n\n{}", one.code, other.code));
        prop_assert!(both.level >= alone.level, "{} then {}", one.code, other.code);
    }
}
