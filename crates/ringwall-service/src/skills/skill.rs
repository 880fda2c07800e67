//! A skill as described by its manifest.
//!
//! It exists only if the whole manifest is valid, and serialises as it is listed. It grants
//! nothing: its limits are a layer that only narrows, its permissions are the mounts that it needs.

use std::collections::BTreeMap;

use jsonschema::Validator;
use ringwall_policy::{Field, FilePermissions, Layer, LayerName, NetRequest, ProjectAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

/// A skill; made only from a valid manifest
#[derive(Debug, Serialize, ToSchema)]
#[non_exhaustive]
pub struct Skill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub runtime: Runtime,
    pub interface: Interface,
    pub permissions: Permissions,
    /// In each field's own unit; serialised in the unit of manifests
    #[serde(serialize_with = "serialize_limits")]
    #[schema(schema_with = crate::settings::schema::some_limits)]
    pub limits: BTreeMap<Field, u64>,
    #[serde(skip)]
    pub(super) inputs: Validator,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    pub kind: RuntimeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Never empty.
    pub entrypoint: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// Needs Docker.
    Docker,
    /// Runs on any backend
    Native,
}

/// JSON Schemas of the inputs, which are validated, and of the outputs, which are documentation
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    #[schema(value_type = Object)]
    pub inputs: Value,
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    #[schema(schema_with = crate::settings::schema::file_permissions)]
    pub fs: FilePermissions,
    #[schema(schema_with = crate::settings::schema::net)]
    #[serde(default)]
    pub net: NetRequest,
}

impl Skill {
    /// The skill's policy layer.
    pub fn layer(&self) -> Layer {
        Layer { limits: self.limits.clone(), net: Some(self.permissions.net.clone()), ..Layer::new(LayerName::Skill) }
    }

    /// The project directories that its box sees.
    pub fn project_access(&self) -> ProjectAccess {
        self.permissions.fs.project_access()
    }
}

fn serialize_limits<S: Serializer>(limits: &BTreeMap<Field, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(limits.len()))?;
    for (field, value) in limits {
        map.serialize_entry(field, &field.quantity(*value))?;
    }
    map.end()
}
