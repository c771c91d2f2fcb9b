//! As many open files as the system allows: each console is one.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises the soft limit of open files to the hard one.
pub fn raise_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => info!(files = ?limit.current, "the limit of open files is raised"),
        Err(error) => warn!(%error, "the limit of open files stays as it is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_hard_one_afterwards() {
        raise_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
