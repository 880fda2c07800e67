//! Rules for the commands that an agent runs: a line for the shell, or a program and its arguments.
//!
//! A shell grammar parses the line, so every command that is written in it is found: in pipelines,
//! lists, loops, substitutions and functions, and in text that it passes to another shell, to
//! `xargs` or to `find`. A command that is computed at run time is not. The lists say which command
//! names are allowed. This is advice: a script can run any program, and the box is the limit.
//!
//! Reading order: `grammar` parses text to a tree; [`ringwall_risk::shell_syntax`] finds the
//! commands in it; `line` checks them by `lists` and `reserved`. `named` finds the host paths that
//! they name: it steps through the line and expands each word (`expand`).

mod argv;
mod expand;
mod grammar;
mod line;
mod lists;
mod named;
mod reserved;

pub use argv::ArgvCommand;
pub use line::CommandLine;
pub use lists::{CommandLists, CommandName};
pub use named::{NamedFile, NamedFiles};
