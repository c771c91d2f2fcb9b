//! The kubectl plugin: console, start and stop of workspaces
