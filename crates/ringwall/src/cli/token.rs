//! `ringwall token create|list|revoke`: manages tokens directly in the database, without a server or
//! beside a running one.
//!
//! No token is needed: everyone who can open the database may manage its tokens. `create` prints the new
//! token and nothing else; only its hash is stored.

use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use ringwall_record::Revocation;
use ringwall_service::{Limit, NewToken, Timestamp, TokenId, TokenInfo, now};
use serde_json::json;

use crate::cli::audit::{Access, with_store};
use crate::message::{Message, escape_invisible, print};
use crate::runtime;
use crate::server::{config, config::DatabaseOverride};
use crate::views::{Role, TokenView, holder, names};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it
    Create {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Role of the token; users and agents can access only their own workspaces
        #[arg(long, value_enum)]
        role: Role,
        /// User that the token belongs to (roles user and agent)
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Agent that the token belongs to (role agent)
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,
        /// Note about the purpose of the token
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// Validity, such as 90d, 12h or 30m [default: until it is revoked]
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// List the tokens, newest first
    List {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Id of the token, as `token list` shows it
        id: String,
    },
}

pub(crate) fn run(command: TokenCommand, data: &Path) -> Result<ExitCode, Message> {
    match command {
        TokenCommand::Create { database, role, user, agent, label, expires } => {
            let expires_at = expires.map(|text| expiry(&text)).transpose()?;
            let new = NewToken { holder: holder(role, user.as_deref(), agent.as_deref())?, label, expires_at };
            create(new, &database, data)
        }
        TokenCommand::List { database, json } => with_store(data, &database, Access::Read, async |store| {
            let (mut tokens, mut cursor) = (Vec::new(), None);
            loop {
                let page = store.tokens(Limit::nearest(u64::MAX), cursor).await?;
                tokens.extend(page.items);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            print(&if json {
                format!("{}\n", json!(tokens.iter().map(TokenView::from).collect::<Vec<_>>()))
            } else {
                table(&tokens)
            })?;
            Ok(ExitCode::SUCCESS)
        }),
        TokenCommand::Revoke { database, id } => with_store(data, &database, Access::Write, async |store| {
            let id: TokenId = id.parse()?;
            match store.revoke_token(&id, now(), "command_line").await? {
                Revocation::Recorded => print(&format!("revoked {id}\n"))?,
                Revocation::AlreadyRevoked(_) => print(&format!("{id} was already revoked\n"))?,
                Revocation::LastOwner => return Err(ringwall_service::Error::LastOwner.into()),
                Revocation::Unknown => {
                    return Err(Message::new(format!("no token has the id {id}"))
                        .with_hint("`ringwall token list` lists the tokens with their ids"));
                }
            }
            Ok(ExitCode::SUCCESS)
        }),
    }
}

fn create(new: NewToken, database: &DatabaseOverride, data: &Path) -> Result<ExitCode, Message> {
    // Before the first start of a server: create the directory with the mode that the server would use.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .map_err(|error| Message::new(format!("could not create the data directory {}: {error}", data.display())))?;
    let database = config::database(data, database)?;
    let key = ringwall_service::ensure_head_key(data)?;
    let (_, text) = runtime::current_thread()?.block_on(ringwall_service::create_token_offline(database, key, new))?;
    print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn table(tokens: &[TokenInfo]) -> String {
    let mut text = format!("{:<34}  {:<8}  {:<24}  {:<8}  LABEL\n", "ID", "ROLE", "FOR", "STATE");
    for token in tokens {
        let (user, agent) = names(&token.holder);
        let owner = [user, agent].into_iter().flatten().collect::<Vec<_>>().join("/");
        let state = match (token.revoked_at, token.is_valid(now())) {
            (Some(_), _) => "revoked",
            (None, true) => "valid",
            (None, false) => "expired",
        };
        let (id, role) = (token.id.as_str(), token.holder.role());
        // A label may contain control characters for the terminal.
        let label = escape_invisible(token.label.as_deref().unwrap_or_default());
        let _ = writeln!(text, "{id:<34}  {role:<8}  {:<24}  {state:<8}  {label}", escape_invisible(&owner));
    }
    text
}

fn expiry(text: &str) -> Result<Timestamp, Message> {
    let bad = || {
        Message::new(format!("--expires {text}: not a duration"))
            .with_hint("write a number followed by d, h, m or s, such as 90d")
    };
    let unit = text.chars().last().ok_or_else(bad)?;
    let seconds: u64 = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(bad()),
    };
    let count: u32 = text[..text.len() - 1].parse().map_err(|_| bad())?;
    let milliseconds = i64::try_from(seconds * u64::from(count) * 1000).map_err(|_| bad())?;
    Ok(Timestamp::from_milliseconds(now().milliseconds().saturating_add(milliseconds)))
}

#[cfg(test)]
mod tests {
    use ringwall_service::Holder;

    use super::*;

    #[test]
    fn role_requires_exactly_its_names() {
        assert!(matches!(holder(Role::User, Some("u"), None), Ok(Holder::User(_))));
        assert!(matches!(holder(Role::Agent, Some("u"), Some("a")), Ok(Holder::Agent(..))));
        for (role, user, agent) in [
            (Role::Owner, Some("u"), None),
            (Role::User, None, None),
            (Role::User, Some("u"), Some("a")),
            (Role::Agent, Some("u"), None),
        ] {
            assert!(holder(role, user, agent).is_err(), "{role:?} {user:?} {agent:?}");
        }
    }

    #[test]
    fn validity_requires_a_unit() {
        let ahead = |text: &str| expiry(text).map(|moment| (moment.milliseconds() - now().milliseconds() + 500) / 1000);
        assert_eq!(ahead("2d").unwrap(), 172_800);
        assert_eq!(ahead("90m").unwrap(), 5_400);
        for bad in ["", "d", "5", "-1d", "1w", "1.5h", "é"] {
            assert!(expiry(bad).is_err(), "{bad}");
        }
    }
}
