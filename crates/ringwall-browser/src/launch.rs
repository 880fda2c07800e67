//! Command line of Chromium. Starts nothing.
//!
//! Chromium is controlled over an unnamed socket, not a port, so only the holder of the other end
//! can control it. A box passes that socket as descriptor 3; Chromium reads commands from 3 and
//! writes to 4, so a shell duplicates it. It is not a pipe, because a process can reopen a pipe by
//! its name in /proc; Chromium itself could be led there by a symlink in its profile.

use std::path::Path;

/// Paths of the program in distributions. Their wrapper scripts read files that a box lacks, and
/// only /usr is mounted in a box.
const PATHS: &[&str] = &[
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib64/chromium/chromium",
];

const SHELL_SCRIPT: &str = r#"exec "$@" 4>&3 </dev/null >/dev/null 2>/dev/null"#;

/// Chromium's own sandbox needs what a box forbids; the box is the sandbox. Requests that Chromium
/// makes by itself are turned off, and so is replacing the requested address (http by https).
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,BackForwardCache,Prerender2,\
     AutofillServerCommunication,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable",
    "--password-store=basic",
    "--mute-audio",
    "--hide-scrollbars",
    "--window-size=1280,800",
    "--remote-debugging-pipe",
];

/// Network access of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// Only the box's own loopback.
    None,
    /// Proxy URL such as `http://127.0.0.1:3128`. All requests go there, also those to loopback
    /// addresses.
    Proxy(String),
}

/// The command line. The shell interprets only our own script; all other arguments are passed
/// through.
pub fn arguments(executable: &str, profile: &str, egress: Egress) -> Vec<String> {
    let mut arguments: Vec<String> = ["/bin/sh", "-c", SHELL_SCRIPT, "sh", executable].map(str::to_owned).into();
    arguments.extend(FLAGS.iter().map(|flag| (*flag).to_owned()));
    arguments.push(format!("--user-data-dir={profile}"));
    match egress {
        Egress::None => arguments.push("--no-proxy-server".to_owned()),
        Egress::Proxy(address) => {
            arguments.push(format!("--proxy-server={address}"));
            arguments.push("--proxy-bypass-list=<-loopback>".to_owned());
        }
    }
    arguments.push("about:blank".to_owned());
    arguments
}

/// Path of the machine's Chromium, if it is one that can run in a box.
pub fn find_executable() -> Option<&'static str> {
    PATHS.iter().copied().find(|path| Path::new(path).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_opens_no_port_and_passes_arguments_unchanged() {
        let line = arguments("/x/chromium", "/tmp/p $(id)", Egress::Proxy("http://127.0.0.1:3128".to_owned()));
        assert_eq!(line[..5], ["/bin/sh", "-c", SHELL_SCRIPT, "sh", "/x/chromium"].map(str::to_owned));
        assert!(line.contains(&"--user-data-dir=/tmp/p $(id)".to_owned()), "one argument");
        assert!(line.contains(&"--remote-debugging-pipe".to_owned()));
        assert!(line.contains(&"--proxy-bypass-list=<-loopback>".to_owned()), "loopback goes to the proxy too");
        assert!(!line.iter().any(|word| word.contains("debugging-port")));
        let without = arguments("/x/chromium", "/tmp/p", Egress::None);
        assert!(without.contains(&"--no-proxy-server".to_owned()), "proxy settings of the environment are ignored");
    }
}
