//! How a command uses a file that it names, and the operators of `test` that examine files.

/// Ordered: a file that is named twice has the greater use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    Written,
    /// A pattern, or a word with a part that is known only at run time; the path is its fixed part.
    Unclear,
    Read,
    /// A program, a script or a sourced file.
    Script,
}

/// Operators of `test` that examine one file and two files.
const ONE_FILE: &str = "bcdefghkprsuwxGLNOS";
const TWO_FILES: [&str; 3] = ["-nt", "-ot", "-ef"];

pub fn asks_about_file(operator: &str) -> bool {
    let mut letters = operator.strip_prefix('-').unwrap_or_default().chars();
    letters.next().is_some_and(|letter| ONE_FILE.contains(letter)) && letters.next().is_none()
}

pub fn compares_files(operator: &str) -> bool {
    TWO_FILES.contains(&operator)
}
