//! Processes of a benchmark: those that are measured, and the clients that make them work.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use kubeworkspaces_tests::deployment::binary;
use relay_ends::client::{Target, Work};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// Ticks of `/proc/PID/stat` in a second: the same on every Linux that we run on (proc(5), `USER_HZ`).
const TICKS: f64 = 100.0;
/// How long a process may be silent.
const PATIENCE: Duration = Duration::from_secs(300);

/// The processor time that a process has used, in seconds: `utime` and `stime` of proc(5).
///
/// # Errors
/// When there is no such process.
pub(crate) fn core_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} is gone"))?;
    // The name, in brackets, may hold anything.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let (user, system) = (ticks(), ticks());
    let both = user.zip(system).context("/proc/PID/stat is short")?;
    Ok((both.0 + both.1) / TICKS)
}

/// The memory of a process that is resident, in bytes.
///
/// # Errors
/// When there is no such process.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.context("no VmRSS in /proc/PID/status")?.parse()?;
    Ok(kib * 1024)
}

/// A process that we talk to by lines.
pub(crate) struct Talker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    what: String,
}

impl Talker {
    /// Starts it; it dies with this value.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(program: &Path, args: &[String], what: &str) -> Result<Self> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {} ({what})", program.display()))?;
        let output = child.stdout.take().context("no output")?;
        Ok(Self {
            child,
            lines: BufReader::new(output).lines(),
            what: what.to_owned(),
        })
    }

    /// A client of a relay, with its streams open.
    ///
    /// # Errors
    /// When they do not open.
    pub(crate) async fn client(target: &Target, work: Work) -> Result<Self> {
        let mut args = vec!["client".to_owned()];
        args.extend(target.args());
        args.extend(work.args());
        let what = format!("the client of port {} for {work:?}", target.port);
        let mut client = Self::start(&binary("relay-ends")?, &args, &what)?;
        let said = client.line().await?;
        anyhow::ensure!(said == "ready", "{what} says {said}");
        Ok(client)
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.child
            .id()
            .with_context(|| format!("{} has ended", self.what))
    }

    /// What it says next.
    ///
    /// # Errors
    /// When it ends, or says nothing for five minutes.
    pub(crate) async fn line(&mut self) -> Result<String> {
        match timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => bail!("{} ended without an answer", self.what),
            Err(_) => bail!("{} is silent for 5 minutes", self.what),
        }
    }

    /// Lets a client work, and gives what it reports.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) async fn work(&mut self) -> Result<Value> {
        let stdin = self.child.stdin.as_mut().context("no input")?;
        stdin.write_all(b"\n").await?;
        let line = self.line().await?;
        serde_json::from_str(&line).with_context(|| format!("{} says {line}", self.what))
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status})", self.what),
        }
    }

    /// Ends a client in order.
    ///
    /// # Errors
    /// When it fails on the way.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = timeout(PATIENCE, self.child.wait()).await??;
        anyhow::ensure!(status.success(), "{} failed ({status})", self.what);
        Ok(())
    }
}
