//! Bounds the cost of a manifest's schema before it is compiled.
//!
//! References can repeat parts of a schema: a dozen lines that each use the previous one twice take
//! longer to check than any caller waits. So references must stay within the document and must not
//! be cyclic, and the schema is measured *with every reference expanded*: number of values and
//! depth. A schema that passes costs at most that many steps per part of the input. Patterns are
//! counted too; their own cost is bounded when they are compiled.
//!
//! Every string under a key like `$ref` counts as a reference, also inside mere data such as a
//! `default`. That refuses a few unusual schemas and misses none.

use std::collections::HashMap;

use serde_json::Value;

/// Values in the schema with references expanded.
const MAX_VALUES: usize = 5_000;
/// Nesting depth with references expanded.
const DEEPEST: usize = 32;
const MAX_PATTERNS: usize = 64;
/// Each `unevaluated…` keyword evaluates everything within it again, so nesting doubles the work.
const MAX_UNEVALUATED: usize = 4;

/// Keys that name a part or refer to something known only during validation. References through
/// them could not be followed here.
const REFUSED: [&str; 7] =
    ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"];

/// An error and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Objection {
    pub(super) pointer: String,
    pub(super) message: String,
}

/// Checks that the schema is bounded and refers to nothing but itself.
pub(super) fn check_size(schema: &Value) -> Result<(), Objection> {
    let mut check = SizeCheck {
        schema,
        measured: HashMap::new(),
        following: Vec::new(),
        path: Vec::new(),
        patterns: 0,
        unevaluated: 0,
    };
    match check.measure(schema) {
        Ok(_) => Ok(()),
        Err(message) => Err(Objection { pointer: check.pointer(), message }),
    }
}

#[derive(Clone, Copy, Default)]
struct Extent {
    values: usize,
    depth: usize,
}

struct SizeCheck<'a> {
    schema: &'a Value,
    /// Parts that were measured through references, so that each is walked once.
    measured: HashMap<&'a str, Extent>,
    /// References that are being followed.
    following: Vec<&'a str>,
    path: Vec<String>,
    patterns: usize,
    unevaluated: usize,
}

impl<'a> SizeCheck<'a> {
    /// On an error `path` is left at the place that caused it.
    fn measure(&mut self, value: &'a Value) -> Result<Extent, String> {
        // Both limits bound this function's recursion; deeper schemas are refused anyway.
        if self.path.len() > DEEPEST || self.following.len() > DEEPEST {
            return Err(too_deep());
        }
        let mut extent = Extent { values: 1, depth: 1 };
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    self.path.push(key.clone());
                    self.check_keyword(key, member)?;
                    let inner = match (key.as_str(), member) {
                        ("$ref", Value::String(reference)) => self.follow(reference)?,
                        _ => self.measure(member)?,
                    };
                    extent = extent.around(inner)?;
                    self.path.pop();
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push(index.to_string());
                    let inner = self.measure(item)?;
                    extent = extent.around(inner)?;
                    self.path.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(extent)
    }

    fn check_keyword(&mut self, key: &str, member: &Value) -> Result<(), String> {
        let is_keyword = !matches!(member, Value::Object(_) | Value::Array(_));
        if is_keyword && REFUSED.contains(&key) {
            return Err(format!("{key} is not supported; refer to a part of this schema with $ref \"#/$defs/…\""));
        }
        if key == "$schema" && self.path.len() > 1 && is_keyword {
            return Err("only the whole schema can name its draft".to_owned());
        }
        // The target of a reference is in the document and is counted there.
        if self.following.is_empty() { self.count_keyword(key, member) } else { Ok(()) }
    }

    fn count_keyword(&mut self, key: &str, member: &Value) -> Result<(), String> {
        match (key, member) {
            ("pattern", Value::String(_)) => self.patterns += 1,
            ("patternProperties", Value::Object(patterns)) => self.patterns += patterns.len(),
            ("unevaluatedProperties" | "unevaluatedItems", _) => self.unevaluated += 1,
            _ => {}
        }
        if self.patterns > MAX_PATTERNS {
            return Err(format!("the schema has more than {MAX_PATTERNS} patterns"));
        }
        if self.unevaluated > MAX_UNEVALUATED {
            return Err(format!(
                "the schema has more than {MAX_UNEVALUATED} of unevaluatedProperties and unevaluatedItems; \
                 additionalProperties and items cost less"
            ));
        }
        Ok(())
    }

    fn follow(&mut self, reference: &'a str) -> Result<Extent, String> {
        // Percent-encoding is another spelling of a place that JSON pointers do not know.
        let pointer = match reference.strip_prefix('#') {
            Some(pointer) if !pointer.contains('%') && (pointer.is_empty() || pointer.starts_with('/')) => pointer,
            _ => {
                return Err("only references within this schema are followed, like \"#/$defs/name\"; nothing is ever \
                            fetched"
                    .to_owned());
            }
        };
        if let Some(extent) = self.measured.get(pointer) {
            return Ok(*extent);
        }
        if self.following.contains(&pointer) {
            return Err("the reference leads back to itself; schemas of inputs cannot be recursive".to_owned());
        }
        let Some(target) = self.schema.pointer(pointer) else {
            return Err("the reference leads nowhere".to_owned());
        };
        self.following.push(pointer);
        let here = std::mem::take(&mut self.path);
        let extent = self.measure(target);
        // Report the place of the reference, not of its target.
        self.path = here;
        self.following.pop();
        let extent = extent?;
        self.measured.insert(pointer, extent);
        Ok(extent)
    }

    fn pointer(&self) -> String {
        self.path.iter().map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
    }
}

impl Extent {
    fn around(self, inner: Self) -> Result<Self, String> {
        let values = self.values.saturating_add(inner.values);
        let depth = self.depth.max(inner.depth + 1);
        if values > MAX_VALUES {
            return Err(format!("the schema has more than {MAX_VALUES} values, counting references written out"));
        }
        if depth > DEEPEST {
            return Err(too_deep());
        }
        Ok(Self { values, depth })
    }
}

fn too_deep() -> String {
    format!("the schema is nested more than {DEEPEST} levels deep, counting references written out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!(true), |inner, _| json!({ "items": inner }))
    }

    fn message(schema: &Value) -> String {
        check_size(schema).map_or_else(|objection| objection.message, |()| "accepted".to_owned())
    }

    #[test]
    fn ordinary_schemas_pass() {
        for schema in [
            json!(true),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}),
            // Names of properties, not keywords.
            json!({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}, "$anchor": {}}}),
            json!({"properties": {"a/b~c": {"$ref": "#/$defs/x~1y~0z"}}, "$defs": {"x/y~z": {}}}),
            nested(DEEPEST),
        ] {
            assert_eq!(check_size(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn external_references_are_refused() {
        for reference in [
            "http://example.invalid/schema.json",
            "https://json-schema.org/draft/2020-12/schema",
            "file:///etc/passwd",
            "other.json",
            "other.json#/a",
            "/etc/passwd",
            "",
            "#anchor",
            "#/%24defs/a",
            "urn:uuid:0",
        ] {
            let schema = json!({"properties": {"a": {"$ref": reference}}, "$defs": {"a": {}}});
            let objection = check_size(&schema).expect_err(reference);
            assert_eq!(objection.pointer, "/properties/a/$ref");
            assert!(objection.message.contains("only references within this schema"), "{objection:?}");
        }
        assert_eq!(message(&json!({"$ref": "#/$defs/b"})), "the reference leads nowhere");
        for key in REFUSED {
            assert!(message(&json!({"items": {key: "x"}})).contains("is not supported"), "{key}");
        }
        assert!(message(&json!({"items": {"$schema": "x"}})).contains("only the whole schema"));
    }

    #[test]
    fn cyclic_references_are_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"properties": {"child": {"$ref": "#"}}}),
            json!({"properties": {"a": {"items": {"$ref": "#/properties/a"}}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
        ] {
            assert!(message(&schema).contains("leads back to itself"), "{schema}");
        }
    }

    #[test]
    fn expanded_references_are_counted() {
        // Each part uses the one before twice: 2^20 values of 60 lines.
        let mut parts = serde_json::Map::from_iter([("p0".to_owned(), json!({"type": "string"}))]);
        for index in 1..=20 {
            let before = format!("#/$defs/p{}", index - 1);
            parts.insert(format!("p{index}"), json!({"allOf": [{"$ref": before}, {"$ref": before}]}));
        }
        let schema = json!({"$ref": "#/$defs/p20", "$defs": parts});
        let message = message(&schema);
        assert!(message.contains("counting references written out"), "{message}");
    }

    #[test]
    fn costly_keywords_are_limited() {
        let unevaluated =
            |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner, "unevaluatedItems": 1}));
        assert_eq!(check_size(&unevaluated(MAX_UNEVALUATED)), Ok(()));
        assert!(message(&unevaluated(MAX_UNEVALUATED + 1)).contains("more than 4 of unevaluatedProperties"));
        // Counted once although used often.
        let part = json!({"pattern": "a", "unevaluatedProperties": false});
        let uses: Vec<Value> = (0..100).map(|_| json!({"$ref": "#/$defs/part"})).collect();
        assert_eq!(check_size(&json!({"$defs": {"part": part}, "allOf": uses})), Ok(()));
    }

    #[test]
    fn size_and_depth_are_limited() {
        assert!(message(&nested(DEEPEST + 1)).contains("levels deep"));
        assert!(message(&nested(120)).contains("levels deep"));
        let chain: serde_json::Map<String, Value> =
            (0..5000).map(|index| (format!("p{index}"), json!({"$ref": format!("#/p{}", index + 1)}))).collect();
        assert!(message(&Value::Object(chain)).contains("levels deep"));
        let wide = json!({"enum": vec![1; MAX_VALUES]});
        assert!(message(&wide).contains("more than 5000 values"));
        let patterns: Vec<Value> = (0..=MAX_PATTERNS).map(|index| json!({"pattern": format!("a{index}")})).collect();
        assert!(message(&json!({"anyOf": patterns})).contains("more than 64 patterns"));
        let patterns: serde_json::Map<String, Value> =
            (0..=MAX_PATTERNS).map(|index| (format!("a{index}"), json!(true))).collect();
        assert!(message(&json!({"patternProperties": patterns})).contains("more than 64 patterns"));
    }
}
