//! Integration, conformance and end-to-end tests against a real control plane; benches
