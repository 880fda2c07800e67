//! What was said about sessions: read back, replaced, and forgotten, each with its entry.

use record::{AuditFilter, Confirmation, Limit, Scope, SessionName, SessionRules};

use crate::place::{Place, assert_intact};
use crate::samples::at;

fn session(user: &str, id: &str) -> SessionName {
    let (user_id, agent_id) = (user.parse().unwrap(), "a".parse().unwrap());
    SessionName { user_id, agent_id, session_id: id.to_owned() }
}

pub async fn what_was_said_counts_until_it_is_forgotten(place: Place) {
    let store = place.open().await;
    let (own, other) = (session("ann", "s"), session("bob", "s"));
    assert_eq!(store.session_rules(&own).await.unwrap(), None);
    for confirmation in Confirmation::ALL {
        let rules = SessionRules { confirmation: Some(confirmation), ..SessionRules::default() };
        store.rule_session(own.clone(), rules.clone(), at(1), "t_1").await.unwrap();
        assert_eq!(store.session_rules(&own).await.unwrap(), Some(rules));
    }
    let whole = SessionRules {
        confirmation: Some(Confirmation::Callback),
        callback_url: Some("https://hooks.example/x".to_owned()),
        security_mode: Some("permissive".to_owned()),
    };
    store.rule_session(own.clone(), whole.clone(), at(2), "t_1").await.unwrap();
    assert_eq!(store.session_rules(&own).await.unwrap(), Some(whole.clone()));
    let many: Vec<SessionName> = (0..1000).map(|number| session("ann", &format!("s{number}"))).collect();
    let asked: Vec<SessionName> = many.into_iter().chain([other.clone(), own.clone()]).collect();
    assert_eq!(store.rules_of_sessions(&asked).await.unwrap(), [(own.clone(), whole)].into());
    assert!(store.rules_of_sessions(&[]).await.unwrap().is_empty());
    assert_eq!(store.session_rules(&other).await.unwrap(), None, "ids are a user's own");
    assert_eq!(store.ruled_sessions().await.unwrap(), std::slice::from_ref(&own));
    store.forget_session(own.clone(), at(3), "t_1").await.unwrap();
    assert_eq!(store.session_rules(&own).await.unwrap(), None);
    assert!(store.ruled_sessions().await.unwrap().is_empty());
    let entries = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(10), None).await.unwrap();
    let actions: Vec<_> = entries.items.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions.iter().filter(|action| **action == "session.changed").count(), 5);
    assert_eq!(actions.iter().filter(|action| **action == "session.deleted").count(), 1);
    assert_intact(&store).await;
}

pub async fn what_cannot_be_said_is_refused(place: Place) {
    let store = place.open().await;
    let wrong = SessionRules { security_mode: Some("lax".to_owned()), ..SessionRules::default() };
    assert!(store.rule_session(session("ann", "s"), wrong, at(1), "t_1").await.is_err());
    let long = session("ann", &"s".repeat(513));
    assert!(store.rule_session(long, SessionRules::default(), at(1), "t_1").await.is_err());
    assert!(store.ruled_sessions().await.unwrap().is_empty());
    assert_intact(&store).await;
}
