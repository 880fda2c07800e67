//! Files between a browser and its session's workspace. In the box they are moved by commands of the box; in the workspace by
//! whoever moves everything there, beneath its handles and within its room.

use std::collections::BTreeSet;
use std::io::Read;

use browser::Downloaded;
use policy::Window;
use workspace::{AgentPath, Download};

use super::fault::Fault;
use super::instance::Instance;
use super::perform::Deed;
use crate::agents::execute::WORKSPACE;
use crate::error::Error;
use crate::service::Service;

/// Where what is downloaded lies, in the session's workspace.
const DOWNLOADS: &str = "data";
/// One file, as it passes through the server.
const LARGEST: u64 = 64 << 20;
const LONGEST_NAME: usize = 120;
/// More files of a session than this are not looked through for a name that is free.
const NAMES_MOST: usize = 20_000;

impl Deed {
    /// Brings what was downloaded into the workspace, and says where each is.
    pub(super) async fn take_out(&self, from: &Instance, downloads: Vec<Downloaded>) -> Result<Vec<String>, Fault> {
        let mut paths = Vec::new();
        for Downloaded { name, path, .. } in downloads {
            let content = from.home.run(&["cat", "--", &path], None, LARGEST).await?;
            paths.push(self.keep(&name, content).await?);
            // It takes room in the box's memory.
            from.home.run(&["rm", "-f", "--", &path], None, 0).await?;
        }
        Ok(paths)
    }

    /// Puts a file into the workspace under a name like this one that nothing has.
    pub(super) async fn keep(&self, name: &str, content: Vec<u8>) -> Result<String, Fault> {
        let name = plain(name);
        let workspace = self.service.session_workspace(&self.place.name).await?;
        let taken = Service::blocking(|| {
            let session = workspace.session(&self.place.id)?;
            session.furnish()?;
            Ok(session.names(NAMES_MOST)?)
        })
        .await?;
        let own = &self.id.as_str()[2..10];
        let path = match taken {
            Some(taken) => free(&name, &taken),
            None => format!("{DOWNLOADS}/{own}-{name}"),
        };
        let place = AgentPath::in_session(&path).map_err(Error::from)?;
        self.service.write_session_file(&self.by, &self.address(), place, content).await?;
        Ok(path)
    }

    /// Shows files of the workspace to the browser, and says where it sees them.
    pub(super) async fn take_in(&self, to: &Instance, files: &[String]) -> Result<Vec<String>, Fault> {
        let mut paths = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let place = AgentPath::in_session(file).map_err(Error::from)?;
            match to.window {
                Window::Sandbox => {
                    let inner = place.inner().map(|inner| inner.as_str().to_owned()).unwrap_or_default();
                    paths.push(format!("{WORKSPACE}/{inner}"));
                }
                Window::External => {
                    let found = self.service.download_session_file(&self.by, &self.address(), place).await?;
                    let Download::File { file: opened, .. } = found else {
                        return Err(Fault::failed(format!("{file} is a directory; upload its files")));
                    };
                    let path = format!("{}/{number}/{}", to.folder.uploads(), plain(file));
                    let content = Service::blocking(|| {
                        let mut content = Vec::new();
                        let read = (&opened).take(LARGEST + 1).read_to_end(&mut content);
                        read.map_err(|error| Error::runtime("read a file", &error))?;
                        Ok(content)
                    })
                    .await?;
                    if content.len() as u64 > LARGEST {
                        return Err(Fault::failed(format!("{file} is larger than {LARGEST} bytes")));
                    }
                    let line = r#"mkdir -p -- "${1%/*}" && exec cat > "$1""#;
                    to.home.run(&["sh", "-c", line, "sh", &path], Some(&content), 0).await?;
                    paths.push(path);
                }
            }
        }
        Ok(paths)
    }
}

/// A name that a stranger has chosen, as a file can be called: one part, visible, not long.
fn plain(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept = |one: char| one.is_alphanumeric() || matches!(one, '.' | '-' | '_' | ' ' | '(' | ')' | '+' | ',');
    let clean: String = last.chars().map(|one| if kept(one) { one } else { '_' }).collect();
    let clean = clean.trim_start_matches(['.', '-', ' ']).trim_end_matches(['.', ' ']);
    match clean.rsplit_once('.') {
        _ if clean.is_empty() => "file".to_owned(),
        Some((stem, ending)) if clean.len() > LONGEST_NAME && ending.len() <= 16 => {
            format!("{}.{ending}", cut(stem, LONGEST_NAME - ending.len() - 1))
        }
        _ => cut(clean, LONGEST_NAME).to_owned(),
    }
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn free(name: &str, taken: &BTreeSet<String>) -> String {
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => (stem, format!(".{ending}")),
        _ => (name, String::new()),
    };
    let numbered = (2u64..).map(|number| format!("{DOWNLOADS}/{stem}-{number}{ending}"));
    let mut all = std::iter::once(format!("{DOWNLOADS}/{name}")).chain(numbered);
    all.find(|path| !taken.contains(path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_name_is_one_plain_part() {
        for (name, kept) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("..\\evil.exe", "evil.exe"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a\u{0}b\nc.txt", "a_b_c.txt"),
            ("..", "file"),
            ("", "file"),
            ("\u{202e}gpj.exe", "_gpj.exe"),
            ("报告.pdf", "报告.pdf"),
        ] {
            assert_eq!(plain(name), kept, "{name:?}");
        }
        let long = plain(&format!("{}.tar.gz", "x".repeat(500)));
        assert!(long.len() <= LONGEST_NAME && long.ends_with(".gz"), "{long}");
        assert!(plain(&"ü".repeat(500)).len() <= LONGEST_NAME);
    }

    #[test]
    fn nothing_that_is_there_is_replaced() {
        let taken = ["data/a.txt", "data/a-2.txt", "data/b"].map(str::to_owned).into();
        for (name, path) in [("a.txt", "data/a-3.txt"), ("b", "data/b-2"), ("c", "data/c")] {
            assert_eq!(free(name, &taken), path);
        }
    }
}
