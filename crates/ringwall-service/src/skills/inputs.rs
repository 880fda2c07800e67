//! Validates a call's inputs against the skill's interface and names the wrong field.
//!
//! Only the first error is reported. Values are never repeated, because an input may be a password.
//! Field names come from the caller and are escaped.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::paths::LocationSegment;
use serde_json::Value;

use super::error::InvalidInput;
use super::reasons::printable;
use super::skill::Skill;

const MAX_FIELD: usize = 120;
const MAX_REASON_LEN: usize = 300;

/// Maximum number of alternatives in a message.
const MAX_ALTERNATIVES: usize = 4;

/// The name of the inputs as a whole.
const WHOLE: &str = "inputs";

impl Skill {
    pub fn validate_inputs(&self, inputs: &Value) -> Result<(), InvalidInput> {
        self.inputs.validate(inputs).map_err(|error| explain(&error))
    }
}

fn explain(error: &ValidationError<'_>) -> InvalidInput {
    let place = place(error);
    let at = |field: String, reason: String| InvalidInput {
        field: printable(if field.is_empty() { WHOLE } else { &field }, MAX_FIELD),
        reason: printable(&reason, MAX_REASON_LEN),
    };
    match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            at(member(&place, name), "is required".to_owned())
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let name = unexpected.first().map_or("", String::as_str);
            at(member(&place, name), "is not an input of this skill".to_owned())
        }
        Kind::PropertyNames { error } => {
            let name = error.instance().as_str().unwrap_or_default().to_owned();
            at(member(&place, &name), format!("cannot have this name: {}", error.masked_with("it")))
        }
        Kind::FalseSchema => at(place, "is not allowed here".to_owned()),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let complaints: Vec<InvalidInput> =
                context.iter().filter_map(|branch| branch.first()).map(explain).take(MAX_ALTERNATIVES).collect();
            let reason: Vec<String> = complaints.iter().map(ToString::to_string).collect();
            // Prefer a field that one alternative complains about over the inputs as a whole.
            let field = if place.is_empty() {
                complaints.into_iter().map(|complaint| complaint.field).find(|field| field != WHOLE).unwrap_or(place)
            } else {
                place
            };
            at(field, format!("matches none of the alternatives ({})", reason.join("; ")))
        }
        _ => at(place, error.masked_with("it").to_string()),
    }
}

/// The field path in the form `files[2].name`.
fn place(error: &ValidationError<'_>) -> String {
    let mut place = String::new();
    for segment in error.instance_path().segments() {
        match segment {
            LocationSegment::Property(name) => place = member(&place, &name),
            LocationSegment::Index(index) => place.push_str(&format!("[{index}]")),
        }
    }
    place
}

fn member(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_input_names_field_without_value() {
        let schema = json!({
            "type": "object",
            "properties": {
                "script": {"type": "string", "maxLength": 5, "pattern": "^s"},
                "mode": {"enum": ["fast", "slow"]},
                "files": {"type": "array", "items": {"type": "object", "properties": {"na/me": {"type": "string"}}}},
                "either": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]},
                "gone": false,
            },
            "required": ["script"],
            "additionalProperties": false,
            "propertyNames": {"maxLength": 8},
        });
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let table = [
            (json!({}), "script", "is required"),
            (json!({"script": 5}), "script", "it is not of type \"string\""),
            (json!({"script": "secret"}), "script", "it is longer than 5 characters"),
            (json!({"script": "ecret"}), "script", "it does not match \"^s\""),
            (json!({"script": "s", "mode": "secret"}), "mode", "it is not one of \"fast\" or \"slow\""),
            (json!({"script": "s", "gone": "secret"}), "gone", "is not allowed here"),
            (json!({"script": "s", "scirpt": "secret"}), "scirpt", "is not an input of this skill"),
            (json!({"script": "s", "files": [{}, {"na/me": 7}]}), "files[1].na/me", "it is not of type \"string\""),
            (
                json!({"script": "s", "either": {}}),
                "either",
                "matches none of the alternatives (either: it is not of type \"string\"; either.a: is required)",
            ),
            (json!([1]), "inputs", "it is not of type \"object\""),
        ];
        for (inputs, field, reason) in table {
            let error = validator.validate(&inputs).map_err(|error| explain(&error)).expect_err(field);
            assert_eq!(error, InvalidInput { field: field.into(), reason: reason.into() }, "{inputs}");
        }
        let long = json!({"script": "s", "\u{1b}far too long": 1});
        let error = validator.validate(&long).map_err(|error| explain(&error)).expect_err("a name");
        assert!(error.field.starts_with("\\u{1b}far"), "{error}");
    }

    #[test]
    fn failed_alternatives_name_a_field() {
        let schema = json!({"type": "object", "oneOf": [{"required": ["code"]}, {"required": ["path"]}]});
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let error = validator.validate(&json!({})).map_err(|error| explain(&error)).expect_err("neither");
        assert_eq!(error.field, "code");
        assert_eq!(error.reason, "matches none of the alternatives (code: is required; path: is required)");
        let both = json!({"code": 1, "path": 2});
        let error = validator.validate(&both).map_err(|error| explain(&error)).expect_err("both");
        assert_eq!(error.field, "inputs");
    }
}
