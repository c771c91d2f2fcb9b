//! `oci-archive`: writes and inspects OCI-layout archives from the command line.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use oci_archive::{Archive, Compression, Image, Layer, Meta, Owners, Platform, Reference};

/// Write and inspect container images as OCI-layout archives
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write an image; the same input gives the same bytes
    Write(Box<Write>),
    /// Check every digest of an archive and print what is in it as JSON
    Inspect {
        /// The archive
        archive: PathBuf,
    },
}

#[derive(Args)]
struct Write {
    /// Where the archive goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// HOST/REPOSITORY:TAG that the image gets on import
    #[arg(long)]
    name: Reference,
    /// A layer, lowest first: tree:FOLDER or tar:FILE (a gzipped tar too)
    #[arg(long = "layer", value_name = "KIND:PATH", value_parser = parse_layer)]
    layers: Vec<LayerArg>,
    /// Keep the owners of tree layers instead of giving all to root
    #[arg(long)]
    keep_owners: bool,
    /// A file for the topmost layer
    #[arg(long = "file", value_name = "FILE=PLACE[:MODE[:UID:GID]]", value_parser = parse_pair)]
    files: Vec<(String, String)>,
    /// A folder for the topmost layer
    #[arg(long = "dir", value_name = "PLACE[:MODE[:UID:GID]]")]
    dirs: Vec<String>,
    /// A symbolic link for the topmost layer
    #[arg(long = "symlink", value_name = "TARGET=PLACE", value_parser = parse_pair)]
    symlinks: Vec<(String, String)>,
    /// The program; repeat for its fixed arguments
    #[arg(long, allow_hyphen_values = true, value_name = "WORD")]
    entrypoint: Vec<String>,
    /// Further arguments, which a Pod's args replace; repeat
    #[arg(long, allow_hyphen_values = true, value_name = "WORD")]
    cmd: Vec<String>,
    /// A variable; repeat
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A label; repeat
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_pair)]
    labels: Vec<(String, String)>,
    /// UID[:GID] or names from the image's /etc/passwd
    #[arg(long, default_value = "")]
    user: String,
    /// The working directory
    #[arg(long, default_value = "")]
    workdir: String,
    /// amd64 or arm64 [default: this machine's]
    #[arg(long, value_parser = Platform::linux)]
    architecture: Option<Platform>,
    /// Compress layers with gzip
    #[arg(long)]
    gzip: bool,
    /// The time of every entry in seconds since 1970
    #[arg(long, env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    mtime: u64,
}

#[derive(Clone)]
enum LayerArg {
    Tree(PathBuf),
    Tar(PathBuf),
}

fn parse_layer(text: &str) -> Result<LayerArg, String> {
    match text.split_once(':') {
        Some(("tree", path)) => Ok(LayerArg::Tree(path.into())),
        Some(("tar", path)) => Ok(LayerArg::Tar(path.into())),
        _ => Err("give tree:FOLDER or tar:FILE".into()),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (left, right) = text
        .split_once('=')
        .ok_or("give two parts with = between them")?;
    Ok((left.to_owned(), right.to_owned()))
}

/// `PLACE[:MODE[:UID:GID]]`, the mode in octal.
fn parse_place(text: &str, default: Meta) -> Result<(String, Meta)> {
    let parts: Vec<&str> = text.split(':').collect();
    let mode = |text: &str| {
        let mode = u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777);
        mode.with_context(|| format!("{text:?} is not an octal mode up to 7777"))
    };
    let id = |text: &str| {
        text.parse::<u32>()
            .with_context(|| format!("{text:?} is not a user or group number"))
    };
    let meta = match parts.as_slice() {
        [_] => default,
        [_, m] => Meta {
            mode: mode(m)?,
            ..default
        },
        [_, m, uid, gid] => Meta {
            mode: mode(m)?,
            uid: id(uid)?,
            gid: id(gid)?,
        },
        _ => anyhow::bail!("{text:?}: give PLACE, PLACE:MODE or PLACE:MODE:UID:GID"),
    };
    Ok((parts[0].to_owned(), meta))
}

impl Write {
    fn run(self) -> Result<()> {
        let Self {
            output,
            name,
            layers,
            keep_owners,
            files,
            dirs,
            symlinks,
            ..
        } = &self;
        let owners = if *keep_owners {
            Owners::Kept
        } else {
            Owners::Root
        };
        let mut image = self.image(name.clone());
        for layer in layers {
            image.layers.push(match layer {
                LayerArg::Tree(root) => Layer::tree(root, owners)?,
                LayerArg::Tar(path) => Layer::tar(path),
            });
        }
        if !(files.is_empty() && dirs.is_empty() && symlinks.is_empty()) {
            image.layers.push(self.top_layer()?);
        }
        let written = image.write(output)?;
        println!("{} {}", written.manifest, output.display());
        Ok(())
    }

    fn top_layer(&self) -> Result<Layer> {
        let mut layer = Layer::new();
        for (from, place) in &self.files {
            let (place, meta) = parse_place(place, Meta::READABLE)?;
            layer.file(place, from, meta)?;
        }
        for place in &self.dirs {
            let (place, meta) = parse_place(place, Meta::EXECUTABLE)?;
            layer.dir(place, meta)?;
        }
        for (target, place) in &self.symlinks {
            layer.symlink(place, target)?;
        }
        Ok(layer)
    }

    fn image(&self, reference: Reference) -> Image {
        let mut image = Image::new(reference);
        image.config.entrypoint.clone_from(&self.entrypoint);
        image.config.cmd.clone_from(&self.cmd);
        image.config.env.clone_from(&self.env);
        image.config.labels = self.labels.iter().cloned().collect::<BTreeMap<_, _>>();
        image.config.user.clone_from(&self.user);
        image.config.working_dir.clone_from(&self.workdir);
        image.platform.clone_from(&self.architecture);
        image.compression = if self.gzip {
            Compression::Gzip
        } else {
            Compression::None
        };
        image.mtime = self.mtime;
        image
    }
}

fn inspect(path: &std::path::Path) -> Result<()> {
    let archive = Archive::open(path)?;
    let contents = archive.verify()?;
    let summary = serde_json::json!({
        "name": archive.name,
        "manifest": archive.manifest,
        "platform": contents.platform,
        "config": contents.config,
        "layers": contents.layers,
    });
    println!("{}", serde_json::to_string_pretty(&summary)?);
    Ok(())
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Write(write) => write.run(),
        Command::Inspect { archive } => inspect(&archive),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oci-archive: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn places_carry_mode_and_owner() {
        let place = |text| {
            parse_place(text, Meta::READABLE)
                .map(|(p, m)| (p, m.mode, m.uid, m.gid))
                .ok()
        };
        assert_eq!(place("/a"), Some(("/a".into(), 0o644, 0, 0)));
        assert_eq!(place("/a:4755"), Some(("/a".into(), 0o4755, 0, 0)));
        assert_eq!(place("/a:700:1:2"), Some(("/a".into(), 0o700, 1, 2)));
        for bad in [
            "/a:",
            "/a:8",
            "/a:77777",
            "/a:700:1",
            "/a:700:x:2",
            "/a:700:1:2:3",
        ] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }
}
