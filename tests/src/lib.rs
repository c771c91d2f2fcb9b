//! Tests against a real control plane, a real node and real guests, and what they share.

pub mod deployment;
pub mod desk;
pub mod direct;
pub mod fight;
pub mod fixtures;
pub mod guests;
pub mod kubectls;
pub mod machines;
pub mod manifests;
pub mod memory;
pub mod own_cluster;
pub mod picture;
pub mod plugin;
pub mod replicas;
pub mod scene;
pub mod servers;
pub mod sshd;
pub mod stream;
pub mod web_app;
