//! Merges layers into one effective policy.
//!
//! The operator's layer may set a value up to its ceiling. Each later layer may only narrow. A
//! layer that asks for more is denied and never clamped: a user who asked for ten minutes must not
//! get one minute without notice. Only a *default* above the ceiling is lowered, on a small
//! machine; the result then names the machine as the layer that set it.

use std::collections::{BTreeMap, BTreeSet};

use crate::field::Field;
use crate::layer::{Layer, LayerName, Requirement};
use crate::limits::Limits;
use crate::net::Net;
use crate::verdict::{Denial, DenialCode};

/// The layers of one decision.
#[derive(Debug, Clone)]
pub struct Layers {
    /// The built-in defaults; see [`crate::profile`].
    pub system: Limits,
    pub ceilings: Ceilings,
    /// The only layer that may raise a default.
    pub operator: Layer,
    /// The layers that may only narrow. A later layer must stay within the earlier ones.
    pub narrowing: Vec<Layer>,
}

/// The upper bounds of the operator's layer, and the layer that a denial names as their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    pub limits: Limits,
    pub set_by: LayerName,
}

/// The merged policy: the limits in force, and the layer that set each.
///
/// Serialises as the snapshot in the record of an exec. Only [`merge`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectivePolicy {
    pub limits: Limits,
    pub net: Net,
    /// The layer that set `net`.
    pub net_set_by: LayerName,
    pub require: BTreeSet<Requirement>,
    pub layers: BTreeMap<Field, LayerName>,
}

/// Merges the layers: a limit of the operator replaces the default, then the lowest limit of the
/// narrowing layers wins. Requirements are combined.
///
/// The order of the narrowing layers does not change the limits of a successful merge. It decides
/// whether a layer is denied for asking for more than an earlier one.
pub fn merge(layers: &Layers) -> Result<EffectivePolicy, Denial> {
    let mut set_by = BTreeMap::new();
    let limits = Limits::try_from_fn(|field| {
        let bound = settle(field, layers)?;
        set_by.insert(field, bound.set_by);
        Ok(bound.value)
    })?;
    let (net, net_set_by) = settle_net(layers)?;
    let asking = || std::iter::once(&layers.operator).chain(&layers.narrowing);
    Ok(EffectivePolicy {
        limits,
        net,
        net_set_by,
        require: asking().flat_map(|layer| layer.require.iter().copied()).collect(),
        layers: set_by,
    })
}

/// No network unless the operator's layer allows it; narrowing layers may remove hosts.
fn settle_net(layers: &Layers) -> Result<(Net, LayerName), Denial> {
    let (mut net, mut set_by) = match &layers.operator.net {
        Some(request) => (Net::of(request), layers.operator.name),
        None => (Net::None, LayerName::System),
    };
    for layer in &layers.narrowing {
        let Some(request) = &layer.net else { continue };
        let narrowed = net.narrow(request, layer.name, set_by)?;
        // A layer that repeats the policy in force has not set it.
        if narrowed != net {
            (net, set_by) = (narrowed, layer.name);
        }
    }
    Ok((net, set_by))
}

/// A value and the layer that set it.
#[derive(Clone, Copy)]
struct Bound {
    value: u64,
    set_by: LayerName,
}

fn settle(field: Field, layers: &Layers) -> Result<Bound, Denial> {
    let ceiling = Bound { value: layers.ceilings.limits.get(field), set_by: layers.ceilings.set_by };
    let default = Bound { value: layers.system.get(field), set_by: LayerName::System };
    let mut settled = if default.value <= ceiling.value { default } else { ceiling };
    if let Some(requested) = requested_value(field, &layers.operator) {
        settled = admit(field, requested, ceiling)?;
    }
    for layer in &layers.narrowing {
        if let Some(requested) = requested_value(field, layer) {
            let admitted = admit(field, requested, settled)?;
            // A layer that repeats the value in force has not set it.
            if admitted.value < settled.value {
                settled = admitted;
            }
        }
    }
    Ok(settled)
}

fn requested_value(field: Field, layer: &Layer) -> Option<Bound> {
    let value = *layer.limits.get(&field)?;
    Some(Bound { value, set_by: layer.name })
}

/// Returns `requested` if it is a valid limit and within `bound`.
fn admit(field: Field, requested: Bound, bound: Bound) -> Result<Bound, Denial> {
    // Deserialised layers hold valid values. A layer built in code may not.
    if let Err(error) = field.check(requested.value) {
        return Err(Denial {
            field: Some(field),
            requested: Some(requested.value),
            allowed: Some(bound.value.min(field.max_value())),
            requested_by: Some(requested.set_by),
            ..Denial::new(DenialCode::LimitInvalid, format!("{error} (asked for by {})", requested.set_by))
        });
    }
    if requested.value <= bound.value {
        return Ok(requested);
    }
    let (requested_value, allowed) = (field.quantity(requested.value), field.quantity(bound.value));
    Err(Denial {
        hint: Some(format!("ask for {allowed} or less")),
        field: Some(field),
        requested: Some(requested.value),
        allowed: Some(bound.value),
        layer: Some(bound.set_by),
        requested_by: Some(requested.set_by),
        ..Denial::new(
            DenialCode::LimitExceeded,
            format!(
                "{field}: {requested_value}, asked for by {}, is more than the {allowed} allowed by {}",
                requested.set_by, bound.set_by
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::UNLIMITED;
    use crate::profile;

    fn layer(name: LayerName, limits: &[(Field, u64)]) -> Layer {
        Layer { limits: limits.iter().copied().collect(), ..Layer::new(name) }
    }

    fn layers(operator: &[(Field, u64)], narrowing: Vec<Layer>) -> Layers {
        Layers {
            system: profile::EXECS,
            ceilings: Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System },
            operator: layer(LayerName::Settings, operator),
            narrowing,
        }
    }

    #[test]
    fn empty_layers_keep_defaults() -> Result<(), Denial> {
        let effective = merge(&layers(&[], vec![]))?;
        assert_eq!(effective.limits, profile::EXECS);
        assert_eq!((effective.net, effective.net_set_by), (Net::None, LayerName::System));
        assert!(effective.require.is_empty());
        assert!(effective.layers.values().all(|&name| name == LayerName::System));
        assert_eq!(effective.layers.len(), Field::ALL.len());
        Ok(())
    }

    #[test]
    fn operator_raises_and_later_layers_narrow() -> Result<(), Denial> {
        let effective = merge(&layers(
            &[(Field::TimeoutMs, 300_000), (Field::Pids, 512)],
            vec![
                layer(LayerName::Skill, &[(Field::TimeoutMs, 120_000)]),
                layer(LayerName::Request, &[(Field::TimeoutMs, 90_000), (Field::Pids, 512)]),
            ],
        ))?;
        assert_eq!(effective.limits.timeout_ms, 90_000);
        assert_eq!(effective.limits.pids, 512);
        assert_eq!(effective.layers[&Field::TimeoutMs], LayerName::Request);
        assert_eq!(effective.layers[&Field::Pids], LayerName::Settings);
        assert_eq!(effective.layers[&Field::MemoryMb], LayerName::System);
        Ok(())
    }

    #[test]
    fn excessive_limit_is_denied_with_values_and_layers() {
        use LayerName::{Request, Settings, Skill, System};
        let table = [
            (
                layers(&[(Field::TimeoutMs, 300_001)], vec![]),
                (300_001, 300_000, System, Settings),
                "timeout_ms: 300001 ms, asked for by the settings, is more than the 300000 ms allowed by the system's \
                 policy",
            ),
            (
                layers(&[], vec![layer(Request, &[(Field::TimeoutMs, UNLIMITED)])]),
                (UNLIMITED, 60_000, System, Request),
                "timeout_ms: no limit, asked for by the request, is more than the 60000 ms allowed by the system's \
                 policy",
            ),
            (
                layers(&[(Field::CpuMillis, 500)], vec![layer(Skill, &[(Field::CpuMillis, 1000)])]),
                (1000, 500, Settings, Skill),
                "cpu_cores: 1 core, asked for by the skill's manifest, is more than the 0.5 cores allowed by the \
                 settings",
            ),
            (
                layers(&[], vec![layer(Skill, &[(Field::Pids, 8)]), layer(Request, &[(Field::Pids, 9)])]),
                (9, 8, Skill, Request),
                "pids: 9 processes, asked for by the request, is more than the 8 processes allowed by the skill's \
                 manifest",
            ),
        ];
        for (layers, (requested_value, allowed, layer, requested_by), message) in table {
            let denial = merge(&layers).expect_err(message);
            assert_eq!(denial.code, DenialCode::LimitExceeded);
            assert_eq!(denial.message, message);
            assert_eq!(denial.requested, Some(requested_value));
            assert_eq!(denial.allowed, Some(allowed));
            assert_eq!(denial.layer, Some(layer));
            assert_eq!(denial.requested_by, Some(requested_by));
            assert!(denial.hint.is_some());
        }
    }

    #[test]
    fn invalid_limit_is_denied_in_any_layer() {
        for (field, value) in
            [(Field::Pids, 0), (Field::MemoryMb, UNLIMITED), (Field::TimeoutMs, Field::TimeoutMs.max_value() + 1)]
        {
            let wide = Limits::from_fn(|_| UNLIMITED);
            let mut layers = layers(&[(field, value)], vec![]);
            layers.ceilings.limits = wide;
            let denial = merge(&layers).expect_err("an invalid limit of the operator");
            assert_eq!(denial.code, DenialCode::LimitInvalid);

            layers.system = wide;
            layers.operator.limits.clear();
            layers.narrowing = vec![layer(LayerName::Request, &[(field, value)])];
            let denial = merge(&layers).expect_err("an invalid limit of the request");
            assert_eq!(denial.code, DenialCode::LimitInvalid);
            assert_eq!(denial.field, Some(field));
            assert_eq!(denial.requested_by, Some(LayerName::Request));
        }
    }

    #[test]
    fn small_machine_lowers_defaults_and_is_named() -> Result<(), Denial> {
        let effective = merge(&Layers {
            system: profile::RUN,
            ceilings: Ceilings { limits: profile::machine_ceilings(512, 2, 30_000), set_by: LayerName::Machine },
            operator: Layer::new(LayerName::CommandLine),
            narrowing: vec![],
        })?;
        assert_eq!(effective.limits.memory_mb, 512);
        assert_eq!(effective.layers[&Field::MemoryMb], LayerName::Machine);
        assert_eq!(effective.limits.timeout_ms, UNLIMITED);
        assert_eq!(effective.layers[&Field::TimeoutMs], LayerName::System);
        Ok(())
    }

    fn net(text: &str) -> Option<crate::net::NetRequest> {
        Some(serde_json::from_str(text).expect("a network request"))
    }

    #[test]
    fn later_layer_removes_hosts_and_adds_none() -> Result<(), Denial> {
        let with = |operator: &str, request: &str| {
            let mut layers = layers(&[], vec![Layer::new(LayerName::Skill), Layer::new(LayerName::Request)]);
            layers.operator.net = net(operator);
            layers.narrowing[1].net = net(request);
            merge(&layers)
        };
        let both = r#"{"mode":"allowlist","allow":["a.com","*.b.com"],"unknown":"ask"}"#;
        let effective = with(both, r#"{"mode":"allowlist","allow":["x.b.com:443"]}"#)?;
        assert_eq!(effective.net_set_by, LayerName::Request);
        let shown = serde_json::json!({"mode": "allowlist", "allow": ["x.b.com:443"], "unknown": "ask"});
        assert_eq!(serde_json::json!(effective.net), shown);
        assert_eq!(with(both, r#"{"mode":"none"}"#)?.net, Net::None);
        assert_eq!(with(both, r#"{"mode":"allowlist"}"#)?.net_set_by, LayerName::Settings);
        for (operator, request, words) in [
            (r#"{"mode":"none"}"#, r#"{"mode":"allowlist"}"#, "net.mode: allowlist, asked for by the request"),
            (both, r#"{"mode":"allowlist","allow":["c.com"]}"#, "net.allow: c.com:80, asked for by the request"),
            (both, r#"{"mode":"allowlist","allow":["a.com:22"]}"#, "net.allow: a.com:22"),
            (r#"{"mode":"allowlist"}"#, r#"{"mode":"allowlist","unknown":"ask"}"#, "net.unknown: ask"),
            (r#"{"mode":"allowlist"}"#, r#"{"mode":"allowlist","allow":["a.com"]}"#, "net.allow: a.com:80"),
        ] {
            let denial = with(operator, request).expect_err(words);
            assert!(denial.message.starts_with(words), "{denial}");
            assert_eq!((denial.code, denial.layer), (DenialCode::NetExceeded, Some(LayerName::Settings)));
            assert!(denial.hint.is_some());
        }
        Ok(())
    }

    #[test]
    fn requirements_of_all_layers_are_combined() -> Result<(), Denial> {
        let mut layers = layers(&[], vec![Layer::new(LayerName::Skill), Layer::new(LayerName::Request)]);
        layers.operator.require.insert(Requirement::Memory);
        layers.narrowing[0].require.insert(Requirement::Landlock);
        layers.narrowing[1].require.insert(Requirement::Memory);
        assert_eq!(merge(&layers)?.require, [Requirement::Landlock, Requirement::Memory].into());
        Ok(())
    }
}
