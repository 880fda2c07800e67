//! The command line: parses the arguments and calls the subcommand.
//!
//! The executor starts this binary again with another `argv[0]`: as a process of the jail, or as the
//! agent in a session box. `main` checks for both names before it parses anything.

mod cli;
mod client;
mod doctor;
mod escape;
mod http;
mod mcp;
mod message;
mod runtime;
mod server;
mod views;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringwall_executor::Early;

/// Run AI agents' commands, code and browsers in boxes that the kernel isolates.
#[derive(Debug, Parser)]
#[command(name = "ringwall", version, arg_required_else_help = true, propagate_version = true)]
struct Arguments<V: Subcommand> {
    /// Data directory [default: /var/lib/ringwall as root, otherwise ~/.local/share/ringwall]
    #[arg(long, global = true, value_name = "DIR", env = "RINGWALL_DATA", hide_env = true)]
    data: Option<PathBuf>,
    #[command(subcommand)]
    verb: V,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run one command in a box, without a server
    Run(Box<cli::run::RunArguments>),
    /// Check which protections work on this machine, by starting a probe box
    Doctor(doctor::DoctorArguments),
    /// Import, build, list and remove images (root file systems of boxes)
    #[command(subcommand)]
    Image(cli::image::ImageCommand),
    /// Run the HTTP server
    Serve(Box<server::config::Overrides>),
    /// Run a script or code on a server, print its output and exit with its exit code
    Exec(cli::exec::ExecArguments),
    /// List, read, upload, download, edit and delete an agent's files on a server
    #[command(subcommand)]
    Files(cli::files::FilesCommand),
    /// Upload, list, download and delete an agent's skills on a server
    #[command(subcommand)]
    Skills(cli::skills::SkillsCommand),
    /// Run an MCP server on standard input and output
    Mcp(Box<mcp::McpArguments>),
    /// List and answer approval requests
    #[command(subcommand)]
    Approvals(cli::approvals::ApprovalsCommand),
    /// Delete idle sessions, leftovers and old baseline versions on a server
    Gc(cli::gc::GcArguments),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(cli::token::TokenCommand),
    /// Show, export and verify the audit log
    #[command(subcommand)]
    Audit(cli::audit::AuditCommand),
    /// Back up the database to a new file, also while a server runs
    Backup {
        #[command(flatten)]
        database: server::config::DatabaseOverride,
        /// File to create; it must not exist
        file: PathBuf,
    },
}

/// The command line with `run` alone. Building clap's definition of all subcommands takes longer than
/// parsing the arguments of `run`.
#[derive(Debug, Subcommand)]
enum RunOnly {
    /// Run one command in a box, without a server
    Run(Box<cli::run::RunArguments>),
}

/// Makes a panic abort the process. `runtime::start` removes this hook in a server: from then on a
/// panic ends the task in which it happens (docs/decisions/0005).
fn abort_on_panic() {
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print_panic(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    abort_on_panic();
    let name = std::env::args_os().next();
    if name.as_ref().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    if name.is_some_and(|name| name == ringwall_jail::agent::AGENT) {
        return ringwall_jail::agent::agent_main();
    }
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "run") {
        // The kernel creates the namespaces of the box while this process parses its arguments.
        let early = Early::begin();
        let Arguments { data, verb: RunOnly::Run(arguments) } = Arguments::parse();
        return server::config::data_directory(data)
            .map_or_else(|message| message.print(), |data| cli::run::run(&arguments, early, &data));
    }
    let Arguments { data, verb } = Arguments::parse();
    // A database URL may contain a password, and every user of the machine can read the arguments.
    if let Err(message) = server::arguments::mask("--database") {
        return message.print();
    }
    let result = server::config::data_directory(data).and_then(|data| match verb {
        Verb::Run(arguments) => Ok(cli::run::run(&arguments, Early::begin(), &data)),
        Verb::Doctor(arguments) => doctor::run(&arguments, &data),
        Verb::Image(command) => cli::image::run(command, &data).map(|()| ExitCode::SUCCESS),
        Verb::Serve(arguments) => server::serve::run(*arguments, &data),
        Verb::Exec(arguments) => Ok(cli::exec::run(&arguments, &data)),
        Verb::Files(command) => Ok(cli::files::run(&command, &data)),
        Verb::Skills(command) => Ok(cli::skills::run(&command, &data)),
        Verb::Mcp(arguments) => mcp::run(*arguments, &data),
        Verb::Approvals(command) => Ok(cli::approvals::run(&command, &data)),
        Verb::Gc(arguments) => cli::gc::run(&arguments, &data),
        Verb::Token(command) => cli::token::run(command, &data),
        Verb::Audit(command) => cli::audit::run(command, &data),
        Verb::Backup { database, file } => cli::audit::backup(&file, &database, &data),
    });
    result.unwrap_or_else(|message| message.print())
}
