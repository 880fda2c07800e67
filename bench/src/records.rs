//! Queries of a record with very many execs: a page, a filtered page, one exec.
//!
//! Filled through the record's writer, with intents, outcomes and an audit chain, as a server writes them.

use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use ringwall_ids::ExecId;
use ringwall_record::{
    Database, ExecListFilter, ExecOutcome, FinalStatus, HeadKey, Limit, NewExec, Scope, Start, Status, Store,
    StoredOutput, Timestamp,
};
use serde_json::json;
use tempfile::TempDir;

use crate::error::Error;
use crate::samples::Samples;

/// Enough writes at a time to fill every transaction.
const AT_ONCE: usize = 2048;
const QUESTIONS: usize = 200;
const PAGE: u64 = 50;
const TASKS: usize = 1000;
const PROJECTS: usize = 100;

#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) execs: usize,
    pub(crate) filled_per_second: f64,
    pub(crate) questions: Vec<(&'static str, Samples)>,
}

pub(crate) fn measure(execs: usize) -> Result<Records, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::EventLoop)?;
    let data = TempDir::with_prefix("ringwall-bench-records-").map_err(Error::Scratch)?;
    runtime.block_on(async {
        let store = Store::open(Database::Sqlite(data.path().join("db.sqlite")), Some(HeadKey::new([7; 32]))).await?;
        let began = Instant::now();
        stream::iter(0..execs)
            .map(|number| write(&store, number))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let filled_per_second = execs as f64 / began.elapsed().as_secs_f64();
        let questions = ask(&store, execs).await?;
        store.close().await;
        Ok(Records { execs, filled_per_second, questions })
    })
}

async fn write(store: &Store, number: usize) -> Result<(), ringwall_record::Error> {
    let id = exec_id(number)?;
    let at = Timestamp::from_milliseconds(1_700_000_000_000 + number as i64);
    let exec = NewExec {
        exec_id: id.clone(),
        user_id: format!("u{}", number % 10).parse()?,
        agent_id: "a".parse()?,
        caller: "t_bench".to_owned(),
        from: json!({ "door": "http" }),
        idempotency: None,
        project_id: format!("p{}", number % PROJECTS),
        task_id: Some(format!("t{}", number % TASKS)),
        conversation_id: None,
        skill_id: None,
        backend: "native".to_owned(),
        image: None,
        cmd: "bash".to_owned(),
        args: vec!["-lc".to_owned(), "true".to_owned()],
        cwd: "work".to_owned(),
        env_keys: Vec::new(),
        policy_snapshot: json!({ "version": 1 }),
        artifacts_path: format!("projects/p/artifacts/{id}"),
        created_at: at,
        start: Start::Running { started_at: at },
    };
    store.intend(&exec).await?;
    // One in a thousand failed; a query asks for these.
    let failed = number.is_multiple_of(1000);
    let ending = ExecOutcome {
        status: if failed { FinalStatus::Failed } else { FinalStatus::Succeeded },
        exit_code: Some(i32::from(failed)),
        error_reason: None,
        ended_at: at,
        duration_ms: Some(5),
        protections: None,
        stdout: StoredOutput::Complete,
        stderr: StoredOutput::Complete,
        cpu_ms: Some(1),
        max_rss_bytes: Some(1 << 20),
    };
    store.finish(&exec, &ending).await.map(drop)
}

async fn ask(store: &Store, execs: usize) -> Result<Vec<(&'static str, Samples)>, Error> {
    let (page, all) = (Limit::nearest(PAGE), ExecListFilter::everything(Scope::All));
    let mut newest = Samples::default();
    let mut deep = Samples::default();
    let mut task = Samples::default();
    let mut rare = Samples::default();
    let mut merged = Samples::default();
    let mut one = Samples::default();
    // Later pages: a cursor must not read the rows before it.
    let mut cursor = None;
    for question in 0..QUESTIONS {
        let began = Instant::now();
        let first = store.list(&all, page, None).await?;
        newest.push(began.elapsed());
        let began = Instant::now();
        let next = store.list(&all, page, cursor.or(first.next)).await?;
        deep.push(began.elapsed());
        cursor = next.next;
        let filter = ExecListFilter { task_id: Some(format!("t{}", question * 7 % TASKS)), ..all.clone() };
        let began = Instant::now();
        store.list(&filter, page, None).await?;
        task.push(began.elapsed());
        let filter = ExecListFilter {
            project_id: Some(format!("p{}", question % PROJECTS)),
            status: Some(Status::Failed),
            ..all.clone()
        };
        let began = Instant::now();
        store.list(&filter, page, None).await?;
        rare.push(began.elapsed());
        // Any status: the query merges six lists, one per status.
        let scope = Scope::User(format!("u{}", question % 10).parse().map_err(ringwall_record::Error::from)?);
        let filter = ExecListFilter { scope, project_id: filter.project_id, ..all.clone() };
        let began = Instant::now();
        store.list(&filter, page, None).await?;
        merged.push(began.elapsed());
        let id = exec_id(question * 7919 % execs.max(1))?;
        let began = Instant::now();
        store.exec(&id, &Scope::All).await?;
        one.push(began.elapsed());
    }
    Ok(vec![
        ("newest page", newest),
        ("later page", deep),
        ("page of one task", task),
        ("failed execs of one project", rare),
        ("execs of one user in one project", merged),
        ("one exec by id", one),
    ])
}

fn exec_id(number: usize) -> Result<ExecId, ringwall_record::Error> {
    Ok(format!("e_{number:016x}").parse()?)
}
