//! Reads, verifies and exports the audit chain, as far as the caller may see it.

use futures::{Stream, TryStreamExt};
use ringwall_record::{AuditFilter, Cursor, Entry, Limit, Link, Page, Progress, Verification};

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

impl Service {
    /// Newest first. The caller's scope replaces that of the filter.
    pub async fn audit(
        &self,
        by: &Principal,
        filter: AuditFilter,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<Entry>, Error> {
        let scope = match by.scope() {
            ringwall_record::Scope::All => filter.scope,
            own => own,
        };
        Ok(self.inner.store.audit(&AuditFilter { scope, ..filter }, limit, cursor).await?)
    }

    /// Verifies the whole chain. `kept` is a head that was stored elsewhere and must be in the
    /// chain.
    pub async fn verify_audit(
        &self,
        by: &Principal,
        kept: Option<Link>,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Verification, Error> {
        by.require_operator("verify the audit chain")?;
        Ok(self.inner.store.verify_with(kept, progress).await?)
    }

    /// JSON lines, oldest first, starting at `from`.
    pub fn export_audit(
        &self,
        by: &Principal,
        from: i64,
    ) -> Result<impl Stream<Item = Result<String, Error>> + Send + use<>, Error> {
        by.require_operator("export the audit chain")?;
        Ok(self.inner.store.export(from).map_err(Error::from))
    }
}
