//! The policy layers of a server: built-in profile, ceilings, the operator's settings, and what narrows them.

use ringwall_policy::{Ceilings, Layer, LayerName, Layers, Limits, profile};

/// Everybody's say in an exec of a server.
pub(crate) fn layers(system: Limits, operator: Layer, narrowing: Vec<Layer>) -> Layers {
    let ceilings = Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System };
    Layers { system, ceilings, operator, narrowing }
}

/// The same for what lasts in a session's box until it ends or is ended.
pub(crate) fn lasting_layers(operator: Layer) -> Layers {
    let ceilings = Ceilings { limits: profile::PROCESS_CEILINGS, set_by: LayerName::System };
    Layers { system: profile::PROCESSES, ceilings, operator, narrowing: Vec::new() }
}
