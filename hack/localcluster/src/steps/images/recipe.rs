//! What each image is called and made of.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ring::digest::{self, SHA256};

use crate::steps::compile::{Profile, SERVER, program};
use crate::steps::{Context, Target};

/// How much of the digest of its inputs is an image's tag.
const TAG_LENGTH: usize = 12;
/// Read by every builder.
const SHARED: &str = "hack/lib/debs";
/// Read by the builders of guests and launchers.
const GUEST: &str = "hack/localvirt/guest";

/// One of our images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::steps) enum Image {
    /// The server.
    Server,
    /// The stand-in for KubeVirt.
    Localvirt,
    /// What runs QEMU in a Pod.
    Launcher,
    /// The disk of the sample machine.
    GuestTiny,
    /// The sample container.
    WorkspaceShell,
}

impl Image {
    /// Those that `target` needs. A cluster that exists has a KubeVirt of its own, and guests too.
    pub(super) fn wanted(target: &Target) -> &'static [Self] {
        use Image::{GuestTiny, Launcher, Localvirt, Server, WorkspaceShell};
        match target {
            Target::Local => &[Server, Localvirt, Launcher, GuestTiny, WorkspaceShell],
            Target::Dev => &[Localvirt, Launcher, GuestTiny, WorkspaceShell],
            Target::Existing { .. } => &[Server],
        }
    }

    /// Its name without registry and tag, and that of its archive.
    pub(in crate::steps) fn base(self) -> &'static str {
        match self {
            Self::Server => SERVER,
            Self::Localvirt => "localvirt",
            Self::Launcher => "localvirt-launcher",
            Self::GuestTiny => "guest-tiny",
            Self::WorkspaceShell => "workspace-shell",
        }
    }

    /// Its name without a tag, as manifests write it.
    pub(in crate::steps) fn repository(self) -> String {
        format!("kubeworkspaces.io/{}", self.base())
    }

    /// The script that builds it.
    pub(super) fn script(self) -> &'static str {
        match self {
            Self::Server => "deploy/image/build",
            Self::Localvirt => "hack/localvirt/build-image",
            Self::Launcher => "hack/localvirt/guest/build-launcher",
            Self::GuestTiny => "hack/localvirt/guest/build-tiny",
            Self::WorkspaceShell => "hack/images/build-workspace-shell",
        }
    }

    /// The script's words.
    pub(super) fn args(
        self,
        archive: &Path,
        name: &str,
        profile: Profile,
    ) -> anyhow::Result<Vec<OsString>> {
        let (archive, name) = (archive.as_os_str().to_owned(), OsString::from(name));
        Ok(match self {
            Self::Server => vec![program(SERVER, profile)?.into_os_string(), archive, name],
            Self::Localvirt => vec![
                archive,
                name,
                program("localvirt", profile)?.into_os_string(),
            ],
            Self::Launcher | Self::GuestTiny | Self::WorkspaceShell => vec![archive, name],
        })
    }

    /// The files and directories that it is made of. Packages of Debian are not among them: their updates come with
    /// the next change, or after removing the archive.
    fn inputs(self, context: &Context) -> anyhow::Result<Vec<PathBuf>> {
        let (top, profile) = (&context.top, context.profile);
        let mut inputs = vec![top.join(self.script()), top.join(SHARED)];
        let guest = |binary| anyhow::Ok([top.join(GUEST), program(binary, profile)?]);
        match self {
            Self::Server => inputs.push(program(SERVER, profile)?),
            Self::Localvirt => inputs.push(program("localvirt", profile)?),
            Self::Launcher => inputs.extend(guest("launcher")?),
            Self::GuestTiny => {
                inputs.extend(guest("guest-cloud-init")?);
                inputs.extend(guest("guest-web")?);
            }
            Self::WorkspaceShell => {}
        }
        Ok(inputs)
    }

    /// Whether others name it with a tag that stays: samples do.
    fn has_fixed_tag(self) -> bool {
        matches!(self, Self::GuestTiny | Self::WorkspaceShell)
    }
}

/// An image with the digest of what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::steps) struct Named {
    pub(super) image: Image,
    /// The digest of its inputs, in hexadecimal.
    pub(super) inputs: String,
}

impl Named {
    /// The tag: a new build has a new one, so that what runs it is replaced; the same build changes nothing.
    pub(in crate::steps) fn tag(&self) -> &str {
        if self.image.has_fixed_tag() {
            "dev"
        } else {
            self.inputs.get(..TAG_LENGTH).unwrap_or(&self.inputs)
        }
    }

    /// Its whole name.
    pub(in crate::steps) fn name(&self) -> String {
        format!("{}:{}", self.image.repository(), self.tag())
    }

    /// Its name where it was pushed to.
    pub(in crate::steps) fn in_repository(&self, repository: &str) -> String {
        format!("{repository}/{}:{}", self.image.base(), self.tag())
    }

    /// Its archive.
    pub(in crate::steps) fn archive(&self, context: &Context) -> PathBuf {
        let file = format!("{}.tar", self.image.base());
        context.build_dir().join("images").join(file)
    }
}

/// `image` as it is now.
pub(in crate::steps) fn named(image: Image, context: &Context) -> anyhow::Result<Named> {
    let mut hash = digest::Context::new(&SHA256);
    hash.update(image.repository().as_bytes());
    for path in image.inputs(context)? {
        add(&mut hash, &path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let digest = hash.finish();
    let inputs = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    Ok(Named { image, inputs })
}

/// Adds a file, or a directory's files in the order of their names.
fn add(hash: &mut digest::Context, path: &Path) -> io::Result<()> {
    let mut put = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    put(path.file_name().unwrap_or_default().as_encoded_bytes());
    if !path.is_dir() {
        put(&fs::read(path)?);
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    entries.sort();
    put(&(entries.len() as u64).to_be_bytes());
    entries.iter().try_for_each(|entry| add(hash, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of(path: &Path) -> Vec<u8> {
        let mut hash = digest::Context::new(&SHA256);
        add(&mut hash, path).unwrap();
        hash.finish().as_ref().to_vec()
    }

    #[test]
    fn names_and_contents_count_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let dir = |name: &str, files: &[(&str, &str)]| {
            let dir = temp.path().join(name).join("d");
            fs::create_dir_all(&dir).unwrap();
            for (name, content) in files {
                fs::write(dir.join(name), content).unwrap();
            }
            digest_of(&dir)
        };
        let first = dir("first", &[("a", "1"), ("b", "2")]);
        assert_eq!(first, dir("same", &[("b", "2"), ("a", "1")]));
        assert_ne!(first, dir("content", &[("a", "1"), ("b", "3")]));
        assert_ne!(first, dir("name", &[("a", "1"), ("c", "2")]));
        assert_ne!(first, dir("shifted", &[("a", "12"), ("b", "")]));
    }

    #[test]
    fn what_samples_name_keeps_its_tag_and_the_rest_has_one_for_each_build() {
        let tag = |image| {
            let inputs = "0123456789abcdef".to_owned();
            Named { image, inputs }.tag().to_owned()
        };
        assert_eq!(tag(Image::Server), "0123456789ab");
        assert_eq!(tag(Image::Launcher), "0123456789ab");
        assert_eq!(tag(Image::GuestTiny), "dev");
        assert_eq!(tag(Image::WorkspaceShell), "dev");
    }

    #[test]
    fn every_script_is_there() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for image in Image::wanted(&Target::Local) {
            assert!(top.join(image.script()).is_file(), "{}", image.script());
        }
    }
}
