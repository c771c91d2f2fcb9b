//! A whole cluster of a test's own, made and ended by `hack/up` and `hack/down` with a state directory
//! of its own: for tests of those commands, which may kill what they like.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use localcluster::{
    assets::{Assets, Binary, Places},
    harness::{Cluster, STATE_VARIABLE, Snapshot},
    node::{footprint, packages::Packages},
    proc::Ledger,
    state::State,
};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::deployment::{binary, repository};

/// What runs in a node, by file name. Each once.
const PROGRAMS: [&str; 7] = [
    "containerd",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
];

/// A cluster that may or may not run.
#[derive(Debug)]
pub struct OwnCluster {
    dir: tempfile::TempDir,
    state: State,
    name: String,
}

/// A command of `hack/` that runs, with everything that it started and that is not meant to outlive it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl OwnCluster {
    /// One that does not run yet.
    ///
    /// # Errors
    /// When this user is neither root nor let through by sudo without a password.
    pub fn new() -> Result<Self> {
        let root = rustix::process::geteuid().is_root();
        ensure!(
            root || as_root("true", &[]).is_ok(),
            "this test makes whole clusters: it needs root, or sudo without a password"
        );
        let dir = tempfile::tempdir()?;
        for name in ["tmp", "log"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let state = State::at(dir.path().join("state"));
        let name = footprint::name(state.root());
        Ok(Self { dir, state, name })
    }

    /// Its state directory.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The machine as it is.
    ///
    /// # Errors
    /// When it does not say.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::take(self.state.root(), &self.name)?)
    }

    /// Fails unless the machine is as it was, without files of ours, and the cluster's directory gone.
    ///
    /// # Errors
    /// With everything that is otherwise.
    pub fn nothing_stays_behind(&self, before: &Snapshot) -> Result<()> {
        let limit = Duration::from_secs(15);
        let mut left = before.until_same(self.state.root(), &self.name, limit)?;
        left.extend(entries(&self.dir.path().join("tmp"))?);
        let state = self.state.root();
        left.extend(state.exists().then(|| state.display().to_string()));
        ensure!(left.is_empty(), "left behind:\n{}", left.join("\n"));
        Ok(())
    }

    /// Starts `hack/<name>`, in a process group of its own.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self, name: &str, args: &[&str]) -> Result<Running> {
        self.spawn(&repository().join("hack").join(name), args)
    }

    /// The same with any program, as root.
    ///
    /// # Errors
    /// When it does not start.
    pub fn spawn_as_root(&self, words: &[&str]) -> Result<Running> {
        let words = [through_sudo(), words].concat();
        self.spawn(Path::new(words[0]), &words[1..])
    }

    /// The same with any program.
    ///
    /// # Errors
    /// When it does not start.
    pub fn spawn(&self, program: &Path, args: &[&str]) -> Result<Running> {
        let count = fs::read_dir(self.dir.path().join("log"))?.count();
        let log = self.dir.path().join(format!("log/{count}"));
        let output = File::create(&log)?;
        let child = Command::new(program)
            .args(args)
            .env(STATE_VARIABLE, self.state.root())
            .env("TMPDIR", self.dir.path().join("tmp"))
            .current_dir(repository())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Running { child, log })
    }

    /// The command of the part of hack/up that runs as root: a node with a control plane, and nothing of
    /// ours in it.
    ///
    /// # Errors
    /// When programs cannot be had.
    pub fn bare(&self) -> Result<Vec<String>> {
        self.state.create()?;
        let places = Places::from_env()?;
        Assets::ensure(&Binary::CLUSTER, &places)?;
        Packages::in_cache(places.base()).node()?;
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        Ok(vec![
            binary("localcluster")?
                .canonicalize()?
                .display()
                .to_string(),
            "root-up".to_owned(),
            flag("in", self.state.root()),
            flag("cache", places.base()),
        ])
    }

    /// Runs `hack/<name>` to its success and gives what it wrote.
    ///
    /// # Errors
    /// With its output when it fails.
    pub fn run(&self, name: &str, args: &[&str]) -> Result<String> {
        self.start(name, args)?
            .end()
            .with_context(|| format!("hack/{name} {}", args.join(" ")))
    }

    /// What a cluster that is whole looks like: one process of each program, all records alive, the node
    /// ready, Deployments complete, APIs available, the catalog filled. To be compared.
    ///
    /// # Errors
    /// When kube-apiserver does not answer.
    pub async fn shape(&self) -> Result<Vec<String>> {
        let mut lines = self.programs()?;
        let cluster = Cluster::attach_to(self.state.clone()).await?;
        for question in [
            "nodes -o jsonpath={range.items[*]}{.metadata.name}{range.status.conditions[*]}{\"\\t\"}{.type}={.status}{end}{\"\\n\"}{end}",
            "deployments -A -o jsonpath={range.items[*]}{.metadata.name}{\"\\t\"}{.status.readyReplicas}{\"\\n\"}{end}",
            "apiservices -o jsonpath={range.items[*]}{.metadata.name}{\"\\t\"}{.status.conditions[0].status}{\"\\n\"}{end}",
            "namespaces -o name",
            "images -o name",
            "workspaces -A -o name",
        ] {
            let answer = cluster.kubectl(["get"].into_iter().chain(question.split(' ')));
            lines.extend(answer.await?.lines().map(str::to_owned));
        }
        Ok(lines)
    }

    /// The pid of the node's pid 1.
    ///
    /// # Errors
    /// When no node runs.
    pub fn pid_one(&self) -> Result<i32> {
        let inits = self.processes_where(|words| words.get(1) == Some(&"node-init"))?;
        inits.first().copied().context("no node runs")
    }

    fn programs(&self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for record in Ledger::in_dir(self.state.run()).all()? {
            let alive = record.is_alive();
            lines.push(format!("record {} alive={alive}", record.name));
        }
        lines.sort();
        for program in PROGRAMS {
            let count = self.processes_of(program)?.len();
            lines.push(format!("{count} process of {program}"));
        }
        Ok(lines)
    }

    /// The pids of a program of this cluster: what has its name, and our directory among its arguments.
    ///
    /// # Errors
    /// When the process table cannot be read.
    pub fn processes_of(&self, program: &str) -> Result<BTreeSet<i32>> {
        self.processes_where(|words| {
            words
                .first()
                .is_some_and(|w| Path::new(w).ends_with(program))
        })
    }

    fn processes_where(&self, wanted: impl Fn(&[&str]) -> bool) -> Result<BTreeSet<i32>> {
        let state = self.state.root().to_string_lossy().into_owned();
        let mut found = BTreeSet::new();
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&words);
            let words: Vec<&str> = text.split('\0').collect();
            let pid = path.file_name().and_then(|n| n.to_str()?.parse().ok());
            if let Some(pid) = pid
                && text.contains(&state)
                && wanted(&words)
            {
                found.insert(pid);
            }
        }
        Ok(found)
    }
}

impl Drop for OwnCluster {
    /// A test that failed leaves nothing behind either.
    fn drop(&mut self) {
        if self.state.root().exists()
            && let Err(error) = self.run("down", &[])
        {
            eprintln!("{error:#}");
        }
    }
}

impl Running {
    /// Waits for its success and gives what it wrote.
    ///
    /// # Errors
    /// With its output when it fails.
    pub fn end(mut self) -> Result<String> {
        let status = self.child.wait()?;
        let output = fs::read_to_string(&self.log)?;
        ensure!(status.success(), "{status}:\n{output}");
        Ok(output)
    }

    /// Kills it `after` that time, with its process group or alone; says whether it still ran.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill_after(mut self, after: Duration, whole_group: bool) -> Result<bool> {
        let deadline = std::time::Instant::now() + after;
        while std::time::Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = i32::try_from(self.child.id())?;
        let group = Pid::from_raw(pid).context("no process")?;
        if whole_group {
            kill_process_group(group, Signal::KILL)?;
        } else {
            self.child.kill()?;
        }
        self.child.wait()?;
        Ok(true)
    }
}

/// Runs a program as root: directly, or through sudo.
///
/// # Errors
/// With what it said when it fails.
pub fn as_root(program: &str, args: &[&str]) -> Result<String> {
    let words = [through_sudo(), &[program], args].concat();
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", words[0]))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {said}", words.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn through_sudo() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &[]
    } else {
        &["sudo", "-n", "--"]
    }
}

fn entries(dir: &Path) -> Result<Vec<String>> {
    let paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path().display().to_string()));
    paths.collect()
}
