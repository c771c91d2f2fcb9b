//! `workspaces-apiserver`: see the library for what it does.

fn main() {}
