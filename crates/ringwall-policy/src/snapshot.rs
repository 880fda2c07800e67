//! The effective policy in the record, and its version.
//!
//! The version identifies a policy in records and logs. It is not a security measure: FNV-1a
//! collisions are easy to construct, so no check may rely on it.

use std::fmt::Write;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::field::Field;
use crate::layer::LayerName;
use crate::merge::EffectivePolicy;
use crate::net::Net;

impl EffectivePolicy {
    /// Sixteen hexadecimal digits, computed from the content only: equal on all machines and after
    /// restarts.
    pub fn version(&self) -> String {
        format!("{:016x}", fnv1a(self.canonical().as_bytes()))
    }

    /// Limits, network and requirements as text, without the layers that set them. An approval
    /// given under one policy is valid under another with the same terms.
    pub fn terms(&self) -> String {
        self.lines(|_| "", "")
    }

    fn canonical(&self) -> String {
        self.lines(|field| self.layers.get(&field).map_or("", |name| name.key()), self.net_set_by.key())
    }

    /// One line per value in a fixed order; no two policies give the same text.
    fn lines(&self, set_by: impl Fn(Field) -> &'static str, net_set_by: &str) -> String {
        let mut text = String::new();
        for field in Field::ALL {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{field} {} {}", self.limits.get(field), set_by(field));
        }
        let _ = writeln!(text, "net {} {net_set_by}", self.net.mode().key());
        if let Net::Allowlist { allow, unknown } = &self.net {
            let _ = writeln!(text, "net unknown {}", unknown.key());
            for word in allow.words() {
                let _ = writeln!(text, "net allow {word}");
            }
        }
        for requirement in &self.require {
            let _ = writeln!(text, "require {requirement}");
        }
        text
    }
}

impl Serialize for EffectivePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct NetSnapshot<'a> {
            #[serde(flatten)]
            net: &'a Net,
            layer: LayerName,
        }

        let required = !self.require.is_empty();
        let mut snapshot = serializer.serialize_struct("Effective", 4 + usize::from(required))?;
        snapshot.serialize_field("version", &self.version())?;
        snapshot.serialize_field("limits", &self.limits)?;
        snapshot.serialize_field("net", &NetSnapshot { net: &self.net, layer: self.net_set_by })?;
        snapshot.serialize_field("layers", &self.layers)?;
        if required {
            snapshot.serialize_field("require", &self.require)?;
        }
        snapshot.end()
    }
}

/// FNV-1a, 64 bits, with the published parameters.
fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Requirement;
    use crate::profile;

    fn effective() -> EffectivePolicy {
        EffectivePolicy {
            limits: profile::EXECS,
            net: Net::None,
            net_set_by: LayerName::System,
            require: [].into(),
            layers: Field::ALL.map(|field| (field, LayerName::System)).into(),
        }
    }

    #[test]
    fn hash_matches_published_values() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn each_value_changes_version() {
        let mut versions = vec![effective().version()];
        for field in Field::ALL {
            let mut other = effective();
            other.layers.insert(field, LayerName::Request);
            versions.push(other.version());
            let mut other = effective();
            other.limits = crate::Limits::from_fn(|each| profile::EXECS.get(each) + u64::from(each == field));
            versions.push(other.version());
        }
        for requirement in Requirement::ALL {
            let mut other = effective();
            other.require.insert(requirement);
            versions.push(other.version());
        }
        let mut other = effective();
        other.net_set_by = LayerName::Request;
        versions.push(other.version());
        for list in [r#"{"mode":"allowlist"}"#, r#"{"mode":"allowlist","allow":["a.com"]}"#] {
            let request = serde_json::from_str(list).expect("a network request");
            let mut other = effective();
            other.net = Net::of(&request);
            versions.push(other.version());
            other.net_set_by = LayerName::Request;
            versions.push(other.version());
        }
        let count = versions.len();
        versions.sort();
        versions.dedup();
        assert_eq!(versions.len(), count);
        assert_eq!(effective().version(), effective().version());
    }

    #[test]
    fn each_value_but_no_layer_changes_terms() {
        let mut other = effective();
        other.layers.insert(Field::MemoryMb, LayerName::Settings);
        other.net_set_by = LayerName::Settings;
        assert_eq!(other.terms(), effective().terms());
        let mut all = vec![effective().terms()];
        for field in Field::ALL {
            let limits = crate::Limits::from_fn(|each| profile::EXECS.get(each) + u64::from(each == field));
            all.push(EffectivePolicy { limits, ..effective() }.terms());
        }
        for requirement in Requirement::ALL {
            all.push(EffectivePolicy { require: [requirement].into(), ..effective() }.terms());
        }
        for list in [r#"{"mode":"allowlist"}"#, r#"{"mode":"allowlist","allow":["a.com"]}"#] {
            all.push(
                EffectivePolicy {
                    net: Net::of(&serde_json::from_str(list).expect("a network request")),
                    ..effective()
                }
                .terms(),
            );
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn snapshot_has_recorded_form() -> Result<(), serde_json::Error> {
        let mut effective = effective();
        effective.layers.insert(Field::TimeoutMs, LayerName::Request);
        let version = effective.version();
        assert_eq!(
            serde_json::to_value(&effective)?,
            serde_json::json!({
                "version": version,
                "limits": {
                    "timeout_ms": 60000, "memory_mb": 1024, "cpu_cores": 1, "pids": 256,
                    "max_stdout_bytes": 1048576, "max_stderr_bytes": 1048576,
                    "max_artifacts_bytes_total": 52428800, "scratch_mb": 256,
                },
                "net": {"mode": "none", "layer": "system"},
                "layers": {
                    "timeout_ms": "request", "memory_mb": "system", "cpu_cores": "system", "pids": "system",
                    "max_stdout_bytes": "system", "max_stderr_bytes": "system",
                    "max_artifacts_bytes_total": "system", "scratch_mb": "system",
                },
            })
        );
        let request = serde_json::from_str(r#"{"mode":"allowlist","allow":["a.com"]}"#)?;
        effective.net = Net::of(&request);
        let net = serde_json::json!({"mode": "allowlist", "allow": ["a.com"], "unknown": "deny", "layer": "system"});
        assert_eq!(serde_json::to_value(&effective)?["net"], net);
        effective.require.insert(Requirement::Landlock);
        assert_eq!(serde_json::to_value(&effective)?["require"], serde_json::json!(["landlock"]));
        Ok(())
    }
}
