//! `up` and `down`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use localcluster::assets::Places;
use localcluster::harness::STATE_VARIABLE;
use localcluster::node::namespaces::Namespaces;
use localcluster::proc::Ledger;
use localcluster::root;
use localcluster::state::State;
use localcluster::steps::compile::Profile;
use localcluster::steps::existing::Existing;
use localcluster::steps::{self, Context, Target};

/// What `hack/up` is told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hack/up                                      a cluster of our own, our server in it
  hack/up --dev                                our server as a process on this machine, for quick rebuilds
  hack/up --kubeconfig ~/.kube/config \\
          --push registry.example/team         a cluster that exists

It is safe to run again: what is there already is left as it is.")]
pub(crate) struct UpArgs {
    /// Run our server as a process on this machine instead of in the cluster
    #[arg(long, conflicts_with = "kubeconfig")]
    dev: bool,
    /// Use the cluster of this kubeconfig instead of making one
    #[arg(long, value_name = "FILE", requires = "push")]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: the repository to which our image is pushed (by skopeo) and from which that cluster pulls it
    #[arg(long, value_name = "REPO", requires = "kubeconfig", value_parser = repository)]
    push: Option<String>,
    /// How our programs are compiled [default: as in the cluster that is up, else release]
    #[arg(long, value_enum)]
    profile: Option<Profile>,
}

/// What `hack/down` is told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hack/down                the cluster ends, and nothing of it stays but the cache of programs
  hack/down --keep-logs    the logs stay, under .state/log
  hack/down --uninstall    after hack/up --kubeconfig: takes the server out of that cluster, which without this stays
                           as it is")]
pub(crate) struct DownArgs {
    /// Leave the logs
    #[arg(long)]
    keep_logs: bool,
    /// Take the server out of the cluster of `hack/up --kubeconfig`, if it has no workspaces
    #[arg(long)]
    uninstall: bool,
}

impl UpArgs {
    pub(crate) async fn run(self, state: State) -> anyhow::Result<()> {
        let asked = self.profile;
        let target = self.target()?;
        let _lock = state.lock()?;
        state.create()?;
        remember(&target, &state)?;
        let profile = profile(asked, &state)?;
        let context = Context {
            top: super::top(),
            state,
            places: Places::from_env()?,
            target,
            profile,
        };
        steps::run(&steps::list(&context.target), &context).await?;
        match &context.target {
            Target::Existing { kubeconfig, .. } => println!("{}", next_existing(kubeconfig)),
            Target::Local | Target::Dev => println!("{}", next()),
        }
        Ok(())
    }

    fn target(self) -> anyhow::Result<Target> {
        let Self {
            dev,
            kubeconfig,
            push,
            profile: _,
        } = self;
        Ok(match (dev, kubeconfig, push) {
            (false, Some(kubeconfig), Some(push)) => {
                anyhow::ensure!(
                    kubeconfig.is_file(),
                    "there is no kubeconfig {}",
                    kubeconfig.display()
                );
                let kubeconfig = std::path::absolute(kubeconfig)?;
                Target::Existing { kubeconfig, push }
            }
            (true, ..) => Target::Dev,
            (false, ..) => Target::Local,
        })
    }
}

/// The profile that is asked for, else that of the programs in the cluster: a second run changes nothing.
fn profile(asked: Option<Profile>, state: &State) -> anyhow::Result<Profile> {
    let file = state.profile();
    let name = |profile: Profile| {
        let value = profile.to_possible_value();
        value.map(|value| value.get_name().to_owned())
    };
    let Some(asked) = asked else {
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        return Ok(Profile::from_str(known.trim(), false).unwrap_or_default());
    };
    std::fs::write(&file, name(asked).unwrap_or_default())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(asked)
}

/// One state directory is for one cluster: its own, or one that exists.
fn remember(target: &Target, state: &State) -> anyhow::Result<()> {
    match target {
        Target::Local | Target::Dev => Existing::forget(state),
        Target::Existing { kubeconfig, .. } => {
            anyhow::ensure!(
                !has_own_cluster(state)?,
                "{} has a cluster of its own: end it by hack/down, or name another directory in {STATE_VARIABLE}",
                state.root().display()
            );
            let kubeconfig = kubeconfig.clone();
            Existing { kubeconfig }.store(state)
        }
    }
}

/// Whether anything of a cluster was started or kept here.
fn has_own_cluster(state: &State) -> anyhow::Result<bool> {
    let started = !Ledger::in_dir(state.run()).all()?.is_empty();
    let kept = state.node().exists() || state.etcd().exists();
    Ok(started || kept || Namespaces::seem_to_run(state.root()))
}

impl DownArgs {
    pub(crate) async fn run(self, state: &State) -> anyhow::Result<()> {
        let Self {
            keep_logs,
            uninstall,
        } = self;
        if !state.root().exists() && !Namespaces::seem_to_run(state.root()) {
            println!("Nothing is up.");
            return Ok(());
        }
        let _lock = state.lock()?;
        let existing = Existing::load(state)?;
        match (&existing, uninstall) {
            (Some(existing), true) => existing.uninstall(state, &super::top()).await?,
            (None, true) => anyhow::bail!(
                "--uninstall is for a cluster that exists (hack/up --kubeconfig); plain hack/down ends this one"
            ),
            (_, false) => {}
        }
        if has_own_cluster(state)? {
            let mut args = vec!["root-down".into(), in_state(state)];
            args.extend(keep_logs.then(|| OsString::from("--keep-logs")));
            root::elevate("ending the cluster", &args)?;
        }
        if !keep_logs {
            std::fs::remove_dir_all(state.root())
                .with_context(|| format!("cannot remove {}", state.root().display()))?;
        }
        println!("{}", farewell(existing.as_ref(), uninstall));
        Ok(())
    }
}

/// What is left, and how it goes.
fn farewell(existing: Option<&Existing>, uninstalled: bool) -> String {
    match existing {
        None => "Down. The programs stay in the cache, so that the next hack/up is quick.".to_owned(),
        Some(Existing { kubeconfig }) if uninstalled => {
            format!("The server is no longer in the cluster of {}.", kubeconfig.display())
        }
        Some(Existing { kubeconfig }) => format!(
            "This checkout has forgotten the cluster of {0}. The server and all workspaces stay there; to remove it:

  hack/up --kubeconfig '{0}' --push REPO, then hack/down --uninstall",
            kubeconfig.display()
        ),
    }
}

/// `--in=DIR`, as the root part wants it.
fn in_state(state: &State) -> OsString {
    let mut flag = OsString::from("--in=");
    flag.push(state.root());
    flag
}

/// What to type next.
pub(crate) fn next() -> &'static str {
    "The cluster is up. Next:

  eval \"$(hack/env)\"
  kubectl apply -f deploy/samples/workspace-vm.yaml
  kubectl get workspaces
  kubectl workspace console demo"
}

/// The same for a cluster that exists: its guests and its catalog are its own.
pub(crate) fn next_existing(kubeconfig: &std::path::Path) -> String {
    format!(
        "The server is installed. Next:

  eval \"$(hack/env)\"          # KUBECONFIG={}
  kubectl get images,workspaces -A
  kubectl apply -f deploy/samples/workspace-container.yaml    after naming an image that the cluster can pull
  hack/down --uninstall         # takes the server out again",
        kubeconfig.display()
    )
}

/// A repository as `docker push` names one: `registry/path`, without a tag and without a scheme.
fn repository(text: &str) -> Result<String, String> {
    let (registry, path) = text
        .split_once('/')
        .ok_or("name a registry and a path, such as registry.example/team")?;
    let plain = |s: &str| {
        s.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c))
    };
    let parts_full = path.split('/').all(|part| !part.is_empty());
    let registry_plain = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    if registry.is_empty() || !plain(registry_plain) || !plain(path) || !parts_full {
        return Err(
            "that is not registry/path in lower case, without a scheme and without a tag"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Cli;
    use super::*;

    fn refused(args: &[&str]) -> String {
        Cli::try_parse_from([&["localcluster", "up"], args].concat())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn an_existing_cluster_needs_a_place_for_images_and_the_other_way_round() {
        assert!(refused(&["--kubeconfig", "k"]).contains("--push"));
        assert!(refused(&["--push", "r.example/t"]).contains("--kubeconfig"));
        assert!(
            refused(&["--dev", "--kubeconfig", "k", "--push", "r.example/t"]).contains("--dev")
        );
    }

    #[test]
    fn repositories_are_checked() {
        for good in ["registry.example/team", "localhost:5000/a/b", "r/x-y_z"] {
            assert_eq!(repository(good).as_deref(), Ok(good));
        }
        for bad in [
            "team",
            "https://r.example/team",
            "r.example/team:tag",
            "r.example/Team",
            "r.example/",
            "/x",
            "r//x",
        ] {
            assert!(repository(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_state_directory_is_for_one_cluster() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::at(temp.path());
        let target = Target::Existing {
            kubeconfig: "/k".into(),
            push: "r/x".into(),
        };
        remember(&target, &state).unwrap();
        assert!(Existing::load(&state).unwrap().is_some());
        remember(&Target::Local, &state).unwrap();
        assert_eq!(Existing::load(&state).unwrap(), None);
        std::fs::create_dir(state.node()).unwrap();
        let error = remember(&target, &state).unwrap_err().to_string();
        assert!(error.contains("hack/down"), "{error}");
    }

    #[test]
    fn a_second_run_keeps_the_profile_of_the_first() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::at(temp.path());
        let of = |asked| profile(asked, &state).unwrap();
        assert_eq!(of(None), Profile::Release);
        for asked in [Profile::Debug, Profile::Release] {
            assert_eq!(of(Some(asked)), asked);
            assert_eq!(of(None), asked);
        }
    }

    #[test]
    fn a_kubeconfig_that_is_not_there_is_named() {
        let args = UpArgs {
            dev: false,
            kubeconfig: Some("/does/not/exist".into()),
            push: Some("r/x".into()),
            profile: None,
        };
        assert!(
            args.target()
                .unwrap_err()
                .to_string()
                .contains("/does/not/exist")
        );
        let args = UpArgs {
            dev: true,
            kubeconfig: None,
            push: None,
            profile: None,
        };
        assert_eq!(args.target().unwrap(), Target::Dev);
    }
}
