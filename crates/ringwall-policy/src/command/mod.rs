//! The rules for what an agent asks to run: a line for the shell, or a program and its arguments.
//!
//! A line is read by a real grammar of the shell, so that every command in it is found where it stands: in pipes, lists,
//! loops, substitutions, functions, and in what it hands to another shell, to `xargs` or to `find` as plain text. Lists
//! say which names may stand there. It advises: whoever writes a script can run what they like in it, and what the box
//! does not have it does not get.
//!
//! Reading order: text becomes a tree (`grammar`), the tree commands (`found` by `survey`, with their words by `word`), commands
//! lead to further ones (`follow`), and all of them are held against the rules (`line`, `reserved`, `lists`). Which paths of
//! the host they name is found by going through the line's steps (`named`) with each word expanded (`expand`).

mod argv;
mod expand;
mod follow;
mod found;
mod grammar;
mod line;
mod lists;
mod named;
mod operands;
mod reserved;
mod survey;
mod word;

pub(crate) use follow::{Next, follow};
pub(crate) use found::Found;
pub(crate) use grammar::{find_fault, set_apart};
pub(crate) use lists::{is_builtin, plain_name};
pub(crate) use operands::{Printed, paths};
pub(crate) use survey::survey;
pub(crate) use word::escaped;

pub use argv::ArgvCommand;
pub use line::CommandLine;
pub use lists::{CommandLists, CommandName};
pub use named::{NamedFile, NamedFiles};
