//! A cluster that is killed at any moment, and a machine that restarts: the next `hack/up` reaches the
//! same state, and `hack/down` leaves nothing.

use std::{
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use kubeworkspaces_tests::own_cluster::{OwnCluster, as_root};
use serde_json::{Value, json};

/// How many moments of the root part are tried; each takes some 15 s.
const ROOT_ROUNDS: u32 = 8;
/// How many moments of the whole hack/up.
const ROUNDS: u32 = 3;

/// A process of somebody else, whose pid stale records name.
struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        // It has ended only if something killed it, which the test says by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn hack_up_killed_or_rebooted_is_followed_by_the_same_state_and_leaves_nothing() -> Result<()>
{
    let cluster = OwnCluster::new()?;
    let before = cluster.snapshot()?;
    let begun = Instant::now();
    cluster.run("up", &[])?;
    let whole = begun.elapsed();
    let shape = cluster.shape().await?;
    let begun = Instant::now();
    cluster.run("up", &[])?;
    println!("hack/up: {whole:?}, again: {:?}", begun.elapsed());
    assert_eq!(cluster.shape().await?, shape);

    for round in 0..ROUNDS {
        cluster.run("down", &[])?;
        cluster.nothing_stays_behind(&before)?;
        let moment = moment(whole, round, ROUNDS);
        println!("killing hack/up after {moment:?}");
        let killed = cluster
            .start("up", &[])?
            .kill_after(moment, round % 2 == 0)?;
        ensure!(killed, "hack/up was quicker than {moment:?}");
        cluster.run("up", &[])?;
        assert_eq!(cluster.shape().await?, shape, "after a kill at {moment:?}");
    }

    let mut bystander = Bystander(Command::new("sleep").arg("3600").spawn()?);
    for same_boot in [false, true] {
        reboot(&cluster, bystander.0.id(), same_boot)?;
        cluster.run("up", &[])?;
        assert_eq!(cluster.shape().await?, shape, "after a reboot, {same_boot}");
        ensure!(
            bystander.0.try_wait()?.is_none(),
            "somebody else's process was killed"
        );
    }
    cluster.run("down", &[])?;
    cluster.nothing_stays_behind(&before)
}

#[test]
fn the_part_that_runs_as_root_may_be_killed_at_any_moment() -> Result<()> {
    let cluster = OwnCluster::new()?;
    let before = cluster.snapshot()?;
    let words = cluster.bare()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let start = || cluster.spawn_as_root(&words);
    let begun = Instant::now();
    start()?.end()?;
    let whole = begun.elapsed();
    for round in 0..ROOT_ROUNDS {
        as_root("kill", &["-KILL", &cluster.pid_one()?.to_string()])?;
        let moment = moment(whole, round, ROOT_ROUNDS);
        println!("killing the root part after {moment:?} of {whole:?}");
        start()?.kill_after(moment, true)?;
        start()?
            .end()
            .with_context(|| format!("after a kill at {moment:?}"))?;
        for program in [
            "etcd",
            "kube-apiserver",
            "containerd",
            "kubelet",
            "kube-proxy",
        ] {
            let processes = cluster.processes_of(program)?;
            ensure!(
                processes.len() == 1,
                "{program} after {moment:?}: {processes:?}"
            );
        }
    }
    cluster.run("down", &[])?;
    cluster.nothing_stays_behind(&before)
}

/// A moment at random in the `round`th of `rounds` parts of a time.
fn moment(whole: Duration, round: u32, rounds: u32) -> Duration {
    let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    whole.mul_f64((f64::from(round) + random) / f64::from(rounds))
}

/// What a restart of the machine leaves: no process, no control group, the directory as it was. Its
/// records name pids that somebody else has now; with `same_boot` only the pid has changed hands.
fn reboot(cluster: &OwnCluster, pid: u32, same_boot: bool) -> Result<()> {
    let state = cluster.state();
    as_root("kill", &["-KILL", &cluster.pid_one()?.to_string()])?;
    let footprint = state.node().join("footprint.json");
    let value: Value = serde_json::from_slice(&std::fs::read(&footprint)?)?;
    let groups = value["cgroups"]["dirs"]
        .as_array()
        .context("no control groups")?;
    for group in groups.iter().filter_map(Value::as_str) {
        // Depth first; busy for a moment, until the kernel has taken the last process out.
        let find = [
            "60",
            "sh",
            "-c",
            "until find \"$1\" -depth -type d -delete 2>/dev/null || [ ! -d \"$1\" ]; do sleep 0.1; done",
            "sh",
            group,
        ];
        as_root("timeout", &find)?;
    }
    let boot = if same_boot {
        None
    } else {
        Some(json!("another boot\n"))
    };
    for entry in std::fs::read_dir(state.run())? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") {
            edit(&path, |record| {
                record["process"]["pid"] = json!(pid);
                if boot.is_some() {
                    record["process"]["boot"] = json!("another boot");
                }
            })?;
        }
    }
    if let Some(boot) = boot {
        let text = {
            let mut value = value;
            value["boot"] = boot;
            value.to_string()
        };
        // Root's file in root's directory.
        let write = [
            "-c",
            "printf %s \"$1\" > \"$2\"",
            "sh",
            &text,
            &footprint.to_string_lossy(),
        ];
        as_root("sh", &write)?;
    }
    Ok(())
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) -> Result<()> {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    change(&mut value);
    std::fs::write(path, value.to_string())?;
    Ok(())
}
