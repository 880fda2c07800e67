//! Authenticates tokens, logins and tickets, and creates and revokes them.

use std::time::Instant;

use ringwall_ids::{TokenId, random_digits};
use ringwall_record::{Cursor, Digest, Holder, Limit, Page, Revocation, Timestamp, Token};

use super::Service;
use crate::auth::Auth;
use crate::auth::logins::{BegunLogin, HeldLogin};
use crate::auth::principal::Principal;
use crate::auth::tickets::{self, NewTicket};
use crate::auth::token::{self, NewToken};
use crate::error::Error;
use crate::time::{milliseconds, now};

impl Service {
    /// The principal of a token.
    pub async fn authenticate(&self, token: Option<&str>) -> Result<Principal, Error> {
        match self.inner.auth {
            Auth::Disabled => return Ok(Principal::new("nobody", Holder::Owner)),
            Auth::Tokens => {}
        }
        let text = token.ok_or(Error::Unauthenticated)?;
        self.holder_of(&Digest::of(text.as_bytes())).await
    }

    /// The principal of a valid token, by its hash.
    pub(crate) async fn holder_of(&self, hash: &Digest) -> Result<Principal, Error> {
        match self.inner.store.token_by_hash(hash).await? {
            Some(token) if token.is_valid(now()) => Ok(Principal::new(token.id.as_str(), token.holder)),
            Some(_) | None => Err(Error::Unauthenticated),
        }
    }

    /// Checks that the principal's token is still valid, for connections that outlive one request.
    pub async fn authenticate_again(&self, by: &Principal) -> Result<(), Error> {
        match self.inner.auth {
            Auth::Disabled => return Ok(()),
            Auth::Tokens => {}
        }
        let id: TokenId = by.caller().parse().map_err(|_| Error::Unauthenticated)?;
        let found = self.inner.store.token(&id).await?;
        found.filter(|token| token.is_valid(now())).map(drop).ok_or(Error::Unauthenticated)
    }

    /// Creates a token and returns its text, which cannot be retrieved later. Operators create
    /// tokens for users and agents, owners for all roles.
    pub async fn create_token(&self, by: &Principal, new: NewToken) -> Result<(Token, String), Error> {
        match new.holder {
            Holder::Owner | Holder::Operator => by.require_owner("create a token of this role")?,
            Holder::User(_) | Holder::Agent(..) => by.require_operator("create tokens")?,
        }
        token::create(&self.inner.store, new, by.caller()).await
    }

    /// Newest first.
    pub async fn tokens(&self, by: &Principal, limit: Limit, cursor: Option<Cursor>) -> Result<Page<Token>, Error> {
        by.require_operator("list tokens")?;
        Ok(self.inner.store.tokens(limit, cursor).await?)
    }

    pub async fn revoke_token(&self, by: &Principal, id: &TokenId) -> Result<Revocation, Error> {
        by.require_owner("revoke tokens")?;
        match self.inner.store.revoke_token(id, now(), by.caller()).await? {
            Revocation::Unknown => Err(Error::NotFound { what: format!("token {id}") }),
            Revocation::LastOwner => Err(Error::LastOwner),
            revoked @ (Revocation::Recorded | Revocation::AlreadyRevoked(_)) => Ok(revoked),
        }
    }

    /// Starts a login with a token.
    pub async fn log_in(&self, token: &str) -> Result<BegunLogin, Error> {
        let principal = self.authenticate(Some(token)).await?;
        self.begin_login(principal, Digest::of(token.as_bytes()))
    }

    /// Starts a login as the owner with an unused code.
    pub async fn log_in_with_code(&self, code: &str) -> Result<BegunLogin, Error> {
        let token = self.inner.logins.take_code(code, Instant::now()).ok_or(Error::Unauthenticated)?;
        let principal = self.holder_of(&token).await?;
        self.begin_login(principal, token)
    }

    /// The principal of a login; fails if the login has ended or its token is invalid. With
    /// `--no-auth` there is no login to hold.
    pub async fn authenticate_login(&self, text: &str) -> Result<(Principal, Option<HeldLogin>), Error> {
        match self.inner.auth {
            Auth::Disabled => Ok((self.authenticate(None).await?, None)),
            Auth::Tokens => {
                let (token, held) = self.inner.logins.find(text, Instant::now()).ok_or(Error::Unauthenticated)?;
                Ok((self.holder_of(&token).await?, Some(held)))
            }
        }
    }

    /// Ends a login. Unknown logins are ignored.
    pub fn log_out(&self, text: &str) {
        self.inner.logins.end(text);
    }

    /// Creates a code for one login as the owner. `None` with `--no-auth`.
    pub fn make_login_code(&self) -> Result<Option<String>, Error> {
        let Some(owner) = self.inner.owner_token else { return Ok(None) };
        let code = random_digits::<16>()?;
        self.inner.logins.add_code(&code, owner, Instant::now());
        Ok(Some(code))
    }

    fn begin_login(&self, principal: Principal, token: Digest) -> Result<BegunLogin, Error> {
        let text = random_digits::<32>()?;
        self.inner.logins.begin(&text, token, Instant::now());
        Ok(BegunLogin { principal, text })
    }

    pub fn issue_ticket(&self, by: &Principal, login: Option<HeldLogin>) -> Result<NewTicket, Error> {
        let text = format!("rwt_{}", random_digits::<32>()?);
        self.inner.tickets.issue(by, login, &text)?;
        let lasts = i64::try_from(milliseconds(tickets::LASTS)).unwrap_or(i64::MAX);
        let expires_at = Timestamp::from_milliseconds(now().milliseconds().saturating_add(lasts));
        Ok(NewTicket { text, expires_at })
    }

    /// Consumes a ticket. Returns its principal, and its login if it was requested with one.
    pub async fn authenticate_ticket(&self, text: &str) -> Result<(Principal, Option<HeldLogin>), Error> {
        let (principal, login) = self.inner.tickets.redeem(text).ok_or(Error::Unauthenticated)?;
        self.authenticate_again(&principal).await?;
        Ok((principal, login))
    }
}
