//! `subresources.kubevirt.io/v1`, as KubeVirt's virt-api serves it.
//!
//! A connection comes in by [`listener`] (TLS, HTTP/1.1 only), who calls is read by [`authn`] and asked about by
//! [`authz`], [`route`] says what is wanted, [`handler`] does it: [`power`] and [`guest`] for PUTs, [`stream`] for
//! upgrades. [`reply`] has KubeVirt's error shapes. Source: `pkg/virt-api/rest` and `pkg/virt-api/authorizer`.

pub mod authn;
pub mod authz;
pub mod cluster;
pub mod discovery;
pub mod guest;
pub mod handler;
pub mod listener;
pub mod power;
pub mod reply;
pub mod require;
pub mod route;
pub mod stream;
pub mod trust;
