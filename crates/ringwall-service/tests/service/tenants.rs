//! Permissions of the roles, with real tokens.

use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_record::Store;
use ringwall_service::{
    Auth, ExecFilter, ExecRequest, Holder, Limit, NewToken, Principal, Revocation, Service, Stream,
    create_token_offline,
};

use crate::fixture::{block_on, config, shell};

async fn principal(service: &Service, by: &Principal, holder: Holder) -> Principal {
    let (_, text) = service.create_token(by, NewToken { holder, label: None, expires_at: None }).await.unwrap();
    service.authenticate(Some(&text)).await.unwrap()
}

fn user(name: &str) -> Holder {
    Holder::User(name.parse().unwrap())
}

fn agent(user: &str, name: &str) -> Holder {
    Holder::Agent(user.parse().unwrap(), name.parse().unwrap())
}

pub fn exec_of_other_user_is_not_found() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::open(config(directory.path(), Auth::Tokens)).await.unwrap();
        let text = std::fs::read_to_string(directory.path().join("owner.token")).unwrap();
        let owner = service.authenticate(Some(text.trim())).await.unwrap();
        let one = principal(&service, &owner, agent("u", "one")).await;
        let id = service.submit(&one, shell("echo secret")).await.unwrap().exec_id;
        let view = service.finished(&one, &id).await.unwrap();
        assert_eq!((view.summary.user_id.as_str(), view.summary.agent_id.as_str()), ("u", "one"));

        let strangers = [user("v"), agent("u", "two"), agent("v", "one")];
        for holder in strangers {
            let stranger = principal(&service, &owner, holder.clone()).await;
            let codes = [
                service.exec(&stranger, &id).await.map(drop),
                service.finished(&stranger, &id).await.map(drop),
                service.cancel(&stranger, &id).await.map(drop),
                service.artifacts(&stranger, &id).await.map(drop),
                service.artifact(&stranger, &id, "stdout.txt").await.map(drop),
                service.output(&stranger, &id, Stream::Stdout, 0, 10).await.map(drop),
                service.events(&stranger, &id, None).await.map(drop),
                service.observation(&stranger, &id).await.map(drop),
            ]
            .map(|result| result.unwrap_err().code());
            assert_eq!(codes, ["NOT_FOUND"; 8], "{holder:?}");
            let list = service.execs(&stranger, ExecFilter::default(), Limit::nearest(10), None).await.unwrap();
            assert!(list.items.is_empty());
            assert_eq!(service.settings(&stranger).await.unwrap_err().code(), "FORBIDDEN");
            assert_eq!(service.tokens(&stranger, Limit::nearest(1), None).await.unwrap_err().code(), "FORBIDDEN");
        }
        for holder in [user("u"), Holder::Operator, agent("u", "one")] {
            let friend = principal(&service, &owner, holder).await;
            assert!(service.exec(&friend, &id).await.is_ok());
        }
        let foreign = ExecRequest { user_id: Some("v".to_owned()), ..shell("true") };
        assert_eq!(service.submit(&one, foreign).await.unwrap_err().code(), "FORBIDDEN");
    });
}

pub fn tokens_grant_rights_of_their_role() {
    block_on(async {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let settings = config(directory.path(), Auth::Tokens);
        let service = Service::open(settings.clone()).await.unwrap();
        let file = directory.path().join("owner.token");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        let owner = service.authenticate(Some(text.trim())).await.unwrap();
        for wrong in [None, Some(""), Some("rw_0"), Some(text.as_str())] {
            assert_eq!(service.authenticate(wrong).await.unwrap_err().code(), "UNAUTHENTICATED", "{wrong:?}");
        }
        // Created while the server is running.
        let new = |holder| NewToken { holder, label: None, expires_at: None };
        let key = ringwall_service::ensure_head_key(directory.path()).unwrap();
        let (token, text) = create_token_offline(settings.database.clone(), key, new(Holder::Operator)).await.unwrap();
        let operator = service.authenticate(Some(&text)).await.unwrap();
        let refused = service.create_token(&operator, new(Holder::Owner)).await.unwrap_err();
        assert_eq!(refused.code(), "FORBIDDEN");
        assert!(service.create_token(&operator, new(user("u"))).await.is_ok());
        assert!(matches!(service.revoke_token(&owner, &token.id).await, Ok(Revocation::Recorded)));
        assert_eq!(service.authenticate(Some(&text)).await.unwrap_err().code(), "UNAUTHENTICATED");
        let expired =
            NewToken { expires_at: Some(ringwall_service::Timestamp::from_milliseconds(1)), ..new(Holder::Owner) };
        let (_, text) = service.create_token(&owner, expired).await.unwrap();
        assert_eq!(service.authenticate(Some(&text)).await.unwrap_err().code(), "UNAUTHENTICATED");
    });
}

/// An expired or revoked token is rejected at once although it was just used, also if another
/// process revoked it.
pub fn revoked_token_is_rejected_at_once() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let settings = config(directory.path(), Auth::Tokens);
        let service = Service::open(settings.clone()).await.unwrap();
        let key = ringwall_service::ensure_head_key(directory.path()).unwrap();
        let other = Store::open(settings.database, Some(key)).await.unwrap();
        let text = std::fs::read_to_string(directory.path().join("owner.token")).unwrap();
        let owner = service.authenticate(Some(text.trim())).await.unwrap();
        let new = NewToken { holder: user("u"), label: None, expires_at: None };
        let opens = async |text: &str| service.authenticate(Some(text)).await.is_ok();

        for round in 0..40 {
            let (token, text) = service.create_token(&owner, new.clone()).await.unwrap();
            assert!(opens(&text).await && opens(&text).await);
            let revoke = async {
                match round % 2 {
                    0 => service.revoke_token(&owner, &token.id).await.unwrap(),
                    _ => other
                        .revoke_token(&token.id, ringwall_service::Timestamp::from_milliseconds(1), "t")
                        .await
                        .unwrap(),
                }
            };
            // Concurrent requests with the token must not put it back into a cache.
            let (revoked, _) = tokio::join!(revoke, opens(&text));
            assert_eq!(revoked, Revocation::Recorded);
            assert!(!opens(&text).await);
        }

        let since_epoch = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let expires_at = i64::try_from(since_epoch()).unwrap() + 300;
        let expiring = NewToken { expires_at: Some(ringwall_service::Timestamp::from_milliseconds(expires_at)), ..new };
        let (_, text) = service.create_token(&owner, expiring).await.unwrap();
        loop {
            let is_over = i64::try_from(since_epoch()).unwrap() >= expires_at;
            let is_open = opens(&text).await;
            assert!(!(is_over && is_open), "an expired token opens");
            if is_over {
                break;
            }
        }
        other.close().await;
    });
}
