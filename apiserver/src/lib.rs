//! The workspaces API server: REST, streams, sessions and the embedded controller

pub mod sessions;
pub mod streams;
