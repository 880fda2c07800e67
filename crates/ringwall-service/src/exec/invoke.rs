//! Calls a skill: checks the inputs against its manifest, narrows the policy by it, and submits its
//! command as an exec.

use std::sync::Arc;

use serde_json::Value;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::Error;
use crate::exec::spec::{ExecRequest, ExecSpec, Idempotency};
use crate::exec::submit::Submitted;
use crate::service::Service;
use crate::skills::{Call, Catalogue, Found, Skill};

/// Options of a call that are not in its body.
#[derive(Debug, Clone, Default)]
pub struct InvokeOptions {
    pub idempotency: Option<Idempotency>,
}

impl Service {
    /// All skills, and the manifests that are invalid.
    pub async fn skills(&self) -> Result<Catalogue, Error> {
        let skills = self.inner.skills.clone();
        blocking::in_place(move || Ok(skills.list()?)).await
    }

    pub async fn invoke(
        &self,
        by: &Principal,
        skill_id: &str,
        body: Value,
        options: InvokeOptions,
    ) -> Result<Submitted, Error> {
        let skill = self.find_skill(skill_id).await?;
        let call = Call::read(body).map_err(|error| Error::invalid(error.to_string()))?;
        let invalid =
            |error: crate::skills::InvalidInput| Error::InvalidInput { field: error.field, message: error.reason };
        skill.validate_inputs(&call.inputs).map_err(invalid)?;
        let command = skill.command(&call.inputs).map_err(invalid)?;
        let request = ExecRequest {
            user_id: call.user_id,
            agent_id: call.agent_id,
            project_id: call.project_id,
            skill_id: Some(skill.id.clone()),
            task_id: call.task_id,
            conversation_id: call.conversation_id,
            backend: call.backend,
            idempotency: options.idempotency,
            env: command.env,
            ..ExecRequest::default()
        };
        let mut spec = ExecSpec::read(by, request, Some(&skill), &self.settings_now(), self.inner.gvisor_home())?;
        // The operator defines a skill's command, so the checks on callers' commands do not apply.
        spec.words = command.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        spec.argv = Ok(command.argv);
        spec.layers.narrowing.push(call.layer);
        self.admit(spec).await
    }

    pub async fn find_skill(&self, id: &str) -> Result<Arc<Skill>, Error> {
        let (skills, wanted) = (self.inner.skills.clone(), id.to_owned());
        match blocking::in_place(move || Ok(skills.find(&wanted)?)).await? {
            Found::Skill(skill) => Ok(skill),
            Found::Invalid(invalid) => {
                Err(Error::InvalidManifest { id: invalid.id.clone(), reasons: invalid.reasons.clone() })
            }
            Found::Unknown => Err(Error::NotFound { what: "skill of this id".to_owned() }),
        }
    }
}
