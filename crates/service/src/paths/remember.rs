//! What a person allowed for good joins the list: the operator's answer for everybody, a user's for themselves alone.

use policy::{HostPath, Locale};
use record::{Holder, PathScope, UserId};

use crate::error::Error;
use crate::principal::Principal;
use crate::service::Service;

use super::list::{SandboxPath, read_path};

impl Service {
    /// Stores all of them, or none where one is refused.
    pub(crate) async fn remember_paths(
        &self,
        by: &Principal,
        user: &UserId,
        paths: &[String],
    ) -> Result<Vec<SandboxPath>, Error> {
        let scope = match by.holder() {
            Holder::Owner | Holder::Operator => PathScope::Global,
            Holder::User(_) => PathScope::User(user.clone()),
            Holder::Agent(..) => return Err(Error::Forbidden { why: "an agent allows nothing".to_owned() }),
        };
        let paths = self.check_grantable(by, paths).await?;
        let mut ids = Vec::new();
        for path in &paths {
            let (_, listed) = self.listed_paths().await?;
            ids.push(self.store_path(&listed, path, "", scope.clone(), by).await?);
        }
        let (_, listed) = self.listed_paths().await?;
        Ok(listed
            .iter()
            .filter(|listed| ids.contains(&listed.entry.id))
            .map(|listed| listed.view(Locale::English))
            .collect())
    }

    /// The paths, if this person may allow them, for once or for good: nobody what is Ringwall's own, and a user no root
    /// of the system's.
    pub(crate) async fn check_grantable(&self, by: &Principal, paths: &[String]) -> Result<Vec<HostPath>, Error> {
        let mut checked = Vec::new();
        for text in paths {
            let path = read_path(text)?;
            self.require_foreign(&path).await?;
            if let (Holder::User(_) | Holder::Agent(..), Some(warning)) = (by.holder(), path.warning()) {
                return Err(Error::Forbidden {
                    why: format!("only an owner or an operator may allow {path}: {warning}"),
                });
            }
            checked.push(path);
        }
        Ok(checked)
    }
}
