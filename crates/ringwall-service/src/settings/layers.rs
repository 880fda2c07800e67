//! The policy layers of a server: built-in profile, ceilings, the operator's settings, and what narrows them.

use ringwall_policy::{Ceilings, Layer, LayerName, Layers, Limits, profile};

/// The policy layers of an exec.
pub(crate) fn layers(system: Limits, operator: Layer, narrowing: Vec<Layer>) -> Layers {
    let ceilings = Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System };
    Layers { system, ceilings, operator, narrowing }
}

/// The policy layers of long-running processes in a session's box.
pub(crate) fn lasting_layers(operator: Layer) -> Layers {
    let ceilings = Ceilings { limits: profile::PROCESS_CEILINGS, set_by: LayerName::System };
    Layers { system: profile::PROCESSES, ceilings, operator, narrowing: Vec::new() }
}
