//! Fuzzes the risk assessment and the command rules with mutated texts: parts of the labelled
//! snippets, of the tables of lines and of hostile shapes, cut, spliced, repeated, nested, quoted
//! into other languages and mixed with unusual characters.
//!
//! Each case depends only on its number. A failure names it, and `RINGWALL_SEED=number` runs it
//! again; after a stack overflow the thread's name contains the number. `RINGWALL_SOAK=1` runs
//! 20,000 cases from `RINGWALL_SEED` on, and longer texts.

#![expect(clippy::panic, clippy::expect_used, reason = "a failed assumption is a failed test")]

use std::time::{Duration, Instant};

use ringwall_policy::{CommandLine, CommandLists, blocked};
use ringwall_risk::{Content, Level, Locale, assess, stack_needed};
use shapes::Shape;

#[path = "../../ringwall-risk/src/shapes.rs"]
mod shapes;

const CASES: u64 = 200;
const CASES_IN_SOAK: u64 = 20_000;
const MAX_LEN: usize = 8 * 1024;
const MAX_IN_SOAK: usize = 192 * 1024;

const SNIPPETS: [&str; 6] = [
    include_str!("../../ringwall-risk/tests/snippets/python.txt"),
    include_str!("../../ringwall-risk/tests/snippets/javascript.txt"),
    include_str!("../../ringwall-risk/tests/snippets/shell.txt"),
    include_str!("../../ringwall-risk/tests/snippets/browser.txt"),
    include_str!("../../ringwall-risk/tests/snippets/held_out.txt"),
    include_str!("../../ringwall-risk/tests/snippets/agents.txt"),
];
const LINES: [&str; 4] = [
    include_str!("lines/ordinary.txt"),
    include_str!("lines/asked.txt"),
    include_str!("lines/unasked.txt"),
    include_str!("lines/refused.txt"),
];

/// Openings and closings of all languages.
const PAIRS: [(&str, &str); 26] = [
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ("f(", ")"),
    ("{a:", "}"),
    ("`${", "}`"),
    ("f'{", "}'"),
    ("$(", ")"),
    ("\"$(", ")\""),
    ("${x:-", "}"),
    ("(lambda x: ", ")(x)"),
    ("if x:\n ", "\n"),
    ("x => {", "}"),
    ("[x for x in ", "]"),
    ("getattr(", ", 'a')"),
    ("a.then(x => ", ")"),
    ("if ls; then ", "; fi"),
    ("for x in a; do ", "; done"),
    ("f() { ", "; }"),
    ("cat <<E\n", "\nE\n"),
    ("def f():\n return ", "\n"),
    ("function f() { return ", " }"),
    ("x = ", "\n"),
    ("self.x = ", "\n"),
    ("'a' + ", " + 'b'"),
    ("class A { a() { ", " } }"),
];

/// Texts of one language that contain a text of another; `@` marks its place.
const HOLDERS: [(&str, &str); 14] = [
    ("python", "import os\nos.system('''@''')\n"),
    ("python", "exec(\"\"\"@\"\"\")\n"),
    ("python", "x = '''@'''\neval(x)\n"),
    ("python", "import subprocess\nsubprocess.run('''@''', shell=True)\n"),
    ("javascript", "eval(`@`);\n"),
    ("javascript", "require('child_process').execSync(`@`);\n"),
    ("javascript", "setTimeout('@', 1);\n"),
    ("shell", "bash -c '@'\n"),
    ("shell", "python3 -c '@'\n"),
    ("shell", "node -e '@'\n"),
    ("shell", "bash <<'E'\n@\nE\n"),
    ("shell", "python3 - <<'E'\n@\nE\n"),
    ("shell", "ls | xargs -I{} sh -c '@'\n"),
    ("shell", "eval \"@\"\n"),
];

const ODD: [&str; 24] = [
    "\0",
    "\r",
    "\\",
    "\\\n",
    "\\\r",
    "'",
    "\"",
    "`",
    "'''",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\u{1F980}",
    "\u{301}",
    "\t",
    "\u{2028}",
    "$",
    "#",
    "/*",
    "<<E\n",
    "{",
    "}",
    "\u{fdfa}",
    "\n",
];

/// Pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).expect("a small number")
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// An index on a character boundary.
    fn place(&mut self, text: &str) -> usize {
        let at = self.below(text.len() + 1);
        (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
    }

    fn part<'a>(&mut self, text: &'a str) -> &'a str {
        let (one, other) = (self.place(text), self.place(text));
        &text[one.min(other)..one.max(other)]
    }
}

struct Stock {
    /// Each with its language.
    texts: Vec<(&'static str, &'static str)>,
    shapes: Vec<Shape>,
}

impl Stock {
    fn new() -> Self {
        let mut texts = Vec::new();
        for block in SNIPPETS.iter().flat_map(|text| text.trim_end().split("\n=====\n")) {
            let (head, code) = block.split_once('\n').unwrap_or((block, ""));
            texts.push((head.split(' ').next().unwrap_or_default(), code));
        }
        texts.extend(LINES.iter().flat_map(|text| text.trim_end().split("\n---\n")).map(|line| ("shell", line)));
        Stock { texts, shapes: Shape::all() }
    }
}

/// Returns a language and a text.
fn compose(stock: &Stock, random: &mut Random, longest: usize) -> (&'static str, String) {
    let (mut language, first) = *random.of(&stock.texts);
    let mut text = first.to_owned();
    for _ in 0..=random.below(8) {
        let at = random.place(&text);
        let part = random.part(&text).to_owned();
        let (_, other) = *random.of(&stock.texts);
        match random.below(10) {
            0 => text.insert_str(at, random.part(other)),
            1 => text.insert_str(at, other),
            2 => text = text.replacen(&part, "", 1),
            3 => text.truncate(at),
            4 => {
                let times = 1 + random.below(longest / (part.len() + 1));
                let times = if random.below(2) == 0 { times.min(20) } else { times };
                text.insert_str(at, &part.repeat(times));
            }
            5 => {
                let (open, close) = *random.of(&PAIRS);
                let depth = 1 + random.below(longest / (open.len() + close.len()));
                let depth = if random.below(2) == 0 { depth.min(12) } else { depth };
                let closed = random.below(depth + 1).max(if random.below(4) == 0 { 0 } else { depth });
                let nested = format!("{}{part}{}", open.repeat(depth), close.repeat(closed));
                text.insert_str(at, &nested);
            }
            6 => {
                let (outer, holder) = *random.of(&HOLDERS);
                text = holder.replace('@', &text);
                language = outer;
            }
            7 => (0..=random.below(6)).for_each(|_| {
                let at = random.place(&text);
                let odd: &str = random.of::<&str>(&ODD);
                text.insert_str(at, odd);
            }),
            8 => {
                let length = 64 + random.below(longest - 64);
                let shape = random.of(&stock.shapes);
                text.insert_str(at, &shape.text(length));
                language = if random.below(2) == 0 { shape.language } else { language };
            }
            _ => text = text.replace('\n', "\n "),
        }
        if text.len() > longest {
            let end = (0..=longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.truncate(end);
        }
    }
    (language, text)
}

fn content(language: &str) -> Content {
    let read = serde_json::from_value(serde_json::Value::from(language));
    read.unwrap_or_else(|_| panic!("{language}"))
}

/// Asserts what holds for every text.
fn judge(content: Content, text: &str, twice: bool) {
    let assessment = assess(content, text);
    let found = &assessment.findings;
    let last = text.lines().count().max(1);
    assert!(found.iter().all(|one| (1..=last).contains(&one.line)), "a line outside of the text");
    assert!(found.is_sorted_by_key(|one| one.line), "sorted by line");
    assert_eq!(assessment.level, found.iter().map(|one| one.rule.level).max().unwrap_or(Level::Safe));
    assert!(!assessment.reason(Locale::English).is_empty() && !assessment.reason(Locale::Chinese).is_empty());
    assert!(assessment.refusal(Locale::English).is_none() || assessment.level == Level::Critical);
    if twice {
        let again = assess(content, text);
        assert_eq!((assessment.level, found), (again.level, &again.findings), "the same text has the same result");
    }
    if let Ok(line) = CommandLine::read(text) {
        let _ = line.check(&CommandLists::default());
        let _ = line.wants_network();
        let named = line.operands("/workspace", "/home/sandbox").unwrap_or_default();
        let _ = blocked(&named, &[]);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn mutated_text_is_judged_without_panic() {
    let is_soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    let seed = number("RINGWALL_SEED");
    let longest = if is_soak { MAX_IN_SOAK } else { MAX_LEN };
    let first = seed.unwrap_or(0);
    let cases = match (is_soak, seed) {
        (true, _) => CASES_IN_SOAK,
        (false, Some(_)) => 1,
        (false, None) => CASES,
    };
    let stock = Stock::new();
    let mut slowest = (Duration::ZERO, 0, 0);
    for seed in first..first + cases {
        // Also in soak mode most texts are short, because unusual input matters more than long
        // input.
        let longest = if seed % 8 == 0 { longest } else { MAX_LEN };
        let (language, text) = compose(&stock, &mut Random(seed), longest);
        let length = text.len();
        let work = move || judge(content(language), &text, seed % 16 == 0);
        let thread = std::thread::Builder::new().name(format!("RINGWALL_SEED={seed}")).stack_size(stack_needed(length));
        let begun = Instant::now();
        let ended = thread.spawn(work).expect("a thread").join();
        assert!(ended.is_ok(), "RINGWALL_SEED={seed} {}", if is_soak { "RINGWALL_SOAK=1" } else { "" });
        slowest = slowest.max((begun.elapsed(), seed, length));
    }
    println!("{cases} cases; the slowest took {:?}: {} with {} bytes", slowest.0, slowest.1, slowest.2);
}
