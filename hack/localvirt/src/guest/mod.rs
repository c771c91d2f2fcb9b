//! cloud-init for the tiny guest: a small reader of NoCloud input, for a guest that has no Python.
//!
//! [`user_data`] says what a document is, [`cloud_config`] parses `#cloud-config`, [`plan`] decides what to do in which
//! order, [`apply`] does it. What this guest cannot do is said on its console, never dropped silently; the list of what
//! it honours is in `hack/localvirt/guest/README.md`. Entry point: the binary `guest-cloud-init`.

pub mod accounts;
pub mod apply;
pub mod cloud_config;
pub mod plan;
pub mod user_data;
