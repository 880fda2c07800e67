//! Property tests of manifests and inputs on arbitrary JSON: validation never panics, never accepts
//! invalid data, and every error names its place.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::manifest::ManifestValidator;
use super::reasons::printable;
use super::shipped::Builtin;
use super::{Call, RESERVED};

/// Arbitrary JSON in which keys of manifests are frequent.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(
            &["object", "string", "#", "#/$defs/a", "http://x.invalid/", "inputs/**", "(a", "docker"][..]
        )
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let keys = prop_oneof![
            prop::sample::select(
                &[
                    "id",
                    "name",
                    "interface",
                    "inputs",
                    "outputs",
                    "runtime",
                    "permissions",
                    "fs",
                    "read",
                    "limits",
                    "type",
                    "properties",
                    "$ref",
                    "$defs",
                    "a",
                    "pattern",
                    "patternProperties",
                    "anyOf",
                    "items",
                    "required",
                    "additionalProperties",
                    "$schema",
                    "$id",
                    "timeout_ms",
                    "cpu_cores",
                    "not",
                    "enum",
                    "const",
                ][..]
            )
            .prop_map(str::to_owned),
            ".{0,8}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn shipped() -> Value {
    serde_json::from_str(Builtin::Shell.manifest()).expect("JSON")
}

/// A valid manifest with one value replaced.
fn damaged() -> impl Strategy<Value = Value> {
    let places = [
        "/id",
        "/name",
        "/interface",
        "/interface/inputs",
        "/interface/inputs/properties",
        "/interface/inputs/properties/script",
        "/interface/outputs",
        "/runtime",
        "/runtime/entrypoint",
        "/permissions",
        "/permissions/fs",
        "/permissions/fs/read",
        "/permissions/net",
        "/limits",
    ];
    (prop::sample::select(places.to_vec()), any_json()).prop_map(|(place, value)| {
        let mut manifest = shipped();
        if let Some(part) = manifest.pointer_mut(place) {
            *part = value;
        }
        manifest
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn validation_never_panics_and_gives_reasons(manifest in prop_oneof![any_json(), damaged()]) {
        let validator = ManifestValidator::new().expect("the schema compiles");
        match validator.validate("shell.run", manifest.to_string().as_bytes()) {
            Ok(skill) => {
                prop_assert_eq!(&skill.id, "shell.run");
                prop_assert!(!skill.runtime.entrypoint.is_empty());
                // A valid skill accepts any inputs without a panic.
                let _ = skill.validate_inputs(&manifest);
                let _ = skill.command(&manifest);
            }
            Err(invalid) => {
                prop_assert!(!invalid.reasons.is_empty());
                for reason in invalid.reasons {
                    let has_place = reason.starts_with('/') || reason.starts_with("the manifest: ") || reason.starts_with("and ");
                    prop_assert!(has_place, "{}", reason);
                    prop_assert!(!reason.chars().any(char::is_control) && reason.chars().count() <= 504, "{}", reason);
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let validator = ManifestValidator::new().expect("the schema compiles");
        prop_assert!(validator.validate("shell.run", &bytes).is_err());
    }

    #[test]
    fn refused_input_names_its_field(inputs in any_json()) {
        let validator = ManifestValidator::new().expect("the schema compiles");
        for builtin in Builtin::ALL {
            let skill = validator.validate(builtin.id(), builtin.manifest().as_bytes()).expect("a valid manifest");
            if let Err(error) = skill.validate_inputs(&inputs) {
                // A named field was given, or is known and missing.
                let given = inputs.as_object().into_iter().flat_map(Map::keys).map(|key| printable(key, 120));
                let known = skill.interface.inputs["properties"].as_object().into_iter().flat_map(Map::keys).cloned();
                let whole = std::iter::once("inputs".to_owned());
                let named = given.chain(known).chain(whole).any(|field| field == error.field);
                prop_assert!(named, "{:?} for {}", error, inputs);
                prop_assert!(!error.reason.is_empty());
            }
        }
    }

    #[test]
    fn reserved_keys_never_reach_a_skill(body in any_json(), extra in prop::sample::select(&RESERVED[..])) {
        let mut body = body;
        if let Value::Object(members) = &mut body {
            members.insert(extra.to_owned(), json!("5"));
        }
        if let Ok(call) = Call::read(body) {
            for key in RESERVED {
                prop_assert!(call.inputs.get(key).is_none());
            }
        }
    }
}
