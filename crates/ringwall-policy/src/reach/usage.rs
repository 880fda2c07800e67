//! How a command uses a file that it names: it runs, reads or only writes it.
//!
//! An approval includes the content of files that are run or read. A file counts as read unless the
//! command is known to write it without reading it, so an approval for an unknown command includes
//! all files that it names.

pub use ringwall_risk::shell_syntax::FileUse;

use super::options::Operand;
use super::table::Row;

/// Commands that create, change or remove all of their operands without reading them.
const WRITES_ALL: &str = "rm unlink rmdir shred sync fsync mkdir mkfifo mknod touch truncate fallocate mktemp tee sponge chmod \
                          chown chgrp chcon chattr setfacl del erase rd md attrib";
/// Commands that write their last operand and read the others.
const WRITES_LAST: &str = "cp mv ln install scp rsync copy move xcopy robocopy";
/// Options whose value is a written file, by command.
const WRITING_OPTIONS: [(&str, &str); 12] = [
    ("tree sort shuf iconv xmllint time http https xh rustc", "o output out-dir"),
    ("gcc g++ cc c++ clang clang++ tcc cpp ld as", "o -MF"),
    ("gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd lz4 brotli compress uncompress", "o output output-dir-flat"),
    ("less more most", "o O log-file"),
    ("patch", "o r B output reject-file"),
    ("curl", "o c D output output-dir cookie-jar dump-header trace trace-ascii"),
    ("wget", "O P o a output-document directory-prefix output-file append-output save-cookies"),
    ("cp mv ln install", "t target-directory"),
    ("rsync", "T log-file temp-dir partial-dir backup-dir write-batch"),
    ("unzip zipinfo", "d"),
    ("cpio", "O"),
    ("docker podman nerdctl", "iidfile cidfile"),
];

fn has(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|known| known == name)
}

/// Marks the plain operands that the command only writes; `plain` has their indices.
pub(super) fn mark_written(command: &str, operands: &mut [Operand<'_>], plain: &[usize]) {
    let has_target = operands.iter().any(|operand| operand.usage == FileUse::Written);
    let written: &[usize] = match plain {
        _ if has(WRITES_ALL, command) => plain,
        [_, .., last] if has(WRITES_LAST, command) && !has_target => std::slice::from_ref(last),
        _ => &[],
    };
    for &at in written {
        operands[at].usage = FileUse::Written;
    }
}

/// The use of an option's value that is a path. The value of an option that replaces the program,
/// such as `awk -f`, is a script.
pub(super) fn of_option(command: &str, row: &Row, option: &str) -> FileUse {
    if WRITING_OPTIONS.iter().any(|(commands, options)| has(commands, command) && has(options, option)) {
        FileUse::Written
    } else if has(row.replacing, option) || has("rcfile init-file -rcfile", option) {
        FileUse::Script
    } else {
        FileUse::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::options::read_operands;

    fn uses(line: &str) -> Vec<(String, FileUse)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let operands = read_operands(&words[0], &words[1..]);
        operands.into_iter().map(|operand| (operand.word.to_owned(), operand.usage)).collect()
    }

    #[test]
    fn operand_has_use_by_command() {
        use FileUse::{Read, Script, Written};
        let table: [(&str, &[(&str, FileUse)]); 18] = [
            ("cat a b", &[("a", Read), ("b", Read)]),
            ("bash -x s.sh /y", &[("s.sh", Script), ("/y", Read)]),
            ("bash --rcfile r s.sh", &[("r", Script), ("s.sh", Script)]),
            ("source s.sh", &[("s.sh", Script)]),
            (". ./s.sh", &[("./s.sh", Script)]),
            ("python3 s.py ./in", &[("s.py", Script), ("./in", Read)]),
            ("node x.js", &[("x.js", Script)]),
            ("awk -f p in", &[("p", Script), ("in", Read)]),
            ("tee out", &[("out", Written)]),
            ("rm -f a b", &[("a", Written), ("b", Written)]),
            ("touch -r ref new", &[("ref", Read), ("new", Written)]),
            ("cp a b", &[("a", Read), ("b", Written)]),
            ("cp -t dir a b", &[("dir", Written), ("a", Read), ("b", Read)]),
            ("cp a", &[("a", Read)]),
            ("sort -o out in", &[("out", Written), ("in", Read)]),
            ("curl -o out -T in https://h/", &[("out", Written), ("in", Read)]),
            ("dd if=in of=out", &[("in", Read), ("out", Written)]),
            ("frob ./x", &[("./x", Read)]),
        ];
        for (line, expected) in table {
            let expected: Vec<_> = expected.iter().map(|(word, usage)| ((*word).to_owned(), *usage)).collect();
            assert_eq!(uses(line), expected, "{line}");
        }
    }
}
