//! Programs by their effect, as tables: those without a finding of their own (they read and print,
//! or are judged elsewhere), those that write, use the network or change the system, and those
//! whose subcommand decides.

use crate::shell_syntax::Next;

/// The effect of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Nothing,
    Writes,
    Deletes,
    Network,
    System,
    Container,
    Signals,
    Permissions,
    Privilege,
    Disk,
    Unknown,
}

use Deed::{Container, Deletes, Disk, Network, Nothing, Permissions, Privilege, Signals, System, Unknown, Writes};

const TOOLS: &[(Deed, &str)] = &[
    (
        Nothing,
        "ls dir cat tac head tail less more wc sort uniq cut tr grep egrep fgrep rg ag echo printf date cal pwd basename dirname \
         realpath readlink stat file seq sleep true false test diff cmp comm paste join fold fmt column nl rev od xxd hexdump \
         strings md5sum sha1sum sha256sum sha512sum cksum b2sum base64 base32 jq yq tree du df ps top htop id whoami who w users \
         groups uname hostname uptime free nproc lscpu lsblk lsof vmstat iostat which whereis type man help clear tput expr bc dc \
         factor yes numfmt shuf tsort pr look iconv zcat zgrep bzcat xzcat find fd xargs parallel time timeout nice nohup stdbuf \
         locale getconf tty stty logname arch history alias unalias hash sed awk gawk mawk perl ruby php lua printenv env \
         column ldd nm objdump readelf size pgrep pidof watch strace tldr apropos info cowsay exec logout bind complete compgen enable",
    ),
    (
        Writes,
        "touch mkdir cp mv ln install tee split csplit tar zip unzip gzip gunzip bzip2 bunzip2 xz unxz zstd 7z patch mktemp \
         mkfifo mknod ar convert magick ffmpeg pandoc wkhtmltopdf",
    ),
    (Deletes, "rm rmdir unlink shred srm truncate trash trash-put"),
    (
        Network,
        "curl wget nc ncat netcat socat ssh scp sftp ftp tftp telnet rsync ping traceroute tracepath mtr dig nslookup host whois nmap \
         masscan tcpdump tshark aria2c axel http https httpie lynx w3m links npx uvx pipx gh glab aws gcloud gsutil az kubectl \
         helm terraform ansible ansible-playbook heroku vercel netlify fly flyctl ssh-copy-id sshpass rclone s3cmd mail sendmail \
         mutt msmtp redis-cli psql mysql mongo mongosh ngrok cloudflared tor openvpn wg",
    ),
    (
        System,
        "systemctl service mount umount iptables ip6tables nft ufw firewall-cmd crontab at batch useradd userdel usermod groupadd \
         adduser deluser passwd chpasswd visudo reboot shutdown halt poweroff init telinit modprobe insmod rmmod sysctl chroot \
         nsenter unshare swapoff swapon ifconfig ip route hostnamectl timedatectl loginctl setenforce update-alternatives \
         ldconfig grub-install dpkg-reconfigure launchctl gdb ptrace bpftrace",
    ),
    (Container, "docker podman nerdctl buildah lxc ctr"),
    (Signals, "kill pkill killall killall5 skill xkill fuser"),
    (Permissions, "chmod chown chgrp setfacl chattr setcap chcon"),
    (Privilege, "sudo doas su pkexec runuser gosu sudoedit"),
    (
        Disk,
        "wipefs fdisk sfdisk sgdisk gdisk cfdisk parted blkdiscard cryptsetup hdparm badblocks mkswap lvremove vgremove pvremove zpool",
    ),
];

/// Programs whose subcommand decides: the subcommands that use the network, then those that only
/// read. `*` stands for all others.
const BY_VERB: &[(&str, &str, &str)] = &[
    ("pip pip3", "install download wheel index search", "list show freeze check --version -V help config"),
    (
        "npm pnpm yarn",
        "install i ci add update upgrade publish exec dlx create init audit login outdated",
        "ls list --version -v view why help",
    ),
    ("apt apt-get aptitude yum dnf apk brew pacman zypper snap flatpak port", "*", "list show search --version info"),
    ("conda mamba micromamba", "install create update search", "list info --version"),
    ("uv poetry pdm", "add sync pip install lock publish update tool run", "--version tree version"),
    ("cargo", "install add publish update search fetch login", "--version -V tree metadata help"),
    ("go", "get install mod", "version env vet list doc"),
    ("gem bundle composer", "install update push publish require", "list --version info"),
    ("docker podman nerdctl", "", "ps images version info logs inspect --version"),
    ("systemctl", "", "status is-active list-units show is-enabled"),
    ("service", "", "--status-all"),
    ("crontab", "", "-l"),
    ("ip", "", "addr a route link neigh"),
    (
        "git",
        "clone pull fetch ls-remote submodule",
        "status log diff show rev-parse blame describe ls-files ls-tree grep shortlog reflog cat-file --version help rev-list whatchanged count-objects name-rev merge-base for-each-ref",
    ),
];

pub(super) fn deed(name: &str, arguments: &[String]) -> Deed {
    let has = |list: &str, word: &str| list.split_ascii_whitespace().any(|one| one == word);
    let verb = verb(name, arguments);
    let general = TOOLS.iter().find(|(_, names)| has(names, name)).map_or(Unknown, |(deed, _)| *deed);
    match BY_VERB.iter().find(|(names, ..)| has(names, name)) {
        Some((_, _, reading)) if has(reading, verb) => Nothing,
        Some((_, reaching, _)) if *reaching == "*" || has(reaching, verb) => Network,
        _ => general,
    }
}

/// The subcommand of a program.
pub(super) fn verb<'a>(name: &str, arguments: &'a [String]) -> &'a str {
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--prefix" | "-n" if name != "crontab" => drop(words.next()),
            "--version" | "-V" | "-v" | "-l" | "--status-all" => return word,
            word if word.starts_with('-') => {}
            word => return word,
        }
    }
    ""
}

/// Commands that run others, in addition to those of [`crate::shell_syntax`].
pub(super) fn follow(name: &str, arguments: &[String]) -> Vec<Next> {
    let valued: &[&str] = match name {
        "pkexec" | "gosu" | "time" | "unshare" | "chroot" | "strace" | "watch" | "busybox" | "parallel" | "ionice"
        | "taskset" | "flock" | "proxychains" | "unbuffer" | "caffeinate" | "toybox" => {
            &["-n", "-o", "-e", "-p", "-s", "-c", "-j", "--user"]
        }
        "su" | "runuser" => {
            let text = arguments.iter().position(|word| word == "-c" || word == "--command");
            return text
                .and_then(|at| arguments.get(at + 1))
                .map(|text| Next::OtherShell(text.clone()))
                .into_iter()
                .collect();
        }
        _ => return Vec::new(),
    };
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        if argument == "--" {
            at += 1;
            break;
        }
        let is_assignment = argument.contains('=') && !argument.starts_with(['-', '/', '.']);
        if !argument.starts_with('-') && !is_assignment {
            break;
        }
        at += 1 + usize::from(valued.contains(&argument.as_str()));
    }
    // The root directory, user, file or CPU list that precedes the command.
    at += usize::from(matches!(name, "chroot" | "gosu" | "flock" | "taskset"));
    match arguments.get(at..) {
        Some(words) if !words.is_empty() => vec![Next::Words { at, words: words.to_vec() }],
        _ => Vec::new(),
    }
}
