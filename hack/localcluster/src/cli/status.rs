//! `status`: what runs, where its logs are, what to type next.

use std::process::ExitCode;

use localcluster::harness::Cluster;
use localcluster::proc::{Ledger, Record};
use localcluster::state::State;
use localcluster::steps::server;

use super::installed::{self, Line};

pub(crate) async fn run(state: &State) -> anyhow::Result<ExitCode> {
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
    println!();
    for Line { what, how, .. } in &lines {
        println!("{what:<36} {how}");
    }
    let all_good = records.iter().all(Record::is_alive) && lines.iter().all(|line| line.good);
    if all_good {
        println!("\n{}", super::up::next());
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "\nNot all of it is as it should be: see its log or its pods, then run hack/up again."
    );
    Ok(ExitCode::FAILURE)
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
