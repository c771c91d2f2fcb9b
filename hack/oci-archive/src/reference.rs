//! Image names: `HOST/REPOSITORY:TAG`, never anything shorter.
//!
//! A short name means another image to kubelet (`busybox:1` is `docker.io/library/busybox:1`) than to
//! `ctr images import`, so that a Pod would try to pull what has been imported. Source: `distribution/reference`.

use std::{fmt, str::FromStr};

use crate::Error;

/// The full name of an image with its tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    full: String,
    tag: usize,
}

impl Reference {
    /// The part behind the last colon.
    pub fn tag(&self) -> &str {
        &self.full[self.tag..]
    }

    /// Everything.
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let bad = |problem| Error::Reference {
            name: name.to_owned(),
            problem,
        };
        let (host, rest) = name.split_once('/').ok_or_else(|| bad("it has no host"))?;
        if !is_host(host) {
            return Err(bad(
                "its first part is not a host: it has neither a dot nor a port",
            ));
        }
        let (repository, tag) = rest.rsplit_once(':').ok_or_else(|| bad("it has no tag"))?;
        if !repository.split('/').all(is_repository_part) {
            return Err(bad(
                "its repository is not lower-case letters and digits joined by . _ - and /",
            ));
        }
        if !is_tag(tag) {
            return Err(bad("its tag is not 1 to 128 letters, digits, _ . and -"));
        }
        Ok(Self {
            full: name.to_owned(),
            tag: name.len() - tag.len(),
        })
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = host
        .split_once(':')
        .map_or((host, None), |(name, port)| (name, Some(port)));
    let wellformed = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'));
    let port_ok = port.is_none_or(|port| port.parse::<u16>().is_ok());
    wellformed && port_ok && (name == "localhost" || name.contains('.') || port.is_some())
}

fn is_repository_part(part: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    part.bytes()
        .all(|b| inner(b) || matches!(b, b'.' | b'_' | b'-'))
        && part.bytes().next().is_some_and(inner)
        && part.bytes().last().is_some_and(inner)
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_taken_and_short_ones_refused() {
        for (name, tag) in [
            ("local.test/pause:1", "1"),
            ("localhost/a/b-c_d.e:v1.2-x", "v1.2-x"),
            ("registry:5000/a:latest", "latest"),
        ] {
            let reference: Reference = name.parse().unwrap();
            assert_eq!((reference.as_str(), reference.tag()), (name, tag));
        }
        for name in [
            "busybox:1",
            "library/busybox:1",
            "local.test/pause",
            "local.test/Pause:1",
            "local.test/a//b:1",
            "local.test/a:",
            "local.test/a:b/c",
            "local.test/a:-x",
            "local.test:99999/a:1",
            "/a:1",
            "",
        ] {
            let error = name.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains("HOST/REPOSITORY:TAG"), "{name}: {error}");
        }
    }
}
