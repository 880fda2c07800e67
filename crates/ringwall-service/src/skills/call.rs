//! Reads the body of a skill call and separates the call's own keys from the skill's inputs.
//!
//! Both come in one object, so a skill cannot have an input with a reserved name. The caller checks
//! whether project and backend exist.

use ringwall_policy::{Field, Layer, LayerName};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::{InvalidInput, invalid};

/// The keys of a call that are not inputs.
pub const RESERVED: [&str; 7] =
    ["project_id", "task_id", "conversation_id", "timeout_ms", "user_id", "agent_id", "backend"];

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub project_id: Option<String>,
    pub task_id: Option<String>,
    pub conversation_id: Option<String>,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    pub backend: Option<String>,
    /// The caller's policy layer: the time limit, if given.
    pub layer: Layer,
    /// Always an object.
    pub inputs: Value,
}

impl Call {
    /// Splits the body of a call. For the call's own keys `null` means missing.
    pub fn read(body: Value) -> Result<Self, InvalidInput> {
        let Value::Object(mut body) = body else {
            return Err(invalid("body", "must be an object of project_id and the skill's inputs"));
        };
        let layer = take_timeout(&mut body)?;
        Ok(Self {
            project_id: take_text(&mut body, "project_id")?,
            task_id: take_text(&mut body, "task_id")?,
            conversation_id: take_text(&mut body, "conversation_id")?,
            user_id: take_text(&mut body, "user_id")?,
            agent_id: take_text(&mut body, "agent_id")?,
            backend: take_text(&mut body, "backend")?,
            layer,
            inputs: Value::Object(body),
        })
    }
}

fn take_text(body: &mut Map<String, Value>, key: &str) -> Result<Option<String>, InvalidInput> {
    match body.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(key, "must be a string")),
    }
}

fn take_timeout(body: &mut Map<String, Value>) -> Result<Layer, InvalidInput> {
    let key = Field::TimeoutMs.key();
    match body.remove(key) {
        None | Some(Value::Null) => Ok(Layer::new(LayerName::Request)),
        Some(value) => Layer::deserialize(json!({ key: value })).map_err(|error| invalid(key, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_split_into_own_keys_and_inputs() {
        let body = json!({
            "project_id": "p", "task_id": "t", "conversation_id": "c", "user_id": "u", "agent_id": "a",
            "backend": "native", "timeout_ms": 5000, "script": "echo", "project": 1, "nested": {"project_id": 2},
        });
        let call = Call::read(body).expect("a call");
        let text = |text: &str| Some(text.to_owned());
        assert_eq!((call.project_id, call.task_id, call.conversation_id), (text("p"), text("t"), text("c")));
        assert_eq!((call.user_id, call.agent_id, call.backend), (text("u"), text("a"), text("native")));
        assert_eq!(call.layer.name, LayerName::Request);
        assert_eq!(call.layer.limits, [(Field::TimeoutMs, 5000)].into());
        assert_eq!(call.inputs, json!({"script": "echo", "project": 1, "nested": {"project_id": 2}}));
    }

    #[test]
    fn reserved_keys_are_removed_from_inputs() {
        let body: Map<String, Value> = RESERVED.iter().map(|&key| (key.to_owned(), Value::Null)).collect();
        let call = Call::read(Value::Object(body)).expect("a call");
        assert_eq!(call.inputs, json!({}));
        assert_eq!(call.project_id, None);
        // A missing time limit differs from "no limit".
        assert_eq!(call.layer, Layer::new(LayerName::Request));
    }

    #[test]
    fn unknown_call_key_is_named() {
        for key in RESERVED {
            for value in [json!(true), json!([]), json!({}), json!(-1), json!(0)] {
                let error = Call::read(json!({key: value})).expect_err(key);
                assert_eq!(error.field, key);
            }
        }
        for body in [json!(null), json!([]), json!("x"), json!(1)] {
            assert_eq!(Call::read(body).expect_err("no object").field, "body");
        }
    }
}
