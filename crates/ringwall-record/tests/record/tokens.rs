//! Tokens: found by hash, listed and revoked; the last valid owner token stays.

use ringwall_ids::TokenId;
use ringwall_record::{AuditFilter, Digest, Error, Holder, Limit, NewToken, Revocation, Scope};

use crate::database::{TestDatabase, assert_intact};
use crate::samples::at;

pub(crate) fn token_id(number: u64) -> TokenId {
    format!("t_{number:016x}").parse().unwrap()
}

pub(crate) fn token(number: u64, holder: Holder) -> NewToken {
    NewToken {
        id: token_id(number),
        hash: Digest::of(&number.to_be_bytes()),
        holder,
        label: Some("laptop".to_owned()),
        created_at: at(10),
        created_by: "owner".to_owned(),
        expires_at: Some(at(100)),
    }
}

pub async fn token_is_found_by_hash(db: TestDatabase) {
    let store = db.open().await;
    let (ann, helper) = ("ann".parse::<ringwall_ids::UserId>().unwrap(), "helper".parse().unwrap());
    let holders = [Holder::Owner, Holder::Operator, Holder::User(ann.clone()), Holder::Agent(ann, helper)];
    for (number, holder) in (0..).zip(holders) {
        let new = token(number, holder);
        store.create_token(new.clone()).await.unwrap();
        let found = store.token_by_hash(&new.hash).await.unwrap().unwrap();
        assert_eq!((found.id.clone(), &found.holder, &found.label), (new.id, &new.holder, &new.label));
        assert_eq!((found.created_at, &found.created_by), (at(10), &new.created_by));
        assert!(found.is_valid(at(99)) && !found.is_valid(at(100)));
    }
    assert_eq!(store.token_by_hash(&Digest::of(b"guess")).await.unwrap(), None);
    let same_hash = NewToken { id: token_id(9), ..token(1, Holder::Owner) };
    assert!(matches!(store.create_token(same_hash).await, Err(Error::TokenTaken)));
    let same_id = NewToken { hash: Digest::of(b"new"), ..token(1, Holder::Owner) };
    assert!(matches!(store.create_token(same_id).await, Err(Error::TokenTaken)));
    // A constraint of the table refuses a role without its user or agent.
    let half = "UPDATE tokens SET role = 'agent' WHERE role = 'user'";
    assert!(db.execute(half).await.is_err());
    assert_intact(&store).await;
}

pub async fn tokens_are_listed_and_revoked(db: TestDatabase) {
    let store = db.open().await;
    for number in 0..5 {
        store.create_token(token(number, Holder::Owner)).await.unwrap();
    }
    let page = store.tokens(Limit::nearest(3), None).await.unwrap();
    let ids = |page: &ringwall_record::Page<ringwall_record::Token>| {
        page.items.iter().map(|one| one.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&page), [4, 3, 2].map(token_id));
    let rest = store.tokens(Limit::nearest(3), page.next).await.unwrap();
    assert_eq!((ids(&rest), rest.next), (vec![token_id(1), token_id(0)], None));

    assert_eq!(store.revoke_token(&token_id(1), at(50), "owner").await.unwrap(), Revocation::Recorded);
    assert_eq!(store.revoke_token(&token_id(1), at(60), "owner").await.unwrap(), Revocation::AlreadyRevoked(at(50)));
    assert_eq!(store.revoke_token(&token_id(9), at(60), "owner").await.unwrap(), Revocation::Unknown);
    let revoked = store.token_by_hash(&Digest::of(&1_u64.to_be_bytes())).await.unwrap().unwrap();
    assert!(!revoked.is_valid(at(0)), "revoked at any time");
    let filter = AuditFilter { action: Some("token.revoked".to_owned()), ..AuditFilter::everything(Scope::All) };
    assert_eq!(store.audit(&filter, Limit::nearest(10), None).await.unwrap().items.len(), 1);
    assert_intact(&store).await;
}

pub async fn last_valid_owner_token_is_kept(db: TestDatabase) {
    let store = db.open().await;
    let expired = NewToken { expires_at: Some(at(20)), ..token(2, Holder::Owner) };
    let lasting = NewToken { expires_at: None, ..token(3, Holder::Owner) };
    for new in [token(1, Holder::Operator), expired, lasting] {
        store.create_token(new).await.unwrap();
    }
    assert_eq!(store.revoke_token(&token_id(3), at(50), "owner").await.unwrap(), Revocation::LastOwner);
    let kept = store.token(&token_id(3)).await.unwrap().unwrap();
    assert!(kept.is_valid(at(60)));
    // Other roles and expired owner tokens are revoked as before.
    for number in [1, 2] {
        assert_eq!(store.revoke_token(&token_id(number), at(50), "owner").await.unwrap(), Revocation::Recorded);
    }
    store.create_token(token(4, Holder::Owner)).await.unwrap();
    assert_eq!(store.revoke_token(&token_id(3), at(50), "owner").await.unwrap(), Revocation::Recorded);
    assert_intact(&store).await;
}

/// Two stores, like a server and a command, each revoke one of the two owner tokens.
pub async fn concurrent_revocations_leave_one_owner_token(db: TestDatabase) {
    let (one, other) = (db.open().await, db.open().await);
    for round in 0..8 {
        let pair = [2 * round + 1, 2 * round + 2];
        for number in pair {
            one.create_token(NewToken { expires_at: None, ..token(number, Holder::Owner) }).await.unwrap();
        }
        let (first, second) = (token_id(pair[0]), token_id(pair[1]));
        let (first, second) =
            futures::join!(one.revoke_token(&first, at(50), "owner"), other.revoke_token(&second, at(50), "owner"));
        let mut answers = vec![first.unwrap(), second.unwrap()];
        answers.sort_by_key(|answer| *answer == Revocation::LastOwner);
        assert_eq!(answers, [Revocation::Recorded, Revocation::LastOwner]);
        // The kept token must not count in the next round.
        let kept = pair.map(token_id);
        let text = format!("UPDATE tokens SET revoked_at = 50 WHERE id IN ('{}', '{}')", kept[0], kept[1]);
        db.execute(&text).await.unwrap();
    }
}
