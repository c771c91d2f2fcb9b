//! What runs inside the tiny guest: cloud-init, for a guest that has no Python, and a web server for tests.
//!
//! Of cloud-init it is a small reader of NoCloud input: [`user_data`] says what a document is, [`cloud_config`] parses
//! `#cloud-config`, [`plan`] decides what to do in which order, [`apply`] does it. What this guest cannot do is said on
//! its console, never dropped silently; the list of what it honours is in `hack/localvirt/guest/README.md`. Entry points:
//! the binary `guest-cloud-init`, and [`web`] for the binary `guest-web`.

pub mod accounts;
pub mod apply;
pub mod cloud_config;
pub mod plan;
pub mod user_data;
pub mod web;
