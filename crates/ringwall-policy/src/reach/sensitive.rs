//! Warnings about paths that are risky to allow.
//!
//! A warning does not forbid the path. Some paths are risky only as a whole (`/var/log`, but not
//! `/var/log/app`), others including everything below.

use ringwall_risk::Locale;

use super::host_path::{HostPath, PathStyle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The path itself.
    Whole,
    /// The path and everything below it.
    Tree,
}

use Extent::{Tree, Whole};

/// In English and in Chinese.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sentence(&'static str, &'static str);

impl Sentence {
    pub(super) fn text(self, locale: Locale) -> &'static str {
        match locale {
            Locale::English => self.0,
            Locale::Chinese => self.1,
        }
    }
}

const DEVICES: Sentence = Sentence(
    "These are devices and sockets of the running machine; a program that opens them can act on it directly.",
    "这里是运行中机器的设备和套接字，打开它们就能直接操作这台机器。",
);
const PROGRAMS: Sentence = Sentence(
    "The system's programs and libraries are here; writing here changes what other users run.",
    "这里是系统的程序和库，在此写入会改变其他人运行的内容。",
);
const KEYS: Sentence = Sentence(
    "Keys and credentials are kept here; a program that reads them can act as another user.",
    "这里保存着密钥和凭据，读取者可以冒用他人身份。",
);
const MACHINE: Sentence = Sentence(
    "This shows the running machine: its processes, their memory and its settings.",
    "由此可以看到运行中的机器：进程、内存和系统设置。",
);
const MACOS: Sentence = Sentence(
    "The system's own files are here; writing here changes the machine itself.",
    "这里是系统自身的文件，在此写入会改变整台机器。",
);
const WINDOWS: Sentence = Sentence(
    "The system's own files are here; writing here changes Windows itself.",
    "这里是系统自身的文件，在此写入会改变 Windows 本身。",
);
const INSTALLED: Sentence = Sentence(
    "Installed programs and their settings are here; writing here changes what other users run.",
    "这里是已安装的程序及其设置，在此写入会改变其他人运行的内容。",
);
const SERVICES: Sentence = Sentence(
    "Services keep their state here, including databases and containers.",
    "各项服务在此保存状态，其中包括数据库和容器。",
);
const WHOLE_MACHINE: Sentence =
    Sentence("This is the whole machine: every file of every user.", "这是整台机器：所有用户的所有文件。");
const CONFIGURATION: Sentence = Sentence(
    "The machine's configuration is here, with accounts, password hashes and keys.",
    "这里是机器的配置，包括账户、密码哈希和密钥。",
);
const ADMINISTRATOR: Sentence =
    Sentence("This is the administrator's home, with keys and history.", "这是管理员的主目录，包含密钥和历史记录。");
const START: Sentence = Sentence(
    "The machine starts from here; writing here gives control of it after the next start.",
    "机器从这里启动，在此写入者会在下次启动后控制整台机器。",
);
const STATE: Sentence = Sentence(
    "Logs, mail, databases and the state of every service are here.",
    "这里是日志、邮件、数据库和各项服务的状态。",
);
const LOGS: Sentence = Sentence(
    "The logs of the whole machine are here, with other users' actions and sometimes their secrets.",
    "这里是整台机器的日志，包含其他人的操作，有时还有机密信息。",
);
const SCHEDULER: Sentence = Sentence(
    "Commands in these files are run later by the machine's scheduler.",
    "写在这里的内容稍后会由系统的定时任务运行。",
);
const BACKUPS: Sentence =
    Sentence("Copies of the accounts and of the machine's configuration are here.", "这里是账户和机器配置的备份。");
const HOMES: Sentence =
    Sentence("These are the homes of all users of this machine.", "这里是这台机器上所有用户的主目录。");
const DISKS: Sentence = Sentence("Every mounted disk of this machine is here.", "这里是这台机器上挂载的所有磁盘。");
const DRIVE: Sentence =
    Sentence("This is a whole drive: every file of every user on it.", "这是整个驱动器：其中所有用户的所有文件。");
const SHARE: Sentence = Sentence(
    "This share is for administrators: it is a whole drive of that machine.",
    "这是管理用共享：它是那台机器的整个驱动器。",
);

const LINUX_ROOTS: [(&str, Extent, Sentence); 33] = [
    ("/", Whole, WHOLE_MACHINE),
    ("/etc", Tree, CONFIGURATION),
    ("/root", Tree, ADMINISTRATOR),
    ("/proc", Tree, MACHINE),
    ("/sys", Tree, MACHINE),
    ("/dev", Tree, DEVICES),
    ("/run", Tree, DEVICES),
    ("/var/run", Tree, DEVICES),
    ("/boot", Tree, START),
    ("/var", Whole, STATE),
    ("/var/log", Whole, LOGS),
    ("/var/lib", Whole, SERVICES),
    ("/var/lib/docker", Tree, SERVICES),
    ("/var/lib/containerd", Tree, SERVICES),
    ("/var/lib/kubelet", Tree, SERVICES),
    ("/var/spool/cron", Tree, SCHEDULER),
    ("/var/backups", Tree, BACKUPS),
    ("/usr", Tree, PROGRAMS),
    ("/bin", Tree, PROGRAMS),
    ("/sbin", Tree, PROGRAMS),
    ("/lib", Tree, PROGRAMS),
    ("/lib32", Tree, PROGRAMS),
    ("/lib64", Tree, PROGRAMS),
    ("/libx32", Tree, PROGRAMS),
    ("/opt", Whole, INSTALLED),
    ("/home", Whole, HOMES),
    ("/Users", Whole, HOMES),
    ("/mnt", Whole, DISKS),
    ("/media", Whole, DISKS),
    ("/System", Tree, MACOS),
    ("/Library", Tree, MACOS),
    ("/private", Tree, MACOS),
    ("/Applications", Tree, INSTALLED),
];

/// Relative to a drive.
const WINDOWS_ROOTS: [(&str, Extent, Sentence); 9] = [
    ("", Whole, DRIVE),
    ("windows", Tree, WINDOWS),
    ("program files", Tree, INSTALLED),
    ("program files (x86)", Tree, INSTALLED),
    ("programdata", Tree, INSTALLED),
    ("system volume information", Tree, WINDOWS),
    ("users", Whole, HOMES),
    ("documents and settings", Whole, HOMES),
    (r"users\administrator", Tree, ADMINISTRATOR),
];

/// Names of files and directories with keys, in any directory.
const KEEPERS_OF_KEYS: [&str; 12] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".vault-token",
    ".mozilla",
];

pub(super) fn warning(path: &HostPath) -> Option<Sentence> {
    let key = path.key();
    let found = match path.style() {
        PathStyle::Linux => sentence(&LINUX_ROOTS, &key, '/'),
        PathStyle::Windows if key.starts_with(r"\\") => {
            let is_administrative = path.names().nth(1).is_some_and(|share| share.ends_with('$'));
            is_administrative.then_some(SHARE)
        }
        PathStyle::Windows => sentence(&WINDOWS_ROOTS, key.get(3..).unwrap_or_default(), '\\'),
    };
    let keeps_keys = || path.names().any(|name| KEEPERS_OF_KEYS.iter().any(|known| name.eq_ignore_ascii_case(known)));
    found.or_else(|| keeps_keys().then_some(KEYS))
}

fn sentence(roots: &[(&str, Extent, Sentence)], path: &str, separator: char) -> Option<Sentence> {
    let is_meant = |(root, extent, _): &&(&str, Extent, Sentence)| match path.strip_prefix(root) {
        Some("") => true,
        Some(rest) => *extent == Tree && rest.starts_with(separator),
        None => false,
    };
    roots.iter().find(is_meant).map(|(_, _, sentence)| *sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::normalise;

    #[test]
    fn warning_is_translated() {
        let etc = normalise("/etc", "/", None).expect("a path");
        assert_eq!(etc.warning(), etc.warning_in(Locale::English));
        let chinese = etc.warning_in(Locale::Chinese).expect("a warning");
        assert!(chinese.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)), "{chinese}");
    }

    fn warns(text: &str) -> bool {
        normalise(text, "/workspace", Some("/home/u")).expect("a path").warning().is_some()
    }

    #[test]
    fn sensitive_path_has_warning() {
        for text in [
            "/",
            "/etc",
            "/etc/",
            "/etc/nginx",
            "/home/../etc/shadow",
            "/root",
            "/root/.bashrc",
            "/proc",
            "/proc/1",
            "/sys",
            "/dev/sda",
            "/var/log",
            "/var",
            "/boot",
            "/run/docker.sock",
            "/usr",
            "/usr/local/bin",
            "/bin",
            "/home",
            "~/.ssh",
            "/home/u/.ssh/id_ed25519",
            "/srv/backup/.aws/credentials",
            r"C:\",
            r"d:\",
            r"C:\Windows",
            r"c:\windows\System32\config\SAM",
            r"C:\Program Files\SomeApp",
            r"C:\Users",
            r"C:\Users\Administrator",
            r"C:\Users\me\.ssh",
            r"\\server\C$\x",
            "/System",
            "/Library/x",
            "/private",
        ] {
            assert!(warns(text), "{text}");
        }
        for text in [
            "/home/u",
            "/home/u/etc",
            "/etcetera",
            "/rooted",
            "/var/log/app",
            "/var/www/html",
            "/opt/app/config",
            "/srv",
            "/tmp/app",
            "/workspace/.sshx",
            r"C:\Users\Documents",
            r"C:\WindowsOld",
            r"D:\Projects",
            r"\\server\share",
        ] {
            assert!(!warns(text), "{text}");
        }
    }
}
