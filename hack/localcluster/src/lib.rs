//! A whole single-node Kubernetes on one machine without a container engine, and its control plane alone for tests
