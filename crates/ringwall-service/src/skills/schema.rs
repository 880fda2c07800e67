//! Compiles JSON Schemas with bounded time and memory and without network access.
//!
//! References are never fetched: the library is built without a retriever and configured offline.
//! Patterns run on an engine with linear time, so look-around and back-references are refused, and
//! the size of a compiled pattern is bounded. `schema_size` bounds the schema itself and runs first.

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::reasons::Reasons;
use super::schema_size::check_size;

/// Bytes of one compiled pattern; enough for hundreds of repeated character classes.
const MAX_PATTERN: usize = 1 << 20;

/// The drafts allowed for interfaces, by `$schema`.
const DRAFTS: [(&str, Draft); 2] = [
    ("https://json-schema.org/draft/2020-12/schema", Draft::Draft202012),
    ("http://json-schema.org/draft-07/schema", Draft::Draft7),
];

/// Compiles an untrusted schema, or adds its errors at `prefix`.
pub(super) fn compile_untrusted(schema: &Value, prefix: &str, reasons: &mut Reasons) -> Option<Validator> {
    if let Err(objection) = check_size(schema) {
        reasons.add(&format!("{prefix}{}", objection.pointer), &objection.message);
        return None;
    }
    let draft = match schema.get("$schema") {
        None => Draft::Draft202012,
        Some(named) => match DRAFTS.iter().find(|(uri, _)| is_named(named, uri)) {
            Some((_, draft)) => *draft,
            None => {
                reasons.add(&format!("{prefix}/$schema"), "only the drafts 2020-12 and 07 are understood");
                return None;
            }
        },
    };
    match compile(schema, draft) {
        Ok(validator) => Some(validator),
        Err(error) => {
            reasons.add_error(prefix, &error);
            None
        }
    }
}

/// Compiles a schema without checking its size.
pub(super) fn compile(schema: &Value, draft: Draft) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
    jsonschema::options().with_draft(draft).offline().with_pattern_options(patterns).build(schema)
}

/// An empty fragment at the end is an older spelling of the same URI.
fn is_named(named: &Value, uri: &str) -> bool {
    named.as_str().is_some_and(|named| named.strip_suffix('#').unwrap_or(named) == uri)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrong(schema: &Value) -> Vec<String> {
        let mut reasons = Reasons::default();
        let compiled = compile_untrusted(schema, "/interface/inputs", &mut reasons);
        assert_eq!(compiled.is_some(), reasons.is_empty());
        reasons.into_list()
    }

    #[test]
    fn only_two_drafts_are_accepted() {
        for (uri, _) in DRAFTS {
            assert_eq!(wrong(&json!({"$schema": uri})), [""; 0]);
            assert_eq!(wrong(&json!({"$schema": format!("{uri}#")})), [""; 0]);
        }
        for uri in ["http://json-schema.org/draft-04/schema#", "https://example.invalid/meta", "", "file:///etc/passwd"]
        {
            let expected = "/interface/inputs/$schema: only the drafts 2020-12 and 07 are understood";
            assert_eq!(wrong(&json!({"$schema": uri})), [expected]);
        }
        assert_eq!(wrong(&json!({"$schema": 7})).len(), 1);
    }

    #[test]
    fn invalid_schema_is_refused_with_pointer() {
        for (schema, place) in [
            (json!({"type": "strnig"}), "/interface/inputs/type: "),
            (json!({"properties": {"a": {"type": 5}}}), "/interface/inputs/properties/a/type: "),
            (json!({"required": "a"}), "/interface/inputs/required: "),
            (json!({"properties": {"a": 5}}), "/interface/inputs/properties/a: "),
            (json!({"properties": {"a": {"pattern": "("}}}), "/interface/inputs/"),
        ] {
            let reasons = wrong(&schema);
            assert!(reasons.len() == 1 && reasons[0].starts_with(place), "{schema}: {reasons:?}");
        }
    }

    #[test]
    fn nonlinear_patterns_are_refused() {
        for pattern in ["(?=a)b", "(?<!a)b", "(a)\\1", "(a{1000}){1000}"] {
            let reasons = wrong(&json!({"properties": {"a": {"pattern": pattern}}}));
            assert_eq!(reasons.len(), 1, "{pattern}");
            assert_eq!(wrong(&json!({"patternProperties": {pattern: {}}})).len(), 1, "{pattern}");
        }
        assert_eq!(wrong(&json!({"pattern": "^[\\w.-]{1,200}@\\d{3}$"})), [""; 0]);
    }

    /// Exponential for a backtracking engine, linear for ours: with 100,000 characters a
    /// backtracking match would not end.
    #[test]
    fn exponential_pattern_matches_in_linear_time() {
        let mut reasons = Reasons::default();
        let schema = json!({"type": "string", "pattern": "^(a|a)*(a+)+$"});
        let validator = compile_untrusted(&schema, "", &mut reasons).expect("a valid schema");
        assert!(!validator.is_valid(&json!(format!("{}!", "a".repeat(100_000)))));
        assert!(validator.is_valid(&json!("a".repeat(100_000))));
    }

    /// Nests one keyword as deep and wide as the size check allows, for every keyword that holds
    /// schemas. A cost that doubles per level would not end.
    #[test]
    fn deepest_accepted_schemas_validate_in_time() {
        type Wrap = fn(Value) -> Value;
        let wraps: [Wrap; 16] = [
            |inner| json!({"not": inner}),
            |inner| json!({"not": inner, "required": ["a"]}),
            |inner| json!({"if": inner, "then": true, "else": false}),
            |inner| json!({"if": inner.clone(), "then": inner.clone(), "else": inner}),
            |inner| json!({"anyOf": [inner]}),
            |inner| json!({"anyOf": [inner.clone(), inner]}),
            |inner| json!({"oneOf": [inner]}),
            |inner| json!({"oneOf": [inner.clone(), inner]}),
            |inner| json!({"allOf": [inner.clone(), inner]}),
            |inner| json!({"dependentSchemas": {"a": inner}}),
            |inner| json!({"properties": {"a": inner}}),
            |inner| json!({"patternProperties": {"a": inner}, "additionalProperties": false}),
            |inner| json!({"items": inner}),
            |inner| json!({"contains": inner}),
            |inner| json!({"propertyNames": inner}),
            |inner| json!({"not": inner, "unevaluatedProperties": false}),
        ];
        let instances = [json!({"a": 1}), json!({"b": 1}), json!({"a": "x"}), json!([[1]]), json!("a"), json!({})];
        for wrap in wraps {
            for innermost in [json!(true), json!({"type": "string"}), json!({"properties": {"a": {"type": "string"}}})]
            {
                let mut schema = innermost;
                while check_size(&wrap(schema.clone())).is_ok() {
                    schema = wrap(schema);
                }
                let validator = compile(&schema, Draft::Draft202012).expect("a valid schema");
                for instance in &instances {
                    let said = validator.validate(instance).map_err(|error| error.masked_with("it").to_string());
                    assert_eq!(validator.is_valid(instance), said.is_ok());
                }
            }
        }
    }
}
