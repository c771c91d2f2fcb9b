//! A stand-in for KubeVirt: real QEMU guests in real Pods behind KubeVirt's API

pub mod launcher;
