//! Determines the root of all workspaces, as this program and as docker name it: Windows and WSL
//! have different paths for the same directory.
//!
//! Pure: the platform and the conversion of a path (`wslpath` where it exists, or [`by_rule`]) are
//! parameters. Windows never gets `/mnt/d/…` and WSL never `D:\…`. A root that is missing and
//! cannot be converted is an error that names the setting.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

const ROOT_ON_WINDOWS: &str = "sandbox.workspace_root_win";
const ROOT_ON_WSL: &str = "sandbox.workspace_root_wsl";
const MODE: &str = "sandbox.runtime_mode";

/// The setting `sandbox.runtime_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeMode {
    Auto,
    Fixed(Platform),
}

/// The platform of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Windows,
    Wsl,
    Linux,
}

/// The direction of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    ToWindows,
    ToWsl,
}

/// The configured roots.
#[derive(Debug, Clone, Copy, Default)]
pub struct Roots<'a> {
    pub windows: Option<&'a str>,
    pub wsl: Option<&'a str>,
    /// In our data directory; used on Linux and WSL if nothing is configured.
    pub default: Option<&'a str>,
}

/// The root of all workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceRoot {
    pub platform: Platform,
    /// The path for this program.
    pub host_path_native: String,
    /// The path for docker's mounts.
    pub docker_mount_path: String,
}

impl FromStr for RuntimeMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(RuntimeMode::Auto),
            "windows" => Ok(RuntimeMode::Fixed(Platform::Windows)),
            "wsl" => Ok(RuntimeMode::Fixed(Platform::Wsl)),
            "linux" => Ok(RuntimeMode::Fixed(Platform::Linux)),
            _ => Err(wrong(MODE, "must be auto, windows, wsl or linux".to_owned())),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Platform::Windows => "windows",
            Platform::Wsl => "wsl",
            Platform::Linux => "linux",
        })
    }
}

/// Finds the root of all workspaces.
pub fn workspace_root(
    mode: RuntimeMode,
    here: Platform,
    roots: Roots<'_>,
    convert: impl Fn(Conversion, &str) -> Option<String>,
) -> Result<WorkspaceRoot, Error> {
    let platform = match mode {
        RuntimeMode::Auto => here,
        RuntimeMode::Fixed(asked) => asked,
    };
    // WSL may run as plain Linux. Any other mode than the platform's would name paths that do not
    // exist here.
    if platform != here && (platform, here) != (Platform::Linux, Platform::Wsl) {
        return Err(wrong(MODE, format!("is {platform}, but this machine is {here}; set it to auto")));
    }
    let path = match platform {
        Platform::Windows => match (roots.windows, roots.wsl) {
            (Some(path), _) => windows(ROOT_ON_WINDOWS, path)?,
            (None, Some(path)) => {
                let converted = convert(Conversion::ToWindows, &posix(ROOT_ON_WSL, path)?);
                let converted = converted.ok_or_else(|| not_converted(ROOT_ON_WINDOWS, ROOT_ON_WSL, path))?;
                windows(ROOT_ON_WINDOWS, &converted)?
            }
            (None, None) => return Err(missing(ROOT_ON_WINDOWS, r"D:\ringwall")),
        },
        Platform::Wsl => match (roots.wsl, roots.windows) {
            (Some(path), _) => posix(ROOT_ON_WSL, path)?,
            (None, Some(path)) => {
                let converted = convert(Conversion::ToWsl, &windows(ROOT_ON_WINDOWS, path)?);
                let converted = converted.ok_or_else(|| not_converted(ROOT_ON_WSL, ROOT_ON_WINDOWS, path))?;
                posix(ROOT_ON_WSL, &converted)?
            }
            (None, None) => default(roots, ROOT_ON_WSL)?,
        },
        Platform::Linux => match roots.wsl {
            Some(path) => posix(ROOT_ON_WSL, path)?,
            None => default(roots, ROOT_ON_WSL)?,
        },
    };
    if platform == Platform::Windows && is_share(&path) {
        return Err(wrong(
            ROOT_ON_WINDOWS,
            format!("is {path:?}, a network share, which docker cannot mount; use a drive"),
        ));
    }
    Ok(WorkspaceRoot { platform, docker_mount_path: path.clone(), host_path_native: path })
}

/// Converts without `wslpath`: drive `D:` is `/mnt/d`.
pub fn by_rule(conversion: Conversion, path: &str) -> Option<String> {
    match conversion {
        Conversion::ToWsl => {
            let path = windows(ROOT_ON_WINDOWS, path).ok()?;
            let (drive, rest) = path.split_once(":\\")?;
            let rest = rest.replace('\\', "/");
            Some(format!("/mnt/{}/{rest}", drive.to_ascii_lowercase()).trim_end_matches('/').to_owned())
        }
        Conversion::ToWindows => {
            let path = posix(ROOT_ON_WSL, path).ok()?;
            let rest = path.strip_prefix("/mnt/")?;
            let (drive, rest) = rest.split_once('/').unwrap_or((rest, ""));
            let is_drive = drive.len() == 1 && drive.bytes().all(|letter| letter.is_ascii_lowercase());
            is_drive.then(|| format!("{}:\\{}", drive.to_ascii_uppercase(), rest.replace('/', "\\")))
        }
    }
}

/// Normalises a Windows path: a share or a drive with a capital letter, backslashes, none at the
/// end.
fn windows(setting: &'static str, given: &str) -> Result<String, Error> {
    let bad = || wrong(setting, format!(r"is {given:?}, which is no full path of Windows such as D:\ringwall"));
    let path = given.replace('/', "\\");
    let (start, rest) = match path.strip_prefix(r"\\") {
        Some(rest) => (r"\\".to_owned(), rest),
        None => {
            let (drive, rest) = path.split_once(":\\").ok_or_else(bad)?;
            if drive.len() != 1 || !drive.bytes().all(|letter| letter.is_ascii_alphabetic()) {
                return Err(bad());
            }
            (format!("{}:\\", drive.to_ascii_uppercase()), rest)
        }
    };
    let parts: Vec<&str> = rest.split('\\').filter(|part| !part.is_empty()).collect();
    let forbidden = |part: &&&str| matches!(**part, "." | "..") || part.contains([':', '*', '?', '"', '<', '>', '|']);
    if parts.iter().any(|part| forbidden(&part)) || given.chars().any(char::is_control) {
        return Err(bad());
    }
    if start == r"\\" && parts.len() < 2 {
        return Err(bad());
    }
    Ok(format!("{start}{}", parts.join("\\")))
}

/// Normalises a path of WSL or Linux.
fn posix(setting: &'static str, given: &str) -> Result<String, Error> {
    let bad = || wrong(setting, format!("is {given:?}, which is no full path such as /srv/ringwall"));
    let rest = given.strip_prefix('/').ok_or_else(bad)?;
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") || given.chars().any(char::is_control) {
        return Err(bad());
    }
    Ok(format!("/{}", parts.join("/")))
}

/// True for network shares. `\\wsl$` and `\\wsl.localhost` name files of WSL and are none.
fn is_share(path: &str) -> bool {
    let Some(rest) = path.strip_prefix(r"\\") else { return false };
    let server = rest.split('\\').next().unwrap_or_default().to_ascii_lowercase();
    server != "wsl$" && server != "wsl.localhost"
}

fn default(roots: Roots<'_>, setting: &'static str) -> Result<String, Error> {
    roots.default.map_or_else(|| Err(missing(setting, "/srv/ringwall")), |path| posix(setting, path))
}

fn not_converted(wanted: &'static str, have: &str, path: &str) -> Error {
    wrong(wanted, format!("is not set, and {have} ({path:?}) cannot be converted; set it"))
}

fn missing(setting: &'static str, example: &str) -> Error {
    wrong(setting, format!("is not set; set it to a directory such as {example}"))
}

fn wrong(setting: &'static str, wrong: String) -> Error {
    Error::PathSetting { setting, wrong }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
