//! How Chromium has to be started so that this crate can drive it: as words, nothing is started here.
//!
//! Its control is a socket without a name and no port, so nobody reaches it but who holds the other end. A box gives a command that
//! socket as descriptor 3, while Chromium reads its control from 3 and writes to 4: a shell makes it both. It is no pipe, because
//! a pipe can be opened again by its name in `/proc`, if by nobody else then by Chromium itself, led there by a link in its profile.

use std::path::Path;

/// Where distributions put the program itself. Their wrappers read files that a box does not have, and what is not beneath
/// `/usr` is not in a box either.
const PLACES: &[&str] = &[
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib64/chromium/chromium",
];

const BOTH_WAYS: &str = r#"exec "$@" 4>&3 </dev/null >/dev/null 2>/dev/null"#;

/// Chromium's own sandbox needs what a box forbids; the box is the sandbox. Everything that talks to its maker by itself is off,
/// and so is trying another address than the one that was asked for (https for http).
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

/// How a page reaches the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WayOut {
    /// There is none but the box's own loopback.
    None,
    /// An address such as `http://127.0.0.1:3128`; everything goes there, loopback addresses too.
    Proxy(String),
}

/// The words of the command: first the program, and nothing in them is read by a shell but our own line.
pub fn arguments(executable: &str, profile: &str, way_out: WayOut) -> Vec<String> {
    let mut words: Vec<String> = ["/bin/sh", "-c", BOTH_WAYS, "sh", executable].map(str::to_owned).into();
    words.extend(FLAGS.iter().map(|flag| (*flag).to_owned()));
    words.push(format!("--user-data-dir={profile}"));
    match way_out {
        WayOut::None => words.push("--no-proxy-server".to_owned()),
        WayOut::Proxy(address) => {
            words.push(format!("--proxy-server={address}"));
            words.push("--proxy-bypass-list=<-loopback>".to_owned());
        }
    }
    words.push("about:blank".to_owned());
    words
}

/// The Chromium of this machine, if there is one that can run in a box.
pub fn find_executable() -> Option<&'static str> {
    PLACES.iter().copied().find(|place| Path::new(place).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_open_no_port_and_nothing_of_them_is_read_by_a_shell() {
        let words = arguments("/x/chromium", "/tmp/p $(id)", WayOut::Proxy("http://127.0.0.1:3128".to_owned()));
        assert_eq!(words[..5], ["/bin/sh", "-c", BOTH_WAYS, "sh", "/x/chromium"].map(str::to_owned));
        assert!(words.contains(&"--user-data-dir=/tmp/p $(id)".to_owned()), "a word of its own");
        assert!(words.contains(&"--remote-debugging-pipe".to_owned()));
        assert!(words.contains(&"--proxy-bypass-list=<-loopback>".to_owned()), "loopback goes to the proxy too");
        assert!(!words.iter().any(|word| word.contains("debugging-port")));
        let without = arguments("/x/chromium", "/tmp/p", WayOut::None);
        assert!(without.contains(&"--no-proxy-server".to_owned()), "no setting of the environment is a way out");
    }
}
