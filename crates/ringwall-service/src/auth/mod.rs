//! Authentication: principals, tokens, logins, tickets and the server's keys.

pub(crate) mod digest_key;
pub(crate) mod logins;
pub(crate) mod origin;
pub(crate) mod principal;
pub(crate) mod private_file;
pub(crate) mod tickets;
pub(crate) mod token;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// A request needs a token.
    Tokens,
    /// Every request has the rights of the owner (`--no-auth`).
    Disabled,
}
