//! Actions on workspaces and their user-data, through the real kube-apiserver, with the rights that
//! the shipped roles give.

mod machines;
mod pods;
mod scene;
mod wishes;
