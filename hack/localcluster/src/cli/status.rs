//! `status`: what runs, where its logs are, what to type next.

use std::process::ExitCode;

use localcluster::harness::{Cluster, administrator};
use localcluster::proc::{Ledger, Record};
use localcluster::state::State;
use localcluster::steps::existing::Existing;
use localcluster::steps::server;

use super::installed::{self, Line};
use super::up;

pub(crate) async fn run(state: &State) -> anyhow::Result<ExitCode> {
    if let Some(existing) = Existing::load(state)? {
        return elsewhere(&existing).await;
    }
    let records = Ledger::in_dir(state.run()).all()?;
    if records.is_empty() {
        println!("Nothing is up. Next:\n\n  hack/up");
        return Ok(ExitCode::FAILURE);
    }
    print!("{}", table(&records, Record::is_alive));
    println!("\n{:<26} {}", "audit log", state.audit_log().display());
    let cluster = match Cluster::attach_to(state.clone()).await {
        Ok(cluster) => cluster,
        Err(error) => {
            println!("\n{error}\nSee the logs above, then run hack/up again.");
            return Ok(ExitCode::FAILURE);
        }
    };
    let on_host = records.iter().any(|record| record.name == server::NAME);
    let lines = installed::lines(&cluster.client()?, on_host).await;
    let programs_run = records.iter().all(Record::is_alive);
    Ok(verdict(&lines, programs_run, up::next()))
}

/// A cluster that exists: nothing of it runs from here.
async fn elsewhere(existing: &Existing) -> anyhow::Result<ExitCode> {
    println!("{:<36} {}", "the cluster of", existing.kubeconfig.display());
    let client = administrator(&existing.kubeconfig).await?;
    let lines = installed::server_lines(&client).await;
    Ok(verdict(
        &lines,
        true,
        &up::next_existing(&existing.kubeconfig),
    ))
}

/// Prints the lines and what to do next.
fn verdict(lines: &[Line], programs_run: bool, next: &str) -> ExitCode {
    println!();
    for Line { what, how, .. } in lines {
        println!("{what:<36} {how}");
    }
    if programs_run && lines.iter().all(|line| line.good) {
        println!("\n{next}");
        return ExitCode::SUCCESS;
    }
    println!(
        "\nNot all of it is as it should be: see its log or its pods, then run hack/up again."
    );
    ExitCode::FAILURE
}

fn table(records: &[Record], alive: impl Fn(&Record) -> bool) -> String {
    let row = |r: &Record| {
        let what = if alive(r) {
            format!("pid {}", r.process.pid)
        } else {
            "ended".to_owned()
        };
        format!("{:<26} {what:<12} {}\n", r.name, r.log.display())
    };
    records.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_state_and_its_log() {
        let record: Record = serde_json::from_value(serde_json::json!({
            "name": "etcd", "process": {"pid": 7, "start": 1, "boot": "b"}, "log": "/s/log/etcd.log", "order": 0,
        }))
        .unwrap();
        let records = [record];
        assert_eq!(
            table(&records, |_| true),
            format!("{:<26} {:<12} /s/log/etcd.log\n", "etcd", "pid 7")
        );
        assert!(table(&records, |_| false).contains("ended"));
    }
}
