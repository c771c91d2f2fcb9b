//! What `hack/up` does, as a list of named steps.
//!
//! A [`Step`] first says whether what it is for is so already, and is run only if not; so a second run changes nothing,
//! and one after a failure goes on where it ended. To add a step, implement the trait in a file of its own and put it
//! into [`list`].

mod answers;
mod catalog;
mod checks;
pub mod compile;
pub mod existing;
mod host;
pub mod images;
mod kubectl;
mod kustomization;
pub mod localvirt;
mod node;
mod packages;
mod programs;
mod rights;
pub mod server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use async_trait::async_trait;

use compile::Profile;

use crate::assets::Places;
use crate::progress::seconds;
use crate::state::State;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A cluster of our own, with our server in it.
    Local,
    /// A cluster of our own, with our server as a process on this machine.
    Dev,
    /// A cluster that exists.
    Existing {
        /// Its kubeconfig.
        kubeconfig: PathBuf,
        /// Where our images go, so that its nodes can pull them.
        push: String,
    },
}

/// What steps work with.
#[derive(Clone, Debug)]
pub struct Context {
    /// The checkout.
    pub top: PathBuf,
    /// The state directory.
    pub state: State,
    /// Where programs are.
    pub places: Places,
    /// What is wanted.
    pub target: Target,
    /// How our programs are compiled.
    pub profile: Profile,
}

impl Context {
    /// The kubeconfig of the cluster that steps act on.
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.target {
            Target::Local | Target::Dev => self.state.kubeconfig(),
            Target::Existing { kubeconfig, .. } => kubeconfig.clone(),
        }
    }

    /// What is made from the checkout and ignored by git.
    pub fn build_dir(&self) -> PathBuf {
        self.top.join("_build")
    }

    /// For what `program` makes on the way: a run that is killed leaves nothing outside of the build directory.
    pub fn temporary(&self, program: &str) -> anyhow::Result<PathBuf> {
        use anyhow::Context as _;
        let dir = self.build_dir().join("tmp").join(program);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// A client of the administrator of that cluster.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        Ok(crate::harness::administrator(&self.kubeconfig()).await?)
    }

    /// The words for [`crate::root::elevate`] of a subcommand of the root part, which learns where things are from them.
    pub fn root_command(&self, subcommand: &str) -> Vec<OsString> {
        let flag = |name: &str, path: &Path| {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(path);
            flag
        };
        let mut words = vec![
            subcommand.into(),
            flag("in", self.state.root()),
            flag("cache", self.places.base()),
        ];
        words.extend(self.places.given().map(|dir| flag("assets", dir)));
        words
    }
}

/// Whether what a step is for is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is: nothing to do.
    Done,
    /// It is not.
    ToDo,
}

/// One step.
#[async_trait]
pub trait Step: Send + Sync {
    /// Its name: a few words in the gerund, such as "starting the node".
    fn name(&self) -> &'static str;

    /// Looks, and changes nothing. A step that only checks does its work here.
    async fn look(&self, context: &Context) -> anyhow::Result<Found>;

    /// Makes it so. Must bear being run again after it was interrupted anywhere.
    async fn run(&self, context: &Context) -> anyhow::Result<()>;
}

/// The steps for `target` in order.
pub fn list(target: &Target) -> Vec<Box<dyn Step>> {
    match target {
        Target::Local | Target::Dev => {
            vec![
                Box::new(checks::Checks),
                Box::new(rights::Rights),
                Box::new(packages::Packages),
                Box::new(programs::Programs::cluster()),
                Box::new(node::Node),
                Box::new(compile::Compile),
                Box::new(images::Build),
                Box::new(images::Import),
                Box::new(localvirt::Localvirt),
                Box::new(server::Server),
                Box::new(catalog::Catalog),
            ]
        }
        Target::Existing { .. } => vec![
            Box::new(images::Pusher),
            Box::new(programs::Programs::client()),
            Box::new(answers::Answers),
            Box::new(answers::Allowed),
            Box::new(compile::Compile),
            Box::new(images::Build),
            Box::new(images::Push),
            Box::new(server::Server),
        ],
    }
}

/// Looks at each step and runs those that are not done; says what happens. Ends at the first failure, which names the
/// step.
pub async fn run(steps: &[Box<dyn Step>], context: &Context) -> anyhow::Result<()> {
    use anyhow::Context as _;
    for step in steps {
        let failed = || format!("{} failed", step.name());
        if step.look(context).await.with_context(failed)? == Found::Done {
            continue;
        }
        // Plain lines: a step may show progress of its own, and sudo may ask for a password.
        let begun = Instant::now();
        eprintln!("{} …", step.name());
        step.run(context).await.with_context(failed)?;
        eprintln!("{}: {}", step.name(), seconds(begun.elapsed()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted {
        runs: AtomicU32,
        fails: bool,
    }

    #[async_trait]
    impl Step for std::sync::Arc<Counted> {
        fn name(&self) -> &'static str {
            "counting"
        }
        async fn look(&self, _: &Context) -> anyhow::Result<Found> {
            Ok(if self.runs.load(Ordering::Relaxed) > 0 {
                Found::Done
            } else {
                Found::ToDo
            })
        }
        async fn run(&self, _: &Context) -> anyhow::Result<()> {
            anyhow::ensure!(!self.fails, "no more numbers");
            self.runs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn context() -> Context {
        Context {
            top: "/top".into(),
            state: State::at("/state"),
            places: Places::new(None, Some("/cache".into()), None).unwrap(),
            target: Target::Local,
            profile: Profile::Release,
        }
    }

    #[tokio::test]
    async fn a_second_run_changes_nothing() {
        let step = std::sync::Arc::new(Counted::default());
        let steps: Vec<Box<dyn Step>> = vec![Box::new(step.clone())];
        run(&steps, &context()).await.unwrap();
        run(&steps, &context()).await.unwrap();
        assert_eq!(step.runs.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_failure_names_the_step_and_ends_the_run() {
        let (bad, after) = (
            Counted {
                fails: true,
                ..Counted::default()
            },
            std::sync::Arc::new(Counted::default()),
        );
        let steps: Vec<Box<dyn Step>> =
            vec![Box::new(std::sync::Arc::new(bad)), Box::new(after.clone())];
        let error = format!("{:#}", run(&steps, &context()).await.unwrap_err());
        assert_eq!(error, "counting failed: no more numbers");
        assert_eq!(after.runs.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_machine_is_checked_before_it_is_changed() {
        let names: Vec<_> = list(&Target::Local).iter().map(|s| s.name()).collect();
        assert_eq!(names[0], "checking the machine");
    }

    #[test]
    fn an_existing_cluster_gets_no_node_and_its_own_kubeconfig_is_used() {
        let target = Target::Existing {
            kubeconfig: "/k".into(),
            push: "registry.example/team".into(),
        };
        let names = |target: &Target| list(target).iter().map(|s| s.name()).collect::<Vec<_>>();
        assert!(names(&Target::Local).contains(&"starting the node and the control plane"));
        assert!(!names(&target).contains(&"starting the node and the control plane"));
        assert_eq!(
            Context {
                target,
                ..context()
            }
            .kubeconfig(),
            PathBuf::from("/k")
        );
    }
}
