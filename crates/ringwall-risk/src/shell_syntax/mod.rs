//! Finds the commands of a shell text in its syntax tree, and the commands and files that these name.
//!
//! The risk rules for shell use it, and so do the rules of `ringwall-policy` on command lines.
//! Nothing here allows or denies a command.
//!
//! Reading order: `grammar` prepares text for the parser, `survey` collects the commands of a tree
//! (`found`) with their words (`word`), `follow` finds the commands that a command runs, and
//! `operands` the arguments that can name a file.

mod file_use;
mod follow;
mod found;
mod grammar;
mod names;
mod operands;
mod survey;
mod windows;
mod word;

pub use file_use::{FileUse, asks_about_file, compares_files};
pub use follow::{Next, follow};
pub use found::{Found, Redirect, Setting, Step, Survey};
pub use grammar::{find_fault, set_apart};
pub use names::{is_builtin, plain_name};
pub use operands::{Printed, paths};
pub use survey::survey;
pub use windows::{SEPARATORS, WindowsRoot, is_windows_path, trim_name, windows_root};
pub use word::{Word, escaped};
