//! Stopping a server: execs that end in time keep their result, the others are cancelled.

use std::time::Duration;

use ringwall_service::{Auth, Service, Status};

use crate::fixture::{Fixture, HELD, block_on, config, in_fixture, shell};

pub fn second_service_on_data_directory_is_refused() {
    in_fixture(async |fixture| {
        let second = Service::open(config(fixture.directory.path(), Auth::Disabled)).await;
        assert!(matches!(second, Err(ringwall_service::Error::DataInUse)), "{second:?}");
    });
}

pub fn drain_cancels_running_execs() {
    block_on(async {
        let Fixture { service, owner, directory } = Fixture::open().await;
        service.change_settings(&owner, serde_json::json!({"sandbox": {"max_concurrent_execs": 1}})).await.unwrap();
        let running = service.submit(&owner, shell(HELD)).await.unwrap().exec_id;
        let waiting = service.submit(&owner, shell("true")).await.unwrap().exec_id;
        let ends = tokio::join!(
            service.finished(&owner, &running),
            service.finished(&owner, &waiting),
            service.drain(Duration::ZERO)
        );
        for view in [ends.0.unwrap(), ends.1.unwrap()] {
            assert_eq!(view.summary.status, Status::Cancelled);
            assert_eq!(view.error_reason.unwrap().code, "SERVER_STOPPED");
        }
        assert_eq!(service.submit(&owner, shell("true")).await.unwrap_err().code(), "STOPPING");
        drop(service);
        let service = Service::open(config(directory.path(), Auth::Disabled)).await.unwrap();
        assert_eq!(service.exec(&owner, &running).await.unwrap().summary.status, Status::Cancelled);
    });
}

pub fn drain_waits_for_execs_that_end_in_time() {
    in_fixture(async |fixture| {
        let running = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap().exec_id;
        let drain = fixture.service.drain(Duration::from_secs(60));
        let mut drain = std::pin::pin!(drain);
        assert!(futures::poll!(&mut drain).is_pending());
        assert_eq!(fixture.refused(shell("true")).await.code(), "STOPPING");
        fixture.release("default");
        let (view, ()) = tokio::join!(fixture.service.finished(&fixture.owner, &running), drain);
        assert_eq!(view.unwrap().summary.status, Status::Succeeded);
    });
}
