//! Which words of which command are paths, as data: one row for commands that are read alike.
//!
//! Options are separated by spaces: a letter, a long name, or a whole word with one dash
//! (`-isystem`). A trailing `=` means that the value can only be in the same word. Flags are not
//! listed.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Every operand is a path.
    Files,
    /// No operand is a path.
    Nothing,
    /// Operands that look like paths are paths.
    Perhaps,
    /// The first operand is a path.
    OneFile,
    /// All operands but the first are paths; the first is a pattern, a program, a mode or an owner.
    /// An option may replace it.
    TextThenFiles,
    /// The first operand is the script, and the words after it are the script's own; or an option
    /// replaces the script.
    Script,
    /// All operands but `host:path` are paths.
    LocalFiles,
    /// All operands but Windows switches (`/x`) are paths.
    FilesAndSwitches,
    /// The first operand is another command, which owns the words after it.
    Command,
}

use Takes::{Command, Files, FilesAndSwitches, LocalFiles, Nothing, OneFile, Perhaps, Script, TextThenFiles};

#[derive(Debug)]
pub(super) struct Row {
    pub(super) names: &'static str,
    pub(super) takes: Takes,
    /// Options whose value is a path.
    pub(super) paths: &'static str,
    /// Options with another value.
    pub(super) values: &'static str,
    /// Options whose value is a path after `@`.
    pub(super) uploads: &'static str,
    /// Options that replace the first operand.
    pub(super) replacing: &'static str,
}

const fn row_of(names: &'static str, takes: Takes, paths: &'static str, values: &'static str) -> Row {
    Row { names, takes, paths, values, uploads: "", replacing: "" }
}

impl Row {
    const fn replaced_by(self, replacing: &'static str) -> Self {
        Self { replacing, ..self }
    }

    const fn uploading(self, uploads: &'static str) -> Self {
        Self { uploads, ..self }
    }
}

const ROWS: &[Row] = &[
    // Listing.
    row_of("ls vdir eza exa lsd", Files, "", "I w T ignore hide width tabsize block-size time-style sort"),
    row_of("dir", FilesAndSwitches, "", "I w T ignore hide width tabsize"),
    row_of("tree", Files, "o fromfile", "L I P H T charset filelimit timefmt sort"),
    row_of("stat", Files, "", "c f= format printf"),
    row_of("du", Files, "X exclude-from files0-from", "B d t block-size max-depth threshold exclude time-style"),
    row_of("df", Files, "", "B t x block-size type exclude-type output"),
    row_of("file", Files, "f m files-from magic-file", "F P e separator exclude parameter"),
    row_of("readlink realpath", Files, "relative-to relative-base", ""),
    row_of("namei lsattr getfacl getfattr mountpoint lsof fuser ncdu pathchk", Files, "", "n d"),
    row_of("chattr", TextThenFiles, "", "v p"),
    row_of("setfacl", Files, "M X restore", "m x modify remove"),
    // Contents.
    row_of("cat rev", Files, "", ""),
    row_of("bat batcat", Files, "", "l r language line-range style theme"),
    row_of("tac", Files, "", "s separator"),
    row_of("nl", Files, "", "b d f h i l n s v w number-separator"),
    row_of("fold fmt", Files, "", "w width"),
    row_of("pr", Files, "", "h l o w header length indent width"),
    row_of("expand unexpand", Files, "", "t tabs"),
    row_of("head tail", Files, "", "n c s lines bytes sleep-interval pid max-unchanged-stats"),
    row_of("less more most", Files, "o O k log-file lesskey-file", "p P j x y z b h n= t T pattern prompt tabs"),
    row_of("wc", Files, "files0-from", "total"),
    row_of("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum sum", Files, "", ""),
    row_of("b2sum cksum", Files, "", "a l algorithm length"),
    row_of(
        "sort",
        Files,
        "o T output temporary-directory files0-from",
        "k t S key field-separator buffer-size \
        parallel batch-size sort compress-program random-source",
    ),
    row_of("uniq", Files, "", "f s w skip-fields skip-chars check-chars"),
    row_of("comm", Files, "", "output-delimiter"),
    row_of("paste", Files, "", "d delimiters"),
    row_of("join", Files, "", "t o e a v j 1 2"),
    row_of("column", Files, "", "s o N H R c separator output-separator table-columns output-width"),
    row_of("cut", Files, "", "d f b c delimiter fields bytes characters output-delimiter"),
    row_of("shuf", Files, "o output random-source", "n i head-count input-range"),
    row_of(
        "diff diff3 sdiff colordiff",
        Files,
        "X S exclude-from starting-file from-file to-file",
        "U C x I L F W \
        context= unified= exclude ignore-matching-lines label show-function-line width color=",
    ),
    row_of("cmp", Files, "", "i n ignore-initial bytes"),
    row_of("patch", Files, "i d o r B input directory output reject-file", "p F D z strip fuzz suffix"),
    row_of("tee sponge", Files, "", ""),
    row_of("xxd", Files, "", "c g l o s n R cols groupsize len seek"),
    row_of("od hexdump hd", Files, "", "A j N S t w= e n s address-radix skip-bytes read-bytes format"),
    row_of("strings", Files, "", "n t e T bytes radix encoding target"),
    row_of("base32 base64", Files, "", "w wrap"),
    row_of("iconv", Files, "o output", "f t from-code to-code"),
    row_of(
        "split",
        Files,
        "",
        "a b C l n t bytes line-bytes lines number suffix-length additional-suffix separator \
        filter",
    ),
    row_of("csplit sqlite3 mknod", OneFile, "", "b f n m"),
    row_of("xmllint", Files, "o output schema dtdvalid relaxng path", "xpath encode -xpath pattern"),
    row_of("dos2unix unix2dos tsort zcat bzcat xzcat zstdcat", Files, "", ""),
    // Patterns and programs.
    row_of(
        "grep egrep fgrep zgrep zegrep zfgrep bzgrep xzgrep",
        TextThenFiles,
        "f file exclude-from",
        "e A B C m d \
        D \
        regexp after-context before-context context max-count include exclude exclude-dir label color= colour= \
        binary-files devices directories",
    )
    .replaced_by("e f regexp file"),
    row_of(
        "rg",
        TextThenFiles,
        "f file ignore-file pre",
        "e A B C m g t T j M E r d regexp after-context \
        before-context context max-count glob iglob type type-not threads max-columns encoding replace max-depth \
        sort sortr color colors engine max-filesize files=",
    )
    .replaced_by("e f regexp file files type-list"),
    row_of(
        "ag ack",
        TextThenFiles,
        "p path-to-ignore",
        "A B C m G g after before context max-count ignore \
        ignore-dir \
        file-search-regex depth color",
    ),
    row_of(
        "fd fdfind",
        TextThenFiles,
        "search-path base-directory C ignore-file",
        "e E t d j x X S max-depth \
        min-depth exclude extension type threads size changed-within changed-before owner color format",
    ),
    row_of("sed gsed", TextThenFiles, "f file", "e l i= expression line-length in-place=").replaced_by(
        "e f \
        expression file",
    ),
    row_of(
        "awk gawk mawk nawk",
        TextThenFiles,
        "f E i file exec include",
        "F v e l field-separator assign source \
        load",
    )
    .replaced_by("f e E file exec source"),
    row_of("jq yq", TextThenFiles, "f L from-file", "arg argjson indent e= i=").replaced_by("f from-file"),
    row_of("rename prename", TextThenFiles, "", "e").replaced_by("e"),
    row_of(
        "tr expr seq sleep yes factor numfmt cal which whereis whatis man apropos id groups whoami hostname uname \
        arch nproc uptime free ps top htop kill pkill pgrep killall tty stty clear tput logger wall write \
        mesg",
        Nothing,
        "",
        "",
    ),
    row_of("date", Nothing, "r f reference file", "d s date set"),
    row_of(
        "echo printf basename dirname : true false exit return break continue shift wait jobs fg bg disown \
        times",
        Nothing,
        "",
        "",
    ),
    row_of(
        "export declare typeset local readonly unset set shopt alias unalias read mapfile readarray getopts let \
        umask ulimit hash enable help caller dirs complete compgen bind history trap eval exec command builtin \
        coproc",
        Nothing,
        "",
        "",
    ),
    row_of("env printenv", Command, "C chdir", "u S unset split-string"),
    row_of("xargs", Command, "a arg-file", "d E I L n P s delimiter max-args max-chars max-procs max-lines replace="),
    row_of(
        "sudo doas timeout nice ionice nohup setsid stdbuf chrt taskset",
        Command,
        "chdir",
        "u g h p k s n c \
        adjustment signal kill-after user group",
    ),
    row_of("time", Command, "o output", "f format"),
    row_of("ssh sftp", Command, "i F E S", "p l o L R D J b c e m w W B I O Q"),
    // Creating and changing.
    row_of("rm unlink rmdir shred sync fsync", Files, "random-source", "n s iterations size"),
    row_of("cp mv", Files, "t target-directory", "S suffix backup= preserve= no-preserve reflink= sparse"),
    row_of("ln", Files, "t target-directory", "S suffix backup="),
    row_of("install", Files, "t target-directory", "m o g S mode owner group suffix"),
    row_of("mkdir mkfifo", Files, "", "m mode"),
    row_of("touch", Files, "r reference", "d t date time"),
    row_of("truncate fallocate", Files, "r reference", "s o l size offset length"),
    row_of("mktemp", Files, "p tmpdir", "suffix"),
    row_of("chmod", TextThenFiles, "reference", "").replaced_by("reference"),
    row_of("chown chgrp chcon", TextThenFiles, "reference", "from u r t l").replaced_by("reference u r t l"),
    row_of(
        "nano pico vi vim nvim view vimdiff emacs ed ex micro code",
        Files,
        "u S s i o= w W l load",
        "c T r= t= \
        cmd eval e f",
    ),
    row_of("source .", Script, "", ""),
    row_of("type copy move xcopy robocopy del erase rd md ren attrib notepad", FilesAndSwitches, "", ""),
    // Archives.
    row_of("unzip zipinfo", Files, "d", "P x="),
    row_of(
        "gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd lz4 brotli compress uncompress",
        Files,
        "o D output \
        output-dir-flat",
        "S T M b suffix threads memlimit",
    ),
    row_of("7z 7za 7zr unrar rar", TextThenFiles, "o", "p t m"),
    row_of("ar", TextThenFiles, "", ""),
    row_of("cpio", Files, "D F I O E directory file", "C H M R format owner"),
    // Interpreters.
    row_of("bash sh dash zsh ksh ash", Script, "rcfile init-file -rcfile", "c o O").replaced_by("c"),
    row_of("python pypy ipython", Script, "", "c m W X Q check-hash-based-pycs").replaced_by("c m"),
    row_of("perl", Script, "I", "e E M m F i= D C= l= 0=").replaced_by("e E"),
    row_of("ruby", Script, "I C", "e r E K x= W= i= F= encoding require").replaced_by("e"),
    row_of(
        "node nodejs deno bun",
        Script,
        "env-file experimental-loader import",
        "e p r eval print require C \
        conditions",
    )
    .replaced_by("e p eval print"),
    row_of("php", Script, "c t", "r d B R E S z").replaced_by("r"),
    row_of("lua luajit", Script, "", "e l").replaced_by("e"),
    row_of("rscript r", Script, "f file", "e").replaced_by("e f file"),
    row_of("java", Perhaps, "", "-cp -classpath"),
    row_of("tclsh expect pwsh powershell", Script, "f file", "c command").replaced_by("c f command file"),
    // Building.
    row_of(
        "make gmake ninja",
        Nothing,
        "C f I directory file makefile include-dir",
        "j= l= o W k= old-file new-file \
        what-if",
    ),
    row_of("cmake", Perhaps, "S B C P build install prefix toolchain", "D U G T A E target config j= preset"),
    row_of(
        "gcc g++ cc c++ clang clang++ tcc cpp ld as",
        Files,
        "o I L B -isystem -include -iquote -idirafter \
        -imacros -MF sysroot T",
        "D U l x W f m O= g= std -MT -MQ -Xlinker -arch -target -u -z -e -rpath",
    ),
    row_of(
        "rustc",
        Files,
        "o L out-dir sysroot",
        "C l A W D F O= crate-name crate-type edition emit target cfg \
        error-format",
    ),
    row_of(
        "cargo go npm yarn pnpm npx uv poetry gradle mvn kubectl helm terraform",
        Perhaps,
        "manifest-path target-dir prefix C f r t",
        "m e features F p",
    ),
    // Volumes and paths in a container are not read as paths of the host, because a box cannot
    // start containers.
    row_of(
        "docker podman nerdctl",
        Perhaps,
        "f file env-file iidfile cidfile",
        "v volume mount tmpfs w workdir e env p publish u user h hostname l label t tag name network entrypoint m \
        device volumes-from",
    ),
    row_of(
        "git",
        Perhaps,
        "C git-dir work-tree exec-path= separate-git-dir reference template F file",
        "c m S G L b \
        B \
        message format pretty= author date grep since until after before branch origin u upload-pack",
    ),
    row_of("pip", Perhaps, "e r c t editable requirement constraint target prefix root cache-dir", "i index-url"),
    row_of("svn hg", Perhaps, "R F file repository", "m r message revision"),
    // Network.
    row_of(
        "curl",
        Nothing,
        "o T K c D E output output-dir upload-file config cookie-jar dump-header cert key cacert \
        capath trace trace-ascii unix-socket netrc-file",
        "H X u A e w m x r C Y y z P Q U header request user \
        user-agent referer write-out max-time proxy range continue-at retry retry-delay connect-timeout resolve \
        interface url data-raw",
    )
    .uploading("d F b data data-binary data-urlencode data-ascii form json cookie"),
    row_of(
        "wget",
        Nothing,
        "O P o a i output-document directory-prefix output-file append-output input-file \
        ca-certificate certificate private-key load-cookies save-cookies post-file body-file",
        "t T U w Q A R D I X \
        B l header user password tries timeout user-agent wait quota accept reject post-data method cut-dirs level \
        base",
    ),
    row_of("http https xh", Perhaps, "o output session", "a A auth verify"),
    row_of("scp", LocalFiles, "i F S", "P o c l J D X"),
    row_of(
        "rsync",
        LocalFiles,
        "T exclude-from include-from files-from log-file password-file temp-dir partial-dir \
        backup-dir compare-dest copy-dest link-dest write-batch read-batch",
        "e f B M exclude include filter rsh \
        rsync-path chmod chown bwlimit port timeout max-size min-size out-format log-file-format suffix block-size \
        info debug",
    ),
    row_of("nc ncat netcat telnet ping dig host nslookup traceroute ip ifconfig", Nothing, "", ""),
    row_of("openssl gpg ssh-keygen ffmpeg ffprobe convert magick pandoc", Perhaps, "", ""),
];

/// The row of a program. `python3.11` has the row of `python`.
pub(super) fn row(name: &str) -> Option<&'static Row> {
    let find = |name: &str| ROWS.iter().find(|row| row.names.split(' ').any(|known| known == name));
    find(name).or_else(|| find(name.trim_end_matches(|end: char| end.is_ascii_digit() || matches!(end, '.' | '-'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_options_are_unique() {
        let mut names: Vec<&str> = ROWS.iter().flat_map(|row| row.names.split(' ')).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "a name occurs twice");
        for row in ROWS {
            let mut options: Vec<&str> = [row.paths, row.values, row.uploads]
                .iter()
                .flat_map(|names| names.split(' '))
                .map(|name| name.trim_end_matches('='))
                .filter(|name| !name.is_empty())
                .collect();
            options.sort_unstable();
            let all = options.len();
            options.dedup();
            assert_eq!(options.len(), all, "an option of {} occurs twice", row.names);
        }
    }

    #[test]
    fn promised_commands_have_a_row() {
        let promised = "cd ls dir find tree stat du cat rm cp mv touch mkdir rmdir ln chmod chown grep rg head tail \
            less \
            more wc sort diff tee dd tar zip unzip sed awk nano vim vi echo printf type del copy move xcopy python \
        python3 \
            bash sh git curl gcc rsync scp install truncate split md5sum sha256sum file realpath readlink basename \
        dirname \
            jq xxd od strings node perl ruby make source . pushd test [ python3.11 env sudo xargs timeout";
        for name in promised.split_ascii_whitespace() {
            let has_form = matches!(name, "cd" | "pushd" | "find" | "tar" | "zip" | "dd" | "test" | "[");
            assert!(has_form || row(name).is_some(), "{name}");
        }
    }
}
