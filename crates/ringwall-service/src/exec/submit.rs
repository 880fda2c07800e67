//! Accepts a request: reads it, decides on it, records the intent, and starts or queues the exec.
//!
//! The caller may disconnect at any time. So the task of the exec is spawned right after the intent
//! was sent to the record, and that task answers the caller. Every recorded intent has a task that
//! records its outcome.

use std::path::Path;
use std::sync::Arc;

use ringwall_ids::ExecId;
use ringwall_policy::{Denial, Net, Verdict};
use ringwall_record::{Digest, IntentResult, NewExec, Reason, Start, Status};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::exec::authorize::Directories;
use crate::exec::excerpt::shorten_refused;
use crate::exec::lifecycle::{Entry, Exec};
use crate::exec::queue::Admission;
use crate::exec::registry::RunningExec;
use crate::exec::spec::{ExecRequest, ExecSpec, Target, control};
use crate::service::Service;
use crate::time::now;

/// The answer to an accepted request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Submitted {
    pub exec_id: ExecId,
    pub status: Status,
    /// The idempotency key was used before for the same request. `exec_id` is that earlier exec,
    /// and nothing new runs.
    pub known: bool,
}

impl Service {
    /// Decides, records the intent, and starts or queues the exec.
    pub async fn submit(&self, by: &Principal, request: ExecRequest) -> Result<Submitted, Error> {
        let skill = match &request.skill_id {
            Some(id) => Some(self.find_skill(id).await?),
            None => None,
        };
        let spec = ExecSpec::read(by, request, skill.as_ref(), &self.settings_now(), self.inner.gvisor_home())?;
        self.admit(spec).await
    }

    pub(crate) async fn admit(&self, spec: ExecSpec) -> Result<Submitted, Error> {
        self.admit_and_follow(spec).await.map(|(submitted, _)| submitted)
    }

    /// Like [`Service::admit`], and returns the running exec for a caller that waits for its end.
    /// `None` if the request started no exec.
    pub(crate) async fn admit_and_follow(
        &self,
        mut spec: ExecSpec,
    ) -> Result<(Submitted, Option<Arc<RunningExec>>), Error> {
        let unfollowed = |submitted| (submitted, None);
        if let Some(idempotency) = &mut spec.idempotency {
            idempotency.body_digest = self.inner.digest_key.seal(idempotency.body_digest);
        }
        self.inner.registry.check_open()?;
        let owner = self.owner_of(&spec.user_id, &spec.agent_id).await?;
        let exec_id = ExecId::random()?;
        let verdict = self.authorize(&spec, owner, Directories::Expected).await?;
        let (effective, snapshot, ask) = match verdict {
            Verdict::Allow(grant) => {
                let snapshot = spec.snapshot(grant.effective(), control(&grant));
                (grant.effective().clone(), snapshot, None)
            }
            Verdict::Deny(denial) => return self.deny(&spec, exec_id, denial).await.map(unfollowed),
            // `decide` returns `Ask` only after the layers have merged, so this merge succeeds.
            Verdict::Ask(ask) => match ringwall_policy::merge(&spec.layers) {
                Ok(effective) => {
                    let snapshot = spec.snapshot(&effective, None);
                    (effective, snapshot, Some(ask))
                }
                Err(denial) => return self.deny(&spec, exec_id, denial).await.map(unfollowed),
            },
        };
        // Deny instead of running without a network: the command may depend on it.
        if effective.net != Net::None && !spec.can_reach_hosts() {
            let denial = Denial::no_network(spec.backend.key());
            return self.deny(&spec, exec_id, denial).await.map(unfollowed);
        }
        self.check_lasting_execs(&spec)?;
        if let Err(full) = self.check_room_on_record(&spec.user_id, &spec.agent_id, &spec.words).await {
            return self.repeated(&spec).await?.map(unfollowed).ok_or(full);
        }
        let key = spec.idempotency.as_ref().map(|known| (spec.author.by.clone(), known.key.clone()));
        let (user_id, agent_id) = (spec.user_id.clone(), spec.agent_id.clone());
        let session = spec.session_key();
        let running = Arc::new(RunningExec::new(exec_id.clone(), user_id, agent_id, key, session, spec.lifetime()));
        // Registered before it enters the queue: if this exec fills the queue, a repeated request
        // with the same idempotency key must find it here.
        let registration = self.inner.registry.register(running.clone())?;
        let entry = match ask {
            // Waiting for approval takes no queue position.
            Some(ask) => Entry::Approval(ask),
            None => match self.inner.exec_queue.enter(&spec.user_id) {
                Some(admission) => Entry::Queue(admission),
                None => {
                    drop(registration);
                    return self.repeated(&spec).await?.map(unfollowed).ok_or(Error::QueueFull);
                }
            },
        };
        let start = match &entry {
            Entry::Queue(Admission::Immediate(_)) => Start::Running { started_at: now() },
            Entry::Queue(Admission::Queued(_)) => Start::Queued,
            Entry::Approval(_) => Start::AwaitingApproval,
        };
        let intent = spec.intent(exec_id, snapshot, start);
        // Sends the intent to the record writer. There is no await between this and the spawn
        // below, so a recorded intent always has its task.
        let intending = self.inner.store.intend(&intent);
        let (accepted, accepted_or_refused) = oneshot::channel();
        let followed = running.clone();
        let exec = Exec {
            service: self.clone(),
            spec,
            owner,
            intent,
            running,
            registration,
            limits: effective.limits,
            net: effective.net.mode(),
            questions: 0,
            early_files: None,
        };
        tokio::spawn(exec.run_to_completion(entry, intending, accepted));
        match accepted_or_refused.await {
            Ok(submitted) => submitted.map(|submitted| {
                // For a repeated request, the earlier exec is the answer, not this one.
                let followed = Some(followed).filter(|_| !submitted.known);
                (submitted, followed)
            }),
            Err(_) => Err(Error::Runtime { message: "the exec's task ended without an answer".to_owned() }),
        }
    }

    /// Records a denied request with an excerpt of its command. The intent is its outcome too.
    async fn deny(&self, spec: &ExecSpec, exec_id: ExecId, denial: Denial) -> Result<Submitted, Error> {
        let reason = Reason { code: "POLICY_DENIED".to_owned(), message: denial.message.clone() };
        let mut intent = spec.intent(exec_id.clone(), denied_policy(spec, &denial), Start::Denied(reason));
        shorten_refused(&mut intent);
        let (user, backend) = (intent.user_id.clone(), intent.backend.clone());
        let exec_id = match self.inner.store.intend(&intent).await? {
            IntentResult::Recorded => {
                self.inner.counters.ended(&user, Status::PolicyDenied, &backend);
                exec_id
            }
            IntentResult::Known { exec_id, body_digest } => {
                let known = self.known(spec, exec_id, body_digest).await?;
                match known.status {
                    Status::PolicyDenied => known.exec_id,
                    // The earlier request with this key was allowed. Return that exec even if the
                    // policy denies it now.
                    _ => return Ok(known),
                }
            }
        };
        Err(Error::Denied { denial: Box::new(denial), exec_id })
    }

    /// The earlier exec with the same idempotency key, if any. Records nothing.
    async fn repeated(&self, spec: &ExecSpec) -> Result<Option<Submitted>, Error> {
        let Some(idempotency) = &spec.idempotency else { return Ok(None) };
        // Several requests with this key may be in flight. One of them may get recorded while the
        // others are refused, so wait for all before reading the record.
        while let Some(running) = self.inner.registry.find_intending(&spec.author.by, &idempotency.key) {
            running.intended().await;
        }
        match self.inner.store.find_by_key(&spec.author.by, &idempotency.key).await? {
            Some((exec_id, digest)) => self.known(spec, exec_id, digest).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) async fn known(&self, spec: &ExecSpec, exec_id: ExecId, digest: Digest) -> Result<Submitted, Error> {
        spec.check_same(digest)?;
        let found = self.inner.store.exec(&exec_id, &ringwall_record::Scope::All).await?;
        let status = found.map_or(Status::Running, |exec| exec.summary.status);
        Ok(Submitted { exec_id, status, known: true })
    }
}

impl ExecSpec {
    fn intent(&self, exec_id: ExecId, policy_snapshot: Value, start: Start) -> NewExec {
        let artifacts_path = format!("projects/{}/artifacts/{exec_id}", self.project_id);
        let (cmd, args) = self.words.split_first().map(|(cmd, args)| (cmd.clone(), args.to_vec())).unwrap_or_default();
        NewExec {
            exec_id,
            user_id: self.user_id.clone(),
            agent_id: self.agent_id.clone(),
            caller: self.author.by.clone(),
            from: self.author.from.clone(),
            idempotency: self.idempotency.as_ref().map(|idempotency| ringwall_record::Idempotency {
                key: idempotency.key.clone(),
                body_digest: Digest::from_bytes(idempotency.body_digest),
            }),
            project_id: self.project_id.as_str().to_owned(),
            task_id: self.task_id.clone(),
            conversation_id: self.conversation_id.clone(),
            skill_id: self.skill_id.clone(),
            backend: self.backend.key().to_owned(),
            image: self.image.as_ref().map(|image| image.as_str().to_owned()),
            cmd,
            args,
            cwd: show(&self.cwd),
            env_keys: self.env.keys().cloned().collect(),
            policy_snapshot,
            artifacts_path,
            created_at: now(),
            start,
        }
    }

    fn check_same(&self, recorded: Digest) -> Result<(), Error> {
        match &self.idempotency {
            Some(own) if Digest::from_bytes(own.body_digest) == recorded => Ok(()),
            Some(_) | None => Err(Error::Conflict {
                message: "this Idempotency-Key was used before, for another request; use a new one".to_owned(),
            }),
        }
    }
}

/// The policy snapshot of a denied request: the merged policy, if the layers merge, and the limit
/// or rule that denied it.
fn denied_policy(spec: &ExecSpec, denial: &Denial) -> Value {
    let show = |value: Option<u64>| denial.field.zip(value).map(|(field, value)| field.quantity(value));
    let mut snapshot = ringwall_policy::merge(&spec.layers).map_or_else(|_| json!({}), |effective| json!(effective));
    if let Target::Code(code) = &spec.target {
        snapshot["code"] = code.note();
    }
    snapshot["denied"] = json!({
        "code": denial.code,
        "field": denial.field,
        "asked": show(denial.requested),
        "allowed": show(denial.allowed),
        "layer": denial.layer,
    });
    snapshot
}

fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
