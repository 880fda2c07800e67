//! OpenAPI schemas of types with hand-written serialization, generated from the tables that it
//! uses.

use ringwall_policy::{Field, ProjectDir};
use utoipa::openapi::schema::{ArrayBuilder, Object, ObjectBuilder, Type};

/// All limits by key, all required. All are numbers; only cores may have decimals.
pub(crate) fn limits() -> Object {
    Field::ALL.into_iter().fold(some_limits(), |mut object, field| {
        object.required.push(field.key().to_owned());
        object
    })
}

/// All limits by key, all optional.
pub(crate) fn some_limits() -> Object {
    let number = |field: Field| ObjectBuilder::new().schema_type(Type::Number).description(Some(field.expectation()));
    let limits = Field::ALL.into_iter();
    limits.fold(ObjectBuilder::new(), |object, field| object.property(field.key(), number(field))).build()
}

/// A manifest's `permissions.fs`.
pub(crate) fn file_permissions() -> Object {
    let place =
        || ObjectBuilder::new().schema_type(Type::String).enum_values(Some(ProjectDir::ALL.map(ProjectDir::glob)));
    let places = || ArrayBuilder::new().items(place());
    ObjectBuilder::new().property("read", places()).property("write", places()).build()
}

/// A manifest's `permissions.net`, and `net` of a request's overrides.
pub(crate) fn net() -> Object {
    let word = |words: [&'static str; 2]| ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    let hosts = ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::String));
    ObjectBuilder::new()
        .property("mode", word(["none", "allowlist"]))
        .property("allow", hosts)
        .property("unknown", word(["deny", "ask"]))
        .required("mode")
        .build()
}
