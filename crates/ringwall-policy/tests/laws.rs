//! Laws of merging, on random layers.
//!
//! Numbers are small and often equal, so that layers often limit each other. The results are
//! compared with a simple model: the smallest value of the operator (or the default) and the
//! narrowing layers wins.

#![expect(clippy::expect_used, reason = "a failed assumption is a failed test")]

#[path = "laws/hosts.rs"]
mod hosts;

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;
use ringwall_policy::{
    Ceilings, DenialCode, EffectivePolicy, Field, HostPath, Layer, LayerName, Layers, Limits, NamedPath, Net, NetList,
    NetMode, NetRequest, PathAccess, PathControl, Requirement, UnknownHost, is_in_every_box, merge, normalise,
};

fn limits(range: std::ops::Range<u64>) -> impl Strategy<Value = Limits> {
    proptest::array::uniform8(range).prop_map(|values| Limits::from_fn(|field| values[field as usize]))
}

fn layer(name: LayerName, largest: u64) -> impl Strategy<Value = Layer> {
    let require = btree_set(select(&Requirement::ALL[..]), 0..3);
    (btree_map(select(&Field::ALL[..]), 1..=largest, 0..4), require, proptest::option::of(net()))
        .prop_map(move |(limits, require, net)| Layer { limits, require, net, ..Layer::new(name) })
}

/// Few names, so that entries often cover each other.
fn net() -> impl Strategy<Value = NetRequest> {
    let entries = ["a.com", "b.a.com", "*.a.com", "*.b.a.com", "c.b.a.com:443", "a.com:80", "a.com:443"];
    let list = vec(select(entries.to_vec()), 0..4).prop_map(|texts| NetList::read(texts).expect("good entries"));
    let unknown = select(&[UnknownHost::Deny, UnknownHost::Ask][..]);
    let wide = (proptest::option::of(list), proptest::option::of(unknown));
    prop_oneof![
        1 => Just(NetRequest::default()),
        4 => wide.prop_map(|(allow, unknown)| NetRequest { mode: NetMode::Allowlist, allow, unknown }),
    ]
}

fn narrowing_layer() -> impl Strategy<Value = Layer> {
    prop_oneof![layer(LayerName::Skill, 9), layer(LayerName::Request, 9)]
}

prop_compose! {
    fn any_layers()(
        system in limits(5..14),
        ceilings in limits(8..14),
        set_by in select(&[LayerName::System, LayerName::Machine][..]),
        operator in layer(LayerName::Settings, 14),
        narrowing in vec(narrowing_layer(), 0..4),
    ) -> Layers {
        Layers { system, ceilings: Ceilings { limits: ceilings, set_by }, operator, narrowing }
    }
}

/// Layers that never ask for more than earlier ones allow; they always merge.
fn tightening_layers() -> impl Strategy<Value = Layers> {
    any_layers().prop_map(|mut layers| {
        let ceilings = layers.ceilings.limits;
        for (field, value) in &mut layers.operator.limits {
            *value = (*value).min(ceilings.get(*field));
        }
        let mut allowed = Limits::from_fn(|field| {
            let default = layers.system.get(field).min(ceilings.get(field));
            layers.operator.limits.get(&field).copied().unwrap_or(default)
        });
        for layer in &mut layers.narrowing {
            for (field, value) in &mut layer.limits {
                *value = (*value).min(allowed.get(*field));
            }
            allowed =
                Limits::from_fn(|field| allowed.get(field).min(layer.limits.get(&field).copied().unwrap_or(u64::MAX)));
        }
        // Drops the network requests that ask for more than is allowed.
        for index in 0..layers.narrowing.len() {
            let before = Layers { narrowing: layers.narrowing[..=index].to_vec(), ..layers.clone() };
            if merge(&before).is_err_and(|denial| denial.code == DenialCode::NetExceeded) {
                layers.narrowing[index].net = None;
            }
        }
        layers
    })
}

fn merged(layers: &Layers) -> Result<EffectivePolicy, TestCaseError> {
    merge(layers).map_err(|denial| TestCaseError::fail(denial.to_string()))
}

fn narrower_or_equal(inner: &Limits, outer: &Limits) -> bool {
    Field::ALL.into_iter().all(|field| inner.get(field) <= outer.get(field))
}

/// A fixed seed, so that every run has the same cases. `PROPTEST_CASES` raises their number.
fn cases() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(2048),
        rng_seed: RngSeed::Fixed(0x5ee_d0f1a),
        failure_persistence: None,
        ..default
    }
}

/// Few names, so that paths often cover each other.
fn host_path() -> impl Strategy<Value = HostPath> {
    let text = vec(select(&["a", "b", "ab", "tmp", "usr"][..]), 0..4).prop_map(|names| format!("/{}", names.join("/")));
    text.prop_filter_map("a path", |text| normalise(&text, "/", None).ok())
}

prop_compose! {
    fn path_access()(
        entries in vec(host_path(), 0..3),
        approved in vec(host_path(), 0..3),
        named in vec((host_path(), host_path()), 0..4),
    ) -> PathAccess {
        let named = named.into_iter().map(|(path, real)| NamedPath { path, real }).collect();
        PathAccess { entries, approved, named, mounts: Vec::new() }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn narrowing_layers_always_merge(layers in tightening_layers()) {
        merged(&layers)?;
    }

    #[test]
    fn result_is_within_layers_and_ceilings(layers in prop_oneof![any_layers(), tightening_layers()]) {
        if let Ok(effective) = merge(&layers) {
            prop_assert!(narrower_or_equal(&effective.limits, &layers.ceilings.limits));
            for layer in layers.narrowing.iter().chain([&layers.operator]) {
                for (&field, &requested) in &layer.limits {
                    prop_assert!(effective.limits.get(field) <= requested, "{field}");
                }
                prop_assert!(layer.require.is_subset(&effective.require));
            }
            for request in layers.narrowing.iter().filter_map(|layer| layer.net.as_ref()) {
                let only = Net::Allowlist { allow: request.allow.clone().unwrap_or_default(), unknown: UnknownHost::Ask };
                let bound = if request.mode == NetMode::None { &Net::None } else { &only };
                prop_assert!(request.mode == NetMode::Allowlist && request.allow.is_none() || effective.net.is_within(bound));
            }
            let operators = layers.operator.net.as_ref().map_or(NetMode::None, |request| request.mode);
            prop_assert!(effective.net.mode() <= operators);
        }
    }

    #[test]
    fn smallest_value_wins_and_its_layer_is_named(layers in tightening_layers()) {
        let effective = merged(&layers)?;
        for field in Field::ALL {
            let base = layers.operator.limits.get(&field).copied()
                .unwrap_or(layers.system.get(field).min(layers.ceilings.limits.get(field)));
            let smallest = layers.narrowing.iter()
                .filter_map(|layer| layer.limits.get(&field).copied())
                .fold(base, u64::min);
            prop_assert_eq!(effective.limits.get(field), smallest);

            let name = effective.layers[&field];
            let named = [&layers.operator].into_iter().chain(&layers.narrowing)
                .any(|layer| layer.name == name && layer.limits.get(&field) == Some(&smallest));
            let system = name == LayerName::System && layers.system.get(field) == smallest;
            let ceiling = name == layers.ceilings.set_by && layers.ceilings.limits.get(field) == smallest;
            prop_assert!(named || system || ceiling, "{field} is said to be set by {name}");
        }
    }

    #[test]
    fn order_of_narrowing_layers_changes_no_limit(
        (layers, shuffled) in prop_oneof![any_layers(), tightening_layers()].prop_flat_map(|layers| {
            let shuffled = Just(layers.narrowing.clone()).prop_shuffle();
            (Just(layers), shuffled)
        }),
    ) {
        let other = Layers { narrowing: shuffled, ..layers.clone() };
        if let (Ok(one), Ok(two)) = (merge(&layers), merge(&other)) {
            prop_assert_eq!(one.limits, two.limits);
            prop_assert_eq!(one.net, two.net);
            prop_assert_eq!(one.require, two.require);
        }
    }

    #[test]
    fn repeated_layer_changes_nothing(layers in tightening_layers(), which in any::<Index>()) {
        prop_assume!(!layers.narrowing.is_empty());
        let mut twice = layers.clone();
        let position = which.index(layers.narrowing.len());
        twice.narrowing.insert(position, layers.narrowing[position].clone());
        prop_assert_eq!(merged(&layers)?, merged(&twice)?);
    }

    #[test]
    fn added_layer_never_widens(
        layers in tightening_layers(),
        added in narrowing_layer(),
        place in any::<Index>(),
    ) {
        let before = merged(&layers)?;
        let mut more = layers.clone();
        more.narrowing.insert(place.index(layers.narrowing.len() + 1), added);
        if let Ok(after) = merge(&more) {
            prop_assert!(narrower_or_equal(&after.limits, &before.limits));
            prop_assert!(after.net.is_within(&before.net));
            prop_assert!(after.require.is_superset(&before.require));
        }
    }

    #[test]
    fn requirement_never_disappears(
        layers in tightening_layers(),
        required in btree_set(select(&Requirement::ALL[..]), 1..4),
    ) {
        let mut first = layers.clone();
        first.operator.require = required.clone();
        prop_assert!(merged(&first)?.require.is_superset(&required));
        let all: BTreeSet<_> = first.narrowing.iter().flat_map(|layer| &layer.require).copied()
            .chain(required).collect();
        prop_assert_eq!(merged(&first)?.require, all);
    }

    #[test]
    fn denial_names_exceeding_value_and_layers(layers in any_layers()) {
        let Err(denial) = merge(&layers) else { return Ok(()) };
        if denial.code == DenialCode::NetExceeded {
            return Ok(());
        }
        prop_assert_eq!(denial.code, DenialCode::LimitExceeded);
        let (Some(field), Some(requested), Some(allowed), Some(layer), Some(requested_by)) =
            (denial.field, denial.requested, denial.allowed, denial.layer, denial.requested_by)
        else {
            return Err(TestCaseError::fail("a denial without values or layers"));
        };
        prop_assert!(requested > allowed);
        let has = |name, value| [&layers.operator].into_iter().chain(&layers.narrowing)
            .any(|layer| layer.name == name && layer.limits.get(&field) == Some(&value));
        prop_assert!(has(requested_by, requested));
        prop_assert!(
            has(layer, allowed)
                || layers.system.get(field) == allowed
                || layers.ceilings.limits.get(field) == allowed
        );
        for name in [field.to_string(), requested_by.to_string(), layer.to_string(),
                     field.quantity(requested).to_string(), field.quantity(allowed).to_string()] {
            prop_assert!(denial.message.contains(&name), "{} does not name {}", denial, name);
        }
    }

    #[test]
    fn versions_are_equal_if_and_only_if_policies_are(one in tightening_layers(), two in tightening_layers()) {
        let (one, two) = (merged(&one)?, merged(&two)?);
        prop_assert_eq!(one.version(), one.clone().version());
        prop_assert_eq!(one == two, one.version() == two.version());
        prop_assert_eq!(one.version().len(), 16);
    }

    #[test]
    fn unknown_key_is_rejected(
        key in "[a-z_.]{0,24}|\\PC{0,8}",
        known in btree_map(select(&Field::ALL[..]), 1..100u64, 0..4),
    ) {
        let is_known = Field::from_key(&key).is_some() || key == "net" || key == "require";
        prop_assume!(!is_known);
        let mut object: BTreeMap<&str, u64> =
            known.iter().map(|(field, &value)| (field.key(), value)).collect();
        let read = |object: &BTreeMap<&str, u64>| {
            serde_json::to_string(object).and_then(|text| serde_json::from_str::<Layer>(&text))
        };
        prop_assert!(read(&object).is_ok());
        object.insert(&key, 1);
        prop_assert!(read(&object).is_err());
    }

    #[test]
    fn serialised_limit_is_read_back(value in 1..8_192_000u64, field in select(&Field::ALL[..])) {
        let value = value.min(field.max_value());
        let text = serde_json::json!({ field.key(): field.quantity(value) }).to_string();
        let layer: Layer = serde_json::from_str(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(layer.limits, [(field, value)].into());
    }

    #[test]
    fn path_is_blocked_unless_listed_or_in_every_box(access in path_access()) {
        let blocked = PathControl::On(access.clone()).blocked();
        for named in &access.named {
            let lists = access.entries.iter().chain(&access.approved);
            let is_in_box = is_in_every_box(&named.path) || is_in_every_box(&named.real);
            let is_listed = lists.into_iter().any(|allowed| allowed.covers(&named.real));
            prop_assert_eq!(!blocked.contains(named), is_in_box || is_listed);
        }
        prop_assert!(blocked.iter().all(|named| access.named.contains(named)));
    }

    #[test]
    fn approval_of_path_allows_no_other(access in path_access(), more in host_path()) {
        let before = PathControl::On(access.clone()).blocked();
        let mut approved = access.clone();
        approved.approved.push(more.clone());
        let after = PathControl::On(approved).blocked();
        for named in &before {
            prop_assert_eq!(after.contains(named), !more.covers(&named.real));
        }
        prop_assert!(after.iter().all(|named| before.contains(named)));
    }
}
