//! Session rules: the operator's and the user's are stored separately, and some outlive the
//! session.

use ringwall_record::{
    AuditFilter, AuthorRules, Confirmation, Limit, RulesAuthor, Scope, SessionKey, SessionRules, SessionWithRules,
    Store, UserRules,
};

use crate::database::{TestDatabase, assert_intact};
use crate::samples::at;

fn session(user: &str, id: &str) -> SessionKey {
    let (user_id, agent_id) = (user.parse().unwrap(), "a".parse().unwrap());
    SessionKey { user_id, agent_id, session_id: id.parse().unwrap() }
}

fn confirming(confirmation: Confirmation) -> AuthorRules {
    AuthorRules { confirmation: Some(confirmation), ..AuthorRules::default() }
}

fn both_rules(operator: AuthorRules, user: AuthorRules) -> SessionRules {
    SessionRules { operator, user, has_ended: false }
}

async fn rule(store: &Store, name: &SessionKey, author: RulesAuthor, rules: &SessionRules) {
    store.set_session_rules(name.clone(), author, rules.clone(), at(1), "t_1").await.unwrap();
}

pub async fn rules_round_trip_and_are_audited(db: TestDatabase) {
    let store = db.open().await;
    let (own, other) = (session("ann", "s"), session("bob", "s"));
    assert_eq!(store.session_rules(&own).await.unwrap(), None);
    for confirmation in Confirmation::ALL {
        let rules = both_rules(confirming(confirmation), AuthorRules::default());
        rule(&store, &own, RulesAuthor::Operator, &rules).await;
        assert_eq!(store.session_rules(&own).await.unwrap(), Some(rules));
    }
    let operator = AuthorRules {
        confirmation: Some(Confirmation::Callback),
        callback_url: Some("https://hooks.example/x".to_owned()),
        security_mode: Some("permissive".to_owned()),
    };
    let user = AuthorRules { security_mode: Some("strict".to_owned()), ..confirming(Confirmation::AutoReject) };
    let whole = both_rules(operator, user);
    rule(&store, &own, RulesAuthor::Operator, &whole).await;
    assert_eq!(store.session_rules(&own).await.unwrap(), Some(whole.clone()));
    let many: Vec<SessionKey> = (0..1000).map(|number| session("ann", &format!("s{number}"))).collect();
    let asked: Vec<SessionKey> = many.into_iter().chain([other.clone(), own.clone()]).collect();
    assert_eq!(store.rules_of_sessions(&asked).await.unwrap(), [(own.clone(), whole)].into());
    assert!(store.rules_of_sessions(&[]).await.unwrap().is_empty());
    assert_eq!(store.session_rules(&other).await.unwrap(), None, "ids are a user's own");
    let ruled = SessionWithRules { name: own.clone(), has_ended: false };
    assert_eq!(store.sessions_with_rules().await.unwrap(), [ruled]);
    store.end_session(own.clone(), UserRules::Dropped, at(3), "t_1").await.unwrap();
    let entries = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(10), None).await.unwrap();
    let actions: Vec<_> = entries.items.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions.iter().filter(|action| **action == "session.changed").count(), 5);
    assert_eq!(actions.iter().filter(|action| **action == "session.deleted").count(), 1);
    assert_intact(&store).await;
}

/// The service reads, combines and writes. Of two writes that read the same state, neither may undo
/// the other author's rules.
pub async fn user_write_keeps_operator_rules(db: TestDatabase) {
    let store = db.open().await;
    let own = session("ann", "s");
    let stale = both_rules(AuthorRules::default(), confirming(Confirmation::Websocket));
    let operator = both_rules(confirming(Confirmation::AutoReject), AuthorRules::default());
    rule(&store, &own, RulesAuthor::Operator, &operator).await;
    rule(&store, &own, RulesAuthor::User, &stale).await;
    let expected = both_rules(operator.operator, stale.user);
    assert_eq!(store.session_rules(&own).await.unwrap(), Some(expected));
}

pub async fn operator_rules_outlive_session(db: TestDatabase) {
    let store = db.open().await;
    let own = session("ann", "s");
    let rules = both_rules(confirming(Confirmation::AutoReject), confirming(Confirmation::AutoReject));
    rule(&store, &own, RulesAuthor::Operator, &rules).await;
    store.end_session(own.clone(), UserRules::Kept, at(2), "t_1").await.unwrap();
    let kept = SessionRules { has_ended: true, ..rules.clone() };
    assert_eq!(store.session_rules(&own).await.unwrap(), Some(kept));
    store.end_session(own.clone(), UserRules::Dropped, at(3), "t_1").await.unwrap();
    let operator_only = SessionRules { user: AuthorRules::default(), has_ended: true, ..rules.clone() };
    assert_eq!(store.session_rules(&own).await.unwrap(), Some(operator_only));
    // Rules for a new session with this id clear the mark.
    rule(&store, &own, RulesAuthor::Operator, &rules).await;
    assert_eq!(store.session_rules(&own).await.unwrap(), Some(rules));
}

pub async fn loosening_rules_end_with_session(db: TestDatabase) {
    let store = db.open().await;
    let own = session("ann", "s");
    let operator =
        AuthorRules { security_mode: Some("permissive".to_owned()), ..confirming(Confirmation::AutoApprove) };
    rule(&store, &own, RulesAuthor::Operator, &both_rules(operator, AuthorRules::default())).await;
    store.end_session(own.clone(), UserRules::Dropped, at(2), "t_1").await.unwrap();
    assert_eq!(store.session_rules(&own).await.unwrap(), None);
    assert!(store.sessions_with_rules().await.unwrap().is_empty());
}

pub async fn invalid_rules_are_refused(db: TestDatabase) {
    let store = db.open().await;
    let lax = AuthorRules { security_mode: Some("lax".to_owned()), ..AuthorRules::default() };
    let wrong = [
        (RulesAuthor::Operator, both_rules(lax.clone(), AuthorRules::default())),
        (RulesAuthor::User, both_rules(AuthorRules::default(), lax)),
        (RulesAuthor::User, both_rules(AuthorRules::default(), confirming(Confirmation::AutoApprove))),
    ];
    for (author, rules) in wrong {
        assert!(store.set_session_rules(session("ann", "s"), author, rules, at(1), "t_1").await.is_err());
    }
    assert!(store.sessions_with_rules().await.unwrap().is_empty());
    assert_intact(&store).await;
}
