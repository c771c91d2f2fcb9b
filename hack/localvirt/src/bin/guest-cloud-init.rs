//! `guest-cloud-init`: applies NoCloud input in the tiny guest; see [`localvirt::guest`].
//!
//! The guest's `/etc/rc` runs it twice: `early` before the network and logins, `late` when sshd is up. What is done once
//! per instance is marked in `/var/lib/cloud` with the instance-id, so that a restored or copied disk does it again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use localvirt::guest::apply::{Guest, command};
use localvirt::guest::cloud_config::{CommandLine, parse};
use localvirt::guest::plan::Plan;
use localvirt::guest::user_data::UserData;
use serde::Deserialize;

/// Applies NoCloud input to this guest.
#[derive(Debug, Parser)]
struct Options {
    /// The part of the boot.
    stage: Stage,
    /// Where the NoCloud medium is mounted; when it is not there, the guest has no input.
    #[arg(long, default_value = "/run/cidata")]
    seed: PathBuf,
    /// Where the marks of what was done are kept.
    #[arg(long, default_value = "/var/lib/cloud")]
    state: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stage {
    /// bootcmd, host name, accounts, files.
    Early,
    /// runcmd and scripts.
    Late,
}

/// The part of `meta-data` that is used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MetaData {
    #[serde(default)]
    instance_id: String,
    local_hostname: Option<String>,
}

fn main() -> ExitCode {
    let Options { stage, seed, state } = Options::parse();
    let meta = read(&seed, "meta-data")
        .and_then(|text| serde_saphyr::from_str(&text).ok())
        .unwrap_or_default();
    let plan = plan(&seed);
    match stage {
        Stage::Early => early(&plan, &meta, &state),
        Stage::Late => late(&plan, &meta, &state),
    }
    ExitCode::SUCCESS
}

fn plan(seed: &Path) -> Plan {
    let Some(text) = read(seed, "user-data") else {
        return Plan::without_input();
    };
    let mut plan = match UserData::of(&text) {
        UserData::Empty => Plan::of(Default::default(), Vec::new()),
        UserData::CloudConfig(text) => {
            let parsed = parse(text);
            Plan::of(parsed.config, parsed.complaints)
        }
        UserData::Script(_) => {
            let script = seed.join("user-data").to_string_lossy().into_owned();
            Plan {
                last: vec![CommandLine::Shell(run_script(&script))],
                ..Plan::of(Default::default(), Vec::new())
            }
        }
        UserData::Unsupported(why) => Plan::of(Default::default(), vec![why.to_owned()]),
    };
    if read(seed, "network-config").is_some() {
        plan.complaints
            .push("network-config is not honoured: this guest takes DHCP on its first card".into());
    }
    plan
}

/// The medium is mounted without execute rights.
fn run_script(path: &str) -> String {
    format!(
        "cp '{path}' /var/lib/cloud/user-script && chmod 700 /var/lib/cloud/user-script && exec /var/lib/cloud/user-script"
    )
}

fn early(plan: &Plan, meta: &MetaData, state: &Path) {
    let guest = Guest { root: "/".into() };
    for complaint in &plan.complaints {
        say(complaint);
    }
    for line in &plan.boot {
        report("bootcmd", command(line));
    }
    if let Some(name) = plan.hostname.as_ref().or(meta.local_hostname.as_ref()) {
        report("hostname", guest.hostname(name));
    }
    if plan.ssh_passwords {
        report(
            "ssh_pwauth",
            fs::write("/run/ssh-passwords", "").map_err(Into::into),
        );
    }
    if first_time(state, "early", &meta.instance_id) {
        for step in &plan.first {
            report("first boot", guest.apply(step));
        }
    }
}

fn late(plan: &Plan, meta: &MetaData, state: &Path) {
    if first_time(state, "late", &meta.instance_id) {
        for line in &plan.last {
            report("runcmd", command(line));
        }
        say("finished");
    }
}

/// Whether `part` was not done for this instance yet; it is marked as done, so that a crash does not repeat it.
fn first_time(state: &Path, part: &str, instance: &str) -> bool {
    let mark = state.join(part);
    if fs::read_to_string(&mark).is_ok_and(|done| done == instance) {
        return false;
    }
    report(
        "marking the instance",
        fs::create_dir_all(state)
            .and_then(|()| fs::write(mark, instance))
            .map_err(Into::into),
    );
    true
}

fn read(seed: &Path, name: &str) -> Option<String> {
    fs::read(seed.join(name))
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn report(what: &str, result: Result<(), localvirt::guest::apply::StepError>) {
    if let Err(e) = result {
        say(&format!("{what}: {e}"));
    }
}

/// Standard error is the guest's console.
fn say(text: &str) {
    eprintln!("cloud-init: {text}");
}
