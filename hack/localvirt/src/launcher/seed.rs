//! NoCloud input with its texts: from the spec, or from Secrets that the kubelet mounted.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::spec::{CloudInit, SeedSource};

/// NoCloud input, as the medium gets it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Seed {
    /// The user data, unchanged.
    pub user_data: Vec<u8>,
    /// `network-config`, unchanged.
    pub network_data: Option<Vec<u8>>,
    /// `local-hostname` of the metadata.
    pub hostname: String,
    /// `instance-id` of the metadata.
    pub instance_id: String,
}

/// Says that there is user data and not what it is.
impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Seed");
        out.field("instance_id", &self.instance_id);
        out.field("hostname", &self.hostname)
            .finish_non_exhaustive()
    }
}

/// Why there is no input.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The Secret has other keys.
    #[error("the Secret of cloud-init that is mounted at {dir:?} has no key {key:?}")]
    NoKey {
        /// Where it is mounted.
        dir: PathBuf,
        /// What is missing.
        key: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Seed {
    /// Reads what is mounted.
    ///
    /// # Errors
    /// When a Secret lacks its key.
    pub fn read(input: &CloudInit) -> Result<Self, SeedError> {
        let user = text(&input.user_data, "userdata")?;
        let network = input
            .network_data
            .as_ref()
            .map(|source| text(source, "networkdata"));
        Ok(Self {
            user_data: user.unwrap_or_default(),
            network_data: network.transpose()?.flatten(),
            hostname: input.hostname.clone(),
            instance_id: input.instance_id.clone(),
        })
    }
}

fn text(source: &SeedSource, key: &'static str) -> Result<Option<Vec<u8>>, SeedError> {
    let (dir, optional) = match source {
        SeedSource::Text(text) => return Ok(Some(text.clone().into_bytes())),
        SeedSource::Mounted(dir) => (dir, false),
        SeedSource::MountedIfThere(dir) => (dir, true),
    };
    match mounted(dir, key)? {
        None if !optional => Err(SeedError::NoKey {
            dir: dir.clone(),
            key,
        }),
        found => Ok(found),
    }
}

/// KubeVirt takes both spellings of a key.
fn mounted(dir: &Path, key: &str) -> Result<Option<Vec<u8>>, SeedError> {
    for spelling in [key.to_owned(), key.replace("data", "Data")] {
        let path = dir.join(spelling);
        match std::fs::read(&path) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(SeedError::Read { path, source }),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(user_data: SeedSource, network_data: Option<SeedSource>) -> CloudInit {
        CloudInit {
            user_data,
            network_data,
            hostname: "h".into(),
            instance_id: "i".into(),
        }
    }

    #[test]
    fn keys_are_found_in_both_spellings_and_one_secret_may_hold_both() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("userData"), "#cloud-config").unwrap();
        let read = || {
            let dir = dir.path().to_owned();
            let network = SeedSource::MountedIfThere(dir.clone());
            Seed::read(&input(SeedSource::Mounted(dir), Some(network))).unwrap()
        };
        assert_eq!(read().user_data, b"#cloud-config");
        assert_eq!(read().network_data, None);
        std::fs::write(dir.path().join("networkdata"), "version: 2").unwrap();
        assert_eq!(
            read().network_data.as_deref(),
            Some(b"version: 2".as_slice())
        );
    }

    #[test]
    fn a_missing_key_is_named_and_what_is_there_is_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("password"), "hunter2").unwrap();
        let source = SeedSource::Mounted(dir.path().to_owned());
        let error = Seed::read(&input(source, None)).unwrap_err().to_string();
        assert!(
            error.contains("no key \"userdata\"") && !error.contains("hunter2"),
            "{error}"
        );
        let seed = Seed::read(&input(SeedSource::Text("hunter2".into()), None)).unwrap();
        assert!(!format!("{seed:?}").contains("hunter2"));
    }
}
