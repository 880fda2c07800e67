//! Turns the bytes of a manifest into a skill, or into the reasons why it is invalid.
//!
//! All errors are reported together: those of the schema, of the interface, and of the rules that a
//! schema cannot express.

use jsonschema::{Draft, Validator};
use ringwall_policy::{ImageName, Layer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::RESERVED;
use super::error::Error;
use super::reasons::Reasons;
use super::schema::{compile, compile_untrusted};
use super::shipped;
use super::skill::{Interface, Permissions, Runtime, RuntimeKind, Skill};

/// A folder whose manifest is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct InvalidManifest {
    /// The folder's name, even if the manifest has another id.
    pub id: String,
    pub reasons: Vec<String>,
}

/// Validates manifests with the schema in the program; the copy on disk is for people and editors.
#[derive(Debug)]
pub(super) struct ManifestValidator {
    schema: Validator,
}

impl ManifestValidator {
    pub(super) fn new() -> Result<Self, Error> {
        let wrong = |reason: String| Error::BuiltInSchema { reason };
        let schema: Value = serde_json::from_str(shipped::SCHEMA).map_err(|error| wrong(error.to_string()))?;
        let schema = compile(&schema, Draft::Draft202012).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { schema })
    }

    pub(super) fn validate(&self, folder: &str, text: &[u8]) -> Result<Skill, InvalidManifest> {
        let mut reasons = Reasons::default();
        let skill = self.read(folder, text, &mut reasons);
        match skill {
            Some(skill) if reasons.is_empty() => Ok(skill),
            _ => Err(InvalidManifest { id: folder.to_owned(), reasons: reasons.into_list() }),
        }
    }

    /// Adds at least one reason before it returns `None`.
    fn read(&self, folder: &str, text: &[u8], reasons: &mut Reasons) -> Option<Skill> {
        let manifest: Value = match serde_json::from_slice(text) {
            Ok(manifest) => manifest,
            Err(error) => {
                reasons.add("", &format!("is not JSON: {error}"));
                return None;
            }
        };
        for error in self.schema.iter_errors(&manifest) {
            reasons.add_error("", &error);
        }
        check_id(folder, &manifest, reasons);
        let inputs = check_interface(&manifest, reasons);
        if !reasons.is_empty() {
            return None;
        }

        let limits = match manifest.get("limits").map(Layer::deserialize).transpose() {
            Ok(layer) => layer.map(|layer| layer.limits).unwrap_or_default(),
            Err(error) => {
                reasons.add("/limits", &error.to_string());
                return None;
            }
        };
        let manifest = match Manifest::deserialize(&manifest) {
            Ok(manifest) => manifest,
            Err(error) => {
                reasons.add("", &error.to_string());
                return None;
            }
        };
        check_runtime(&manifest, reasons);
        let Manifest { id, name, description, interface, runtime, permissions } = manifest;
        Some(Skill { id, name, description, runtime, interface, permissions, limits, inputs: inputs? })
    }
}

/// The fields used after the schema has passed. Limits are read separately, so that their errors
/// have a place.
#[derive(Deserialize)]
struct Manifest {
    id: String,
    name: String,
    description: String,
    interface: Interface,
    runtime: Runtime,
    permissions: Permissions,
}

fn check_id(folder: &str, manifest: &Value, reasons: &mut Reasons) {
    if let Some(id) = manifest.get("id").and_then(Value::as_str)
        && id != folder
    {
        reasons.add("/id", &format!("is \"{id}\", but the folder is called \"{folder}\"; they must be the same"));
    }
}

/// Returns the compiled schema of the inputs, if valid.
fn check_interface(manifest: &Value, reasons: &mut Reasons) -> Option<Validator> {
    let interface = manifest.get("interface")?;
    if let Some(outputs) = interface.get("outputs") {
        compile_untrusted(outputs, "/interface/outputs", reasons);
    }
    let inputs = interface.get("inputs")?;
    for key in RESERVED {
        if inputs.get("properties").and_then(|properties| properties.get(key)).is_some() {
            reasons.add(
                &format!("/interface/inputs/properties/{key}"),
                "this name belongs to the call itself and never reaches a skill; choose another",
            );
        }
    }
    compile_untrusted(inputs, "/interface/inputs", reasons)
}

fn check_runtime(manifest: &Manifest, reasons: &mut Reasons) {
    let runtime = &manifest.runtime;
    if let (RuntimeKind::Native, Some(image)) = (runtime.kind, &runtime.image)
        && let Err(error) = image.parse::<ImageName>()
    {
        reasons.add("/runtime/image", &error.to_string());
    }
    if let Some(builtin) = shipped::Builtin::of(&manifest.id)
        && runtime.entrypoint != builtin.entrypoint()
    {
        let message = format!(
            "{} always runs {:?}; give a skill that runs something else another id",
            manifest.id,
            builtin.entrypoint()
        );
        reasons.add("/runtime/entrypoint", &message);
    }
}
