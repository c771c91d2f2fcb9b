//! Tests against a real control plane, a real node and real guests, and what they share.

pub mod deployment;
pub mod manifests;
