//! Images are pushed to the repository from which a cluster that exists pulls them, by skopeo (a package of Debian),
//! which knows registries and the user's logins (`skopeo login`, `docker login`).

use std::ffi::OsString;
use std::net::IpAddr;
use std::process::Stdio;

use anyhow::Context as _;
use async_trait::async_trait;

use super::recipe::{Image, Named, named};
use crate::steps::{Context, Found, Step, Target};

/// The program.
const SKOPEO: &str = "skopeo";

/// Says at once that the program is missing, before anything is compiled.
pub(in crate::steps) struct Pusher;

#[async_trait]
impl Step for Pusher {
    fn name(&self) -> &'static str {
        "looking for skopeo"
    }

    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        let version = tokio::process::Command::new(SKOPEO)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .await;
        version.context("--push needs skopeo: install it with `sudo apt-get install skopeo`")?;
        Ok(Found::Done)
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }
}

pub(in crate::steps) struct Push;

#[async_trait]
impl Step for Push {
    fn name(&self) -> &'static str {
        "pushing images"
    }

    /// Only the registry knows, and skopeo sends nothing that it has.
    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(Found::ToDo)
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let Target::Existing { push, .. } = &context.target else {
            return Ok(());
        };
        for image in Image::wanted(&context.target) {
            let image = named(*image, context)?;
            let status = tokio::process::Command::new(SKOPEO)
                .args(copy(&image, context, push))
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .status()
                .await
                .context("cannot run skopeo")?;
            let name = image.in_repository(push);
            anyhow::ensure!(
                status.success(),
                "skopeo cannot push {name} ({status}): if it is a login that is missing, `skopeo login {}`",
                push.split('/').next().unwrap_or(push)
            );
        }
        Ok(())
    }
}

/// skopeo's words. The policy of signatures is for images from outside; this one was just built here. A registry on
/// this machine's loopback may speak plain HTTP, as for docker and containerd.
fn copy(image: &Named, context: &Context, repository: &str) -> Vec<OsString> {
    let mut from = OsString::from("oci-archive:");
    from.push(image.archive(context));
    let plain = is_loopback(repository).then_some("--dest-tls-verify=false");
    let mut words: Vec<OsString> = vec!["--insecure-policy".into(), "copy".into()];
    words.extend(plain.map(OsString::from));
    words.extend([
        // Digests stay those of the archive.
        "--preserve-digests".into(),
        from,
        format!("docker://{}", image.in_repository(repository)).into(),
    ]);
    words
}

fn is_loopback(repository: &str) -> bool {
    let registry = repository.split('/').next().unwrap_or(repository);
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use crate::assets::Places;
    use crate::state::State;
    use crate::steps::compile::Profile;

    use super::*;

    #[test]
    fn only_a_registry_of_this_machine_may_do_without_tls() {
        for (repository, want) in [
            ("localhost:5000/team", true),
            ("127.0.0.1:5000/team", true),
            ("127.9.9.9/team", true),
            ("localhost.example/team", false),
            ("10.0.0.1:5000/team", false),
            ("registry.example/localhost", false),
        ] {
            assert_eq!(is_loopback(repository), want, "{repository}");
        }
    }

    #[test]
    fn an_archive_goes_under_its_tag_into_the_repository() {
        let context = Context {
            top: "/top".into(),
            state: State::at("/state"),
            places: Places::new(None, Some("/cache".into()), None).unwrap(),
            target: Target::Local,
            profile: Profile::Release,
        };
        let image = Named {
            image: Image::Server,
            inputs: "0123456789abcdef".into(),
        };
        let words = copy(&image, &context, "r.example/team");
        assert_eq!(
            words[words.len() - 2..],
            [
                "oci-archive:/top/_build/images/workspaces-apiserver.tar",
                "docker://r.example/team/workspaces-apiserver:0123456789ab",
            ]
        );
    }
}
