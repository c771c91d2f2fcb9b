//! The `kubeworkspaces.io` API as data.
//!
//! - [`v1alpha1`]: the kinds as Rust types, views over the JSON that is served.
//! - [`schema`]: their structural OpenAPI schemas.
//! - [`validation`]: what a valid object is.
//! - [`resources`]: the resource table: one row and one strategy for each served resource.
//! - [`quantity`]: amounts of a resource, as `500m` and `2Gi`.
//! - [`stored`]: the custom resources that hold the served objects.
//! - [`registration`]: the APIService; the only module here that does I/O.

pub mod quantity;
pub mod registration;
pub mod resources;
pub mod schema;
pub mod stored;
pub mod v1alpha1;
pub mod validation;
