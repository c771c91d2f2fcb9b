//! Checking objects against a structural OpenAPI v3 schema, in kube-apiserver's own words.
//!
//! Entry point: [`validate`]. Mirrors what kube-apiserver answers for a CustomResource of the same
//! schema (`k8s.io/apiextensions-apiserver/pkg/apiserver/validation`).

mod validate;

pub use validate::validate;
