//! The public form of an approval, and the queries for approvals. An approval that the caller may
//! not see is reported as not found.

use std::sync::Arc;

use ringwall_ids::{AgentId, ApprovalId, ExecId, UserId};
use ringwall_record::{
    Approval, ApprovalFilter, ApprovalKind, ApprovalStatus, CoveredFile, Cursor, Limit, Page, RiskLevel, Timestamp,
    UncoveredFile,
};
use serde::Serialize;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalView {
    #[schema(value_type = String)]
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    pub status: ApprovalStatus,
    pub session_id: String,
    #[schema(value_type = String)]
    pub exec_id: ExecId,
    #[schema(value_type = String)]
    pub user: UserId,
    #[schema(value_type = String)]
    pub agent: AgentId,
    /// The question in one sentence
    pub description: String,
    pub command: String,
    /// The complete code
    pub code: Option<String>,
    /// The entries that a remembered answer adds to the list
    pub requested_paths: Vec<String>,
    /// Paths or hosts that the command uses and that are not allowed
    pub blocked_paths: Vec<String>,
    pub risk_level: RiskLevel,
    pub patterns: Vec<String>,
    /// Files that the command runs or reads, and whose content is part of what is approved
    pub covered_files: Vec<CoveredFile>,
    /// Files that the command names and whose content may change after the answer
    pub not_covered: Vec<UncoveredFile>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub answered_at: Option<Timestamp>,
    pub answered_by: Option<String>,
    pub reason: Option<String>,
}

impl ApprovalView {
    /// Approximate memory use in bytes.
    pub(super) fn size(&self) -> usize {
        let texts = [&self.requested_paths, &self.blocked_paths, &self.patterns].into_iter().flatten();
        let code = self.code.as_ref().map_or(0, String::len);
        let scripts = self.covered_files.iter().map(|file| {
            let text = file.script.as_ref().map_or(0, |script| script.text.len());
            size_of::<CoveredFile>() + file.path.len() + file.sha256.len() + text
        });
        let not_covered = self.not_covered.iter().map(|file| size_of::<UncoveredFile>() + file.path.len());
        size_of::<Self>()
            + self.command.len()
            + self.description.len()
            + code
            + scripts.chain(not_covered).sum::<usize>()
            + texts.map(|text| text.len() + size_of::<String>()).sum::<usize>()
    }
}

impl From<Approval> for ApprovalView {
    fn from(approval: Approval) -> Self {
        let Approval { asked, status, answered_at, answered_by, reason } = approval;
        let description = match asked.kind {
            ApprovalKind::Risk => asked.command.clone(),
            ApprovalKind::Path | ApprovalKind::Network => {
                format!("Reach {}", asked.blocked_paths.join(", "))
            }
        };
        Self {
            description,
            id: asked.id,
            kind: asked.kind,
            status,
            session_id: asked.session_id,
            exec_id: asked.exec_id,
            user: asked.user_id,
            agent: asked.agent_id,
            command: asked.command,
            code: asked.code,
            requested_paths: asked.requested_paths,
            blocked_paths: asked.blocked_paths,
            risk_level: asked.risk_level,
            patterns: asked.patterns,
            covered_files: asked.files.covered,
            not_covered: asked.files.not_covered,
            created_at: asked.created_at,
            expires_at: asked.expires_at,
            answered_at,
            answered_by,
            reason,
        }
    }
}

impl Service {
    /// Newest first.
    pub async fn approvals(
        &self,
        by: &Principal,
        status: Option<ApprovalStatus>,
        exec_id: Option<ExecId>,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<ApprovalView>, Error> {
        let filter = ApprovalFilter { scope: by.scope(), status, exec_id };
        let page = self.inner.store.approvals(&filter, limit, cursor).await?;
        Ok(Page { items: page.items.into_iter().map(ApprovalView::from).collect(), next: page.next })
    }

    pub async fn approval(&self, by: &Principal, id: &str) -> Result<ApprovalView, Error> {
        // A malformed id gives the same error as an unknown one.
        let id: ApprovalId = id.parse().map_err(|_| no_approval(id))?;
        let found = self.inner.store.approval(&id, &by.scope()).await?;
        found.map(ApprovalView::from).ok_or_else(|| no_approval(id.as_str()))
    }
}

pub(super) fn no_approval(id: &str) -> Error {
    let short: String = id.chars().take(80).collect();
    Error::NotFound { what: format!("approval {short}") }
}

pub(super) fn shared(approval: Approval) -> Arc<ApprovalView> {
    Arc::new(approval.into())
}
