//! `kubectl workspace`: see the library for what it does.

fn main() {}
