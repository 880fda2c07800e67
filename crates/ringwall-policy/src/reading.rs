//! Deserialises a [`Layer`] from settings, manifests and requests.
//!
//! Unknown keys, duplicate keys, zeros and fractions (of anything but cores) are errors that name
//! the key: a misspelt limit that was ignored would not be enforced. [`merge`](crate::merge)
//! decides which limit is allowed.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::error::{Error, quote};
use crate::field::Field;
use crate::layer::{Layer, LayerName};
use crate::limits::UNLIMITED;
use crate::net::NetRequest;

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LayerVisitor)
    }
}

struct LayerVisitor;

impl<'de> Visitor<'de> for LayerVisitor {
    type Value = Layer;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of limits")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Layer, A::Error> {
        let mut layer = Layer::new(LayerName::Request);
        let mut require = None;
        while let Some(key) = map.next_key::<String>()? {
            let twice = |key| de::Error::custom(Error::KeyTwice { key });
            if let Some(field) = Field::from_key(&key) {
                let value = map.next_value_seed(LimitVisitor(field))?;
                if layer.limits.insert(field, value).is_some() {
                    return Err(twice(field.key()));
                }
            } else if key == "net" {
                let net: NetRequest = map.next_value().map_err(|error| within("net", error))?;
                if layer.net.replace(net).is_some() {
                    return Err(twice("net"));
                }
            } else if key == "require" {
                let words: Vec<String> = map.next_value().map_err(|error| within("require", error))?;
                if require.replace(words).is_some() {
                    return Err(twice("require"));
                }
            } else {
                return Err(de::Error::custom(Error::KeyUnknown { given: quote(&key) }));
            }
        }
        for word in require.unwrap_or_default() {
            layer.require.insert(word.parse().map_err(de::Error::custom)?);
        }
        Ok(layer)
    }
}

/// Adds the key, because errors of derived deserialisers do not contain it.
fn within<E: de::Error>(key: &str, error: E) -> E {
    E::custom(format_args!("{key}: {error}"))
}

/// Reads one number in the unit of the public form.
#[derive(Clone, Copy)]
struct LimitVisitor(Field);

impl<'de> DeserializeSeed<'de> for LimitVisitor {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} as {}", self.0, self.0.expectation())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        self.0.read_whole(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        let whole = u64::try_from(number).map_err(|_| E::custom(self.0.malformed(number)))?;
        self.visit_u64(whole)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        self.0.read_decimal(number).map_err(E::custom)
    }

    /// `null` is the JSON form of [`UNLIMITED`].
    fn visit_unit<E: de::Error>(self) -> Result<u64, E> {
        match self.0 {
            Field::TimeoutMs => Ok(UNLIMITED),
            field => Err(E::custom(field.malformed("null"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Requirement;

    #[test]
    fn layer_reads_every_key() -> Result<(), serde_json::Error> {
        let layer: Layer = serde_json::from_str(
            r#"{"timeout_ms":5000,"memory_mb":64,"cpu_cores":0.5,"pids":8,"max_stdout_bytes":1,"max_stderr_bytes":2,
                "max_artifacts_bytes_total":3,"scratch_mb":4,"net":{"mode":"none"},"require":["cpu","landlock"]}"#,
        )?;
        let values = [5000, 64, 500, 8, 1, 2, 3, 4];
        assert_eq!(layer.limits, Field::ALL.into_iter().zip(values).collect());
        assert_eq!(layer.net, Some(NetRequest::default()));
        assert_eq!(layer.require, [Requirement::Cpu, Requirement::Landlock].into());
        assert_eq!(layer.name, LayerName::Request);
        assert_eq!(layer.with_name(LayerName::Skill).name, LayerName::Skill);
        Ok(())
    }

    #[test]
    fn empty_object_is_empty_layer_and_null_is_no_timeout() -> Result<(), serde_json::Error> {
        assert_eq!(serde_json::from_str::<Layer>("{}")?, Layer::new(LayerName::Request));
        let layer: Layer = serde_json::from_str(r#"{"timeout_ms":null}"#)?;
        assert_eq!(layer.limits, [(Field::TimeoutMs, UNLIMITED)].into());
        Ok(())
    }

    #[test]
    fn invalid_key_or_value_is_rejected_by_name() {
        let table = [
            (r#"{"timout_ms":1}"#, "unknown key \"timout_ms\""),
            (r#"{"limits":{}}"#, "unknown key \"limits\""),
            (r#"{"pids":1,"pids":1}"#, "pids is given twice"),
            (r#"{"net":{"mode":"none"},"net":{"mode":"none"}}"#, "net is given twice"),
            (r#"{"require":[],"require":[]}"#, "require is given twice"),
            (r#"{"timeout_ms":0}"#, "timeout_ms must be a whole number"),
            (r#"{"timeout_ms":-5}"#, "timeout_ms must be a whole number"),
            (r#"{"memory_mb":1.5}"#, "memory_mb must be a whole number"),
            (r#"{"memory_mb":null}"#, "memory_mb must be a whole number"),
            (r#"{"cpu_cores":0}"#, "cpu_cores must be a number of cores"),
            (r#"{"cpu_cores":-0.5}"#, "cpu_cores must be a number of cores"),
            (r#"{"cpu_cores":0.0001}"#, "cpu_cores must be a number of cores"),
            (r#"{"pids":18446744073709551615}"#, "pids must be at most"),
            (r#"{"pids":1e30}"#, "pids must be at most"),
            (r#"{"pids":"8"}"#, "expected pids as"),
            (r#"{"pids":true}"#, "expected pids as"),
            (r#"{"net":"none"}"#, "net: "),
            (r#"{"net":{}}"#, "net: missing field `mode`"),
            (r#"{"net":{"mode":"open"}}"#, "net: unknown variant `open`"),
            (r#"{"net":{"mode":"none","allow":[]}}"#, "net: allow is for mode allowlist"),
            (r#"{"net":{"mode":"none","unknown":"ask"}}"#, "net: unknown is for mode allowlist"),
            (r#"{"net":{"mode":"allowlist","deny":[]}}"#, "net: unknown field `deny`"),
            (r#"{"net":{"mode":"allowlist","allow":["*"]}}"#, "net: \"*\" is not a DNS name"),
            (r#"{"net":{"mode":"allowlist","allow":"a.com"}}"#, "net: "),
            (r#"{"net":{"mode":"allowlist","unknown":"allow"}}"#, "net: unknown variant `allow`"),
            (r#"{"require":["seccomp"]}"#, "unknown requirement \"seccomp\""),
            (r#"{"require":"landlock"}"#, "require: "),
            ("[]", "an object of limits"),
        ];
        for (text, expected) in table {
            match serde_json::from_str::<Layer>(text) {
                Ok(layer) => unreachable!("{text} was read as {layer:?}"),
                Err(error) => {
                    assert!(error.to_string().contains(expected), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn non_finite_number_is_rejected() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let read = LimitVisitor(Field::CpuMillis).visit_f64::<de::value::Error>(number);
            assert!(read.is_err(), "{number}");
        }
    }
}
