//! A session's files as text: lines of one, and a piece of one replaced.

use workspace::{AgentPath, Lines, Text};

use super::place::SessionAddress;
use crate::agents::{Edit, detached};
use crate::error::Error;
use crate::principal::Principal;
use crate::service::Service;

impl Service {
    pub async fn read_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: AgentPath,
        lines: Lines,
    ) -> Result<Text, Error> {
        let (place, tree) = self.session_files(by, address).await?;
        let reading = self.inner.agent_locks.read(&place.name.user_id, &place.name.agent_id).await?;
        detached(move || {
            let read = tree.read(&path, lines);
            drop(reading);
            Ok(read?)
        })
        .await
    }

    pub async fn edit_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: AgentPath,
        edit: Edit,
    ) -> Result<(), Error> {
        let (place, tree) = self.session_files(by, address).await?;
        let writing = self.inner.agent_locks.write(&place.name.user_id, &place.name.agent_id).await?;
        let disk = self.disk(&place.name.user_id, &place.name.agent_id, tree.workspace());
        let own = self.session_disk(&disk, &place.id);
        detached(move || {
            let _writing = writing;
            let work = || Ok(tree.edit(&path, &edit.old, &edit.new, edit.expected)?);
            let growth = edit.growth();
            // What does not grow needs no room, also where there is none.
            if growth.bytes == 0 {
                work()?;
                own.shrink();
                disk.shrink();
                return Ok(());
            }
            disk.adding(growth, || own.adding(growth, work))
        })
        .await
    }
}
