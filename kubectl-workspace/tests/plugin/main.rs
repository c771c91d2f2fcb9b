//! The plugin as people run it, against a double of the server in this process and against real OpenSSH programs.

#![allow(missing_docs, unreachable_pub)]
// a helper of tests fails as a test does
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actions;
mod completion;
mod console;
mod cut;
mod double;
mod forward;
mod kubeconfigs;
mod openssh;
mod person;
mod place;
mod proxied;
mod ssh;
mod vnc;
