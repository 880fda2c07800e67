//! One idempotency key starts one exec: for repeated and concurrent requests, and after a restart.

use futures::future::join_all;
use ringwall_service::{Auth, Error, ExecFilter, ExecRequest, Idempotency, Limit, Service, Status};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};

use crate::fixture::{Fixture, HELD, block_on, config, in_fixture, shell};

fn keyed(key: &str, digest: u8, script: &str) -> ExecRequest {
    let idempotency = Some(Idempotency { key: key.to_owned(), body_digest: [digest; 32] });
    ExecRequest { idempotency, ..shell(script) }
}

async fn count(fixture: &Fixture) -> usize {
    fixture.service.execs(&fixture.owner, ExecFilter::default(), Limit::nearest(1000), None).await.unwrap().items.len()
}

pub fn same_key_returns_same_exec() {
    in_fixture(async |fixture| {
        let first = fixture.service.submit(&fixture.owner, keyed("k", 1, "echo x >> x")).await.unwrap();
        fixture.service.finished(&fixture.owner, &first.exec_id).await.unwrap();
        let again = fixture.service.submit(&fixture.owner, keyed("k", 1, "echo x >> x")).await.unwrap();
        assert_eq!((&again.exec_id, again.known, again.status), (&first.exec_id, true, Status::Succeeded));
        let other = fixture.refused(keyed("k", 2, "true")).await;
        assert_eq!(other.code(), "CONFLICT");
        assert_eq!(count(fixture).await, 1);
        assert_eq!(fixture.service.metrics().running, 0);

        let denied = |digest| ExecRequest { kind: "perl".to_owned(), ..keyed("d", digest, "true") };
        let Error::Denied { exec_id: one, .. } = fixture.refused(denied(1)).await else { panic!("not denied") };
        let Error::Denied { exec_id: two, .. } = fixture.refused(denied(1)).await else { panic!("not denied") };
        assert_eq!(one, two);
        assert_eq!(fixture.refused(denied(2)).await.code(), "CONFLICT");
    });
}

/// Digests are keyed, so a copy of the database cannot be used to test guesses of a request.
pub fn request_digest_is_keyed() {
    let recorded = || {
        let mut found = Vec::new();
        in_fixture(async |fixture| {
            let first = fixture.service.submit(&fixture.owner, keyed("k", 1, "true")).await.unwrap();
            fixture.service.finished(&fixture.owner, &first.exec_id).await.unwrap();
            let path = fixture.directory.path().join("db.sqlite");
            let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
            let question = sqlx::query_scalar("SELECT body_digest FROM sandbox_execs WHERE idempotency_key = 'k'");
            found = question.fetch_one(&mut connection).await.unwrap();
        });
        found
    };
    let (one, other): (Vec<u8>, Vec<u8>) = (recorded(), recorded());
    assert_eq!(one.len(), 32);
    assert_ne!(one, [1; 32], "the digest itself");
    assert_ne!(one, other, "the same request, known by its digest on another server");
}

pub fn concurrent_requests_with_same_key_start_one_exec() {
    in_fixture(async |fixture| {
        let submissions = (0..20).map(|_| fixture.service.submit(&fixture.owner, keyed("k", 1, "echo x >> x")));
        let submitted: Vec<_> = join_all(submissions).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(submitted.iter().filter(|submitted| !submitted.known).count(), 1);
        assert!(submitted.iter().all(|other| other.exec_id == submitted[0].exec_id));
        fixture.service.finished(&fixture.owner, &submitted[0].exec_id).await.unwrap();
        assert_eq!(std::fs::read_to_string(fixture.project("default", "work").join("x")).unwrap(), "x\n");
        assert_eq!(count(fixture).await, 1);
        assert_eq!(fixture.service.metrics().waiting, 0);
    });
}

/// With a queue of one place, all requests with the key of the queued exec return that exec.
pub fn key_of_queued_exec_is_known_while_queue_is_full() {
    in_fixture(async |fixture| {
        fixture.set(json!({"sandbox": {"max_concurrent_execs": 1, "max_queued_execs": 1}})).await;
        let first = fixture.service.submit(&fixture.owner, keyed("first", 1, HELD)).await.unwrap();
        let submissions = (0..20).map(|_| {
            let (service, owner) = (fixture.service.clone(), fixture.owner.clone());
            tokio::spawn(async move { service.submit(&owner, keyed("second", 1, "true")).await })
        });
        let submitted = join_all(submissions).await.into_iter().map(|joined| joined.unwrap().unwrap());
        let submitted: Vec<_> = submitted.collect();
        assert!(submitted.iter().all(|other| other.exec_id == submitted[0].exec_id));
        assert_eq!(fixture.refused(keyed("third", 1, "true")).await.code(), "QUEUE_FULL");
        assert_eq!(fixture.refused(shell("true")).await.code(), "QUEUE_FULL");
        let again = fixture.service.submit(&fixture.owner, keyed("first", 1, HELD)).await.unwrap();
        assert_eq!((&again.exec_id, again.known, again.status), (&first.exec_id, true, Status::Running));
        assert_eq!(fixture.refused(keyed("first", 2, HELD)).await.code(), "CONFLICT");
        fixture.release("default");
        for exec_id in [&first.exec_id, &submitted[0].exec_id] {
            assert_eq!(
                fixture.service.finished(&fixture.owner, exec_id).await.unwrap().summary.status,
                Status::Succeeded
            );
        }
        assert_eq!(count(fixture).await, 2);
    });
}

pub fn key_is_known_after_policy_denies_request() {
    in_fixture(async |fixture| {
        fixture.set(json!({"sandbox": {"limits": {"timeout_ms": 90_000}}})).await;
        let wide = || ExecRequest { overrides: Some(json!({"timeout_ms": 80_000})), ..keyed("k", 1, "true") };
        let first = fixture.service.submit(&fixture.owner, wide()).await.unwrap();
        fixture.service.finished(&fixture.owner, &first.exec_id).await.unwrap();
        fixture.set(json!({"sandbox": {"limits": {"timeout_ms": null}}})).await;
        let again = fixture.service.submit(&fixture.owner, wide()).await.unwrap();
        assert_eq!((again.exec_id, again.known, again.status), (first.exec_id, true, Status::Succeeded));
        assert_eq!(count(fixture).await, 1);
    });
}

pub fn key_is_known_after_restart() {
    block_on(async {
        let fixture = Fixture::open().await;
        let first = fixture.service.submit(&fixture.owner, keyed("k", 1, "true")).await.unwrap();
        fixture.service.finished(&fixture.owner, &first.exec_id).await.unwrap();
        let Fixture { service, owner, directory } = fixture;
        service.drain(std::time::Duration::from_secs(5)).await;
        drop(service);
        let service = Service::open(config(directory.path(), Auth::Disabled)).await.unwrap();
        let again = service.submit(&owner, keyed("k", 1, "true")).await.unwrap();
        assert_eq!((again.exec_id, again.known), (first.exec_id, true));
    });
}
