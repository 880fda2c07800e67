//! Finds the package mirror that this machine uses: the first suitable entry of apt's sources.
//!
//! Reads both formats of apt. There is no default mirror: without an entry there is none.

use std::path::Path;

/// A package archive for debootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub(crate) address: String,
    pub(crate) suite: String,
    /// Path of the key ring, if the entry names a file.
    pub(crate) keys: Option<String>,
}

/// The mirror of the running release.
pub(crate) fn find() -> Option<Mirror> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = codename(&release)?;
    let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
    let parts = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut parts: Vec<_> = parts.map(|entry| entry.path()).collect();
    parts.sort();
    files.extend(parts);
    files.iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        let entries = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines(&text),
            Some("sources") => paragraphs(&text),
            _ => return None,
        };
        choose(entries, &codename)
    })
}

/// An entry of apt's sources, which may name several suites.
#[derive(Debug, Default)]
struct Entry {
    types: Vec<String>,
    address: String,
    suites: Vec<String>,
    components: Vec<String>,
    keys: Option<String>,
}

/// The first entry with the release itself and `main`; updates and backports alone cannot make a
/// root file system.
fn choose(entries: Vec<Entry>, codename: &str) -> Option<Mirror> {
    let has = |list: &[String], word: &str| list.iter().any(|one| one == word);
    let fits =
        |entry: &Entry| has(&entry.types, "deb") && has(&entry.suites, codename) && has(&entry.components, "main");
    let entry = entries.into_iter().find(fits)?;
    let keys = entry.keys.filter(|keys| keys.starts_with('/'));
    Some(Mirror { address: entry.address, suite: codename.to_owned(), keys })
}

fn codename(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let value = value.trim_matches(['"', '\'']);
    (!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| value.to_owned())
}

/// `deb [signed-by=…] ADDRESS SUITE COMPONENT…`
fn lines(text: &str) -> Vec<Entry> {
    let entries = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let (options, line) = match line.split_once('[').zip(line.split_once(']')) {
            Some(((before, _), (inside, after))) => {
                (inside.split_once('[').map_or("", |(_, options)| options), format!("{before}{after}"))
            }
            None => ("", line.to_owned()),
        };
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        Some(Entry {
            types: vec![words.next()?],
            address: words.next()?,
            suites: vec![words.next()?],
            components: words.collect(),
            keys: options.split_ascii_whitespace().find_map(|one| one.strip_prefix("signed-by=")).map(str::to_owned),
        })
    });
    entries.collect()
}

/// `Types: deb`, `URIs: ADDRESS` and so on, with an empty line between entries.
fn paragraphs(text: &str) -> Vec<Entry> {
    let mut entries = vec![Entry::default()];
    for line in text.lines() {
        if line.trim().is_empty() {
            entries.push(Entry::default());
            continue;
        }
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with(['#', ' ', '\t'])) else { continue };
        let words = || value.split_ascii_whitespace().map(str::to_owned);
        if let Some(entry) = entries.last_mut() {
            match key.to_ascii_lowercase().as_str() {
                "types" => entry.types = words().collect(),
                "uris" => entry.address = words().next().unwrap_or_default(),
                "suites" => entry.suites = words().collect(),
                "components" => entry.components = words().collect(),
                "signed-by" => entry.keys = words().next(),
                _ => {}
            }
        }
    }
    entries.retain(|entry| !entry.address.is_empty());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(address: &str, keys: Option<&str>) -> Option<Mirror> {
        Some(Mirror { address: address.to_owned(), suite: "tree".to_owned(), keys: keys.map(str::to_owned) })
    }

    #[test]
    fn both_forms_are_read() {
        let text = "# deb http://old.test/d tree main\ndeb-src http://src.test/d tree main\n\
            deb http://more.test/d tree-updates main\n\
            deb [arch=amd64 signed-by=/keys/a.gpg] http://a.test/d tree main extra # mine\n";
        assert_eq!(choose(lines(text), "tree"), mirror("http://a.test/d", Some("/keys/a.gpg")));
        let text = "Types: deb\nURIs: http://tools.test/x\nSuites: other\nComponents: main\n\n\
            Types: deb deb-src\n# a note: here\nURIs: http://b.test/d http://c.test/d\nSuites: tree tree-updates\n\
            Components: main\nSigned-By:\n -----BEGIN\n URIs: no\n";
        assert_eq!(choose(paragraphs(text), "tree"), mirror("http://b.test/d", None));
        assert_eq!(choose(paragraphs(text), "stone"), None);
        assert_eq!(choose(lines("deb\ndeb x\n[\n]"), "tree"), None);
    }

    #[test]
    fn a_release_has_a_plain_name() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=\"tree\"\n").as_deref(), Some("tree"));
        for bad in ["", "VERSION_CODENAME=", "VERSION_CODENAME=--x"] {
            assert_eq!(codename(bad), None, "{bad}");
        }
    }
}
