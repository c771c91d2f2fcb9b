//! Structural OpenAPI v3 schemas at work, in kube-apiserver's own words.
//!
//! Entry points: [`validate`] says what breaks a schema, [`prune`] drops what it does not know,
//! [`check_metadata`] guards `metadata`, [`with_format`] finds what has a format. Mirrors what kube-apiserver answers for a CustomResource of the same
//! schema (`k8s.io/apiextensions-apiserver/pkg/apiserver/validation`).

mod depth;
mod format;
mod metadata;
mod nulls;
mod prune;
mod validate;

pub use depth::{DEEPEST, deeper_than};
pub use format::with_format;
pub use metadata::{check_metadata, object_meta};
pub use nulls::drop_nulls;
pub use prune::prune;
pub use validate::validate;
