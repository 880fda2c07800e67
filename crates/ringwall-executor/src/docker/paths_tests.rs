//! Tests of every mode on every platform, and properties of the conversions.

use proptest::prelude::*;

use super::Platform::{Linux, Windows, Wsl};
use super::*;

const AUTO: RuntimeMode = RuntimeMode::Auto;

fn find(mode: RuntimeMode, here: Platform, windows: Option<&str>, wsl: Option<&str>) -> Result<String, String> {
    let roots = Roots { windows, wsl, default: Some("/var/lib/ringwall/workspaces") };
    let found = workspace_root(mode, here, roots, by_rule).map_err(|error| error.to_string())?;
    assert_eq!(found.host_path_native, found.docker_mount_path);
    Ok(found.host_path_native)
}

#[test]
fn each_machine_gets_its_own_kind_of_path() {
    let both = (Some(r"D:\work"), Some("/mnt/d/work"));
    let table = [
        (AUTO, Windows, both, r"D:\work"),
        (AUTO, Wsl, both, "/mnt/d/work"),
        (AUTO, Linux, both, "/mnt/d/work"),
        (RuntimeMode::Fixed(Windows), Windows, both, r"D:\work"),
        (RuntimeMode::Fixed(Wsl), Wsl, both, "/mnt/d/work"),
        (RuntimeMode::Fixed(Linux), Linux, both, "/mnt/d/work"),
        (RuntimeMode::Fixed(Linux), Wsl, (None, None), "/var/lib/ringwall/workspaces"),
        // A missing root is converted from the other one.
        (AUTO, Windows, (None, Some("/mnt/d/my work/")), r"D:\my work"),
        (AUTO, Wsl, (Some(r"d:/my work\"), None), "/mnt/d/my work"),
        (AUTO, Wsl, (Some(r"C:\"), None), "/mnt/c"),
        (AUTO, Windows, (None, Some("/mnt/c")), r"C:\"),
        // Paths are normalised.
        (AUTO, Windows, (Some("d:/a//b/"), None), r"D:\a\b"),
        (AUTO, Windows, (Some(r"\\wsl$\Debian\home\me\"), None), r"\\wsl$\Debian\home\me"),
        (AUTO, Windows, (Some(r"\\wsl.localhost\Debian\srv"), None), r"\\wsl.localhost\Debian\srv"),
        (AUTO, Wsl, (None, Some("/home/me//x/./y/")), "/home/me/x/y"),
        (AUTO, Wsl, (None, None), "/var/lib/ringwall/workspaces"),
        (AUTO, Linux, (Some(r"D:\work"), None), "/var/lib/ringwall/workspaces"),
    ];
    for (mode, here, (windows, wsl), expected) in table {
        assert_eq!(find(mode, here, windows, wsl).as_deref(), Ok(expected), "{mode:?} on {here:?}");
    }
}

#[test]
fn invalid_path_is_refused_by_setting_name() {
    let table = [
        (AUTO, Windows, (Some("/mnt/d/work"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some("work"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some(r"D:work"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some(r"DD:\work"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some(r"D:\a\..\b"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some(r"D:\a:b"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some("D:\\a\nb"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some(r"\\server"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (Some(r"\\server\share\x"), None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (None, None), ROOT_ON_WINDOWS),
        (AUTO, Windows, (None, Some("/home/me")), ROOT_ON_WINDOWS),
        (AUTO, Windows, (None, Some(r"D:\x")), ROOT_ON_WSL),
        (AUTO, Wsl, (None, Some(r"D:\work")), ROOT_ON_WSL),
        (AUTO, Wsl, (None, Some("work")), ROOT_ON_WSL),
        (AUTO, Wsl, (None, Some("/a/../b")), ROOT_ON_WSL),
        (AUTO, Wsl, (Some(r"\\server\share\x"), None), ROOT_ON_WSL),
        (AUTO, Linux, (None, Some(r"D:\work")), ROOT_ON_WSL),
        (RuntimeMode::Fixed(Windows), Linux, (Some(r"D:\work"), None), MODE),
        (RuntimeMode::Fixed(Windows), Wsl, (Some(r"D:\work"), None), MODE),
        (RuntimeMode::Fixed(Wsl), Linux, (None, Some("/x")), MODE),
        (RuntimeMode::Fixed(Linux), Windows, (None, Some("/x")), MODE),
    ];
    for (mode, here, (windows, wsl), setting) in table {
        let error = find(mode, here, windows, wsl).expect_err(setting);
        assert!(error.starts_with(setting), "{error}");
    }
    let nothing = workspace_root(AUTO, Linux, Roots::default(), by_rule);
    assert!(nothing.unwrap_err().to_string().contains("set it to a directory"));
}

#[test]
fn the_converter_that_is_handed_in_is_the_one_that_is_asked() {
    let roots = Roots { windows: Some(r"\\wsl$\Debian\home\me"), wsl: None, default: None };
    let convert = |conversion, path: &str| {
        assert_eq!((conversion, path), (Conversion::ToWsl, r"\\wsl$\Debian\home\me"));
        Some("/home/me".to_owned())
    };
    assert_eq!(workspace_root(AUTO, Wsl, roots, convert).unwrap().docker_mount_path, "/home/me");
    // A converted path of the wrong kind is an error.
    assert!(workspace_root(AUTO, Wsl, roots, |_, _| Some(r"D:\x".to_owned())).is_err());
}

#[test]
fn modes_are_four_words() {
    assert_eq!("auto".parse::<RuntimeMode>().unwrap(), AUTO);
    assert_eq!("wsl".parse::<RuntimeMode>().unwrap(), RuntimeMode::Fixed(Wsl));
    assert!("WSL".parse::<RuntimeMode>().unwrap_err().to_string().starts_with(MODE));
}

proptest! {
    #[test]
    fn no_machine_is_told_anothers_path(
        here in prop_oneof![Just(Windows), Just(Wsl), Just(Linux)],
        windows in proptest::option::of(r"([a-zA-Z]:[\\/]|/mnt/[a-z]/|\\\\)?[a-z .\\/]{0,12}"),
        wsl in proptest::option::of(r"(/|/mnt/[a-z]/|[A-Z]:\\)?[a-z ./]{0,12}"),
    ) {
        if let Ok(path) = find(AUTO, here, windows.as_deref(), wsl.as_deref()) {
            match here {
                Windows => prop_assert!(!path.starts_with('/') && !path.contains('/'), "{}", path),
                Wsl | Linux => prop_assert!(path.starts_with('/') && !path.contains('\\'), "{}", path),
            }
        }
    }

    #[test]
    fn there_and_back_is_the_same_drive(drive in "[A-Z]", parts in proptest::collection::vec("[a-z][a-z ]{0,5}", 0..4)) {
        let path = format!("{drive}:\\{}", parts.join("\\"));
        let there = by_rule(Conversion::ToWsl, &path).unwrap();
        prop_assert_eq!(by_rule(Conversion::ToWindows, &there), Some(path));
    }
}
