//! Both ends of the streams that `hack/bench relay` measures: the client's and the upstream's, programs of their own so
//! that the relay between them is measured alone.
//!
//! Entry points: [`client::run`] and [`upstream::run`]. They agree on [`job`]s and on the [`noise`] that is sent.

pub mod client;
pub mod job;
pub mod link;
pub mod noise;
mod tls;
pub mod upstream;

/// Raises the soft limit of open files to the hard one: each end of each stream is one.
fn raise_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
}
