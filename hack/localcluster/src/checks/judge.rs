//! What the facts mean: a sentence each, with what to do.

use super::{Cgroups, Disk, Facts, Netfilter, Privilege};
use crate::versions::GO;

const GIB: u64 = 1 << 30;
/// The control plane, the node and one guest; linking Kubernetes peaks at the same.
const MEMORY: u64 = 3 * GIB;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub what: &'static str,
    /// Whether it will do.
    pub verdict: Verdict,
    /// A sentence: what there is, and what to do if that is not enough.
    pub sentence: String,
}

/// Whether something will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will.
    Good,
    /// It could not be found out; what comes later will say.
    Unsure,
    /// It will not.
    Bad,
}

/// What the facts mean, in the order in which a reader would look for them.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let finding = |what, (verdict, sentence)| Finding {
        what,
        verdict,
        sentence,
    };
    vec![
        finding("architecture", architecture(facts)),
        finding("Rust", rust(facts)),
        finding("Go", go(facts)),
        finding("disk", disk(facts)),
        finding("memory", memory(facts)),
        finding("overlay", overlay(facts)),
        finding("br_netfilter", bridge_filter(facts)),
        finding("nf_tables", nf_tables(facts)),
        finding("cgroups", cgroups(facts)),
        finding("root", privilege(facts)),
    ]
}

type Judgement = (Verdict, String);

fn good(sentence: impl Into<String>) -> Judgement {
    (Verdict::Good, sentence.into())
}

fn bad(sentence: impl Into<String>) -> Judgement {
    (Verdict::Bad, sentence.into())
}

fn architecture(facts: &Facts) -> Judgement {
    match facts.architecture {
        "x86_64" => good("x86_64"),
        other => bad(format!(
            "{other} is not supported, for the images are made for x86_64: use such a machine."
        )),
    }
}

fn rust(facts: &Facts) -> Judgement {
    match &facts.rust {
        Some(version) => good(version),
        None => bad("rustc does not run: install Rust from https://rustup.rs."),
    }
}

fn go(facts: &Facts) -> Judgement {
    let (major, minor) = GO;
    let remedy = format!(
        "install Go {major}.{minor} or later from https://go.dev/dl and put its bin first on PATH."
    );
    match facts.go.as_deref() {
        _ if !facts.must_build => good("not needed: every program is there already"),
        None => bad(format!(
            "`go` does not run, and Kubernetes has to be built: {remedy}"
        )),
        Some(text) if go_version(text).is_some_and(|version| version >= GO) => good(text),
        Some(text) => bad(format!("{text} is too old for Kubernetes: {remedy}")),
    }
}

/// (major, minor) in `go version go1.26.8 linux/amd64`.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let version = text
        .split_ascii_whitespace()
        .find_map(|w| w.strip_prefix("go").filter(|v| v.contains('.')))?;
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn disk(facts: &Facts) -> Judgement {
    let sentence = |disk: &Disk| {
        let (free, need) = (disk.free / GIB, disk.need / GIB);
        format!("{free} GiB free at {}, {need} needed", disk.path.display())
    };
    let all =
        |disks: &mut dyn Iterator<Item = &Disk>| disks.map(sentence).collect::<Vec<_>>().join("; ");
    let mut short = facts.disks.iter().filter(|d| d.free < d.need).peekable();
    if short.peek().is_none() {
        return good(all(&mut facts.disks.iter()));
    }
    bad(format!(
        "{}: free some there, or point XDG_CACHE_HOME (programs) or CARGO_TARGET_DIR (what cargo builds) elsewhere.",
        all(&mut short)
    ))
}

fn memory(facts: &Facts) -> Judgement {
    let sentence = format!(
        "{} MiB available, {} needed",
        facts.memory >> 20,
        MEMORY >> 20
    );
    if facts.memory >= MEMORY {
        good(sentence)
    } else {
        bad(format!("{sentence}: end some programs."))
    }
}

fn overlay(facts: &Facts) -> Judgement {
    if facts.overlay {
        good("overlay filesystems can be mounted")
    } else {
        bad(
            "this kernel has no overlay filesystem: use one with CONFIG_OVERLAY_FS, as Debian's has.",
        )
    }
}

fn bridge_filter(facts: &Facts) -> Judgement {
    if facts.bridge_filter {
        good("bridged packets can be filtered")
    } else {
        bad(
            "this kernel has no br_netfilter: use one with CONFIG_BRIDGE_NETFILTER, as Debian's has.",
        )
    }
}

fn nf_tables(facts: &Facts) -> Judgement {
    match facts.nf_tables {
        Netfilter::Works => good("nftables work"),
        Netfilter::Unknown => {
            let sentence = "could not be tried yet: kube-proxy's log will say if they are missing";
            (Verdict::Unsure, sentence.to_owned())
        }
        Netfilter::Refused => {
            bad("this kernel refuses nftables: use one with CONFIG_NF_TABLES, as Debian's has.")
        }
    }
}

fn cgroups(facts: &Facts) -> Judgement {
    match facts.cgroups {
        Cgroups::V2 => good("version 2"),
        Cgroups::V1 => good("version 1"),
        Cgroups::Without(controller) => bad(format!(
            "there is no {controller} controller under /sys/fs/cgroup: mount the hierarchies as systemd does, \
             or boot with cgroup_enable={controller}."
        )),
    }
}

fn privilege(facts: &Facts) -> Judgement {
    match facts.privilege {
        Privilege::Root => good("this is root"),
        Privilege::Sudo => good("sudo will be asked for the node part"),
        Privilege::SudoWithoutTerminal => bad(
            "sudo asks for a password, and there is no terminal to ask on: run this in one, as root, or with a rule \
             (NOPASSWD) that lets this user through.",
        ),
        Privilege::None => {
            bad("the node part needs root, and there is no sudo: install it (`apt install sudo`).")
        }
        Privilege::ThroughSudo => bad(
            "this runs through sudo, and what it compiles would belong to root: run it as yourself, it calls sudo.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(path: &str, free: u64) -> Disk {
        Disk {
            path: path.into(),
            free: free * GIB,
            need: 15 * GIB,
        }
    }

    fn fine() -> Facts {
        Facts {
            architecture: "x86_64",
            rust: Some("rustc 1.95.0".into()),
            go: Some("go version go1.26.8 linux/amd64".into()),
            must_build: true,
            disks: vec![disk("/", 100)],
            memory: 8 * GIB,
            overlay: true,
            bridge_filter: true,
            nf_tables: Netfilter::Works,
            cgroups: Cgroups::V2,
            privilege: Privilege::Sudo,
        }
    }

    #[test]
    fn a_good_machine_has_nothing_to_complain_about() {
        assert!(judge(&fine()).iter().all(|f| f.verdict == Verdict::Good));
    }

    #[test]
    fn each_lack_is_named_with_a_remedy() {
        let cases = [
            (
                "architecture",
                Facts {
                    architecture: "aarch64",
                    ..fine()
                },
                "use such a machine",
            ),
            (
                "Rust",
                Facts {
                    rust: None,
                    ..fine()
                },
                "rustup.rs",
            ),
            ("Go", Facts { go: None, ..fine() }, "install Go 1.26"),
            (
                "Go",
                Facts {
                    go: Some("go version go1.19.8 linux/amd64".into()),
                    ..fine()
                },
                "too old",
            ),
            (
                "disk",
                Facts {
                    disks: vec![disk("/a", 99), disk("/b", 1)],
                    ..fine()
                },
                "1 GiB free at /b, 15 needed: free some",
            ),
            (
                "memory",
                Facts {
                    memory: GIB,
                    ..fine()
                },
                "end some programs",
            ),
            (
                "overlay",
                Facts {
                    overlay: false,
                    ..fine()
                },
                "CONFIG_OVERLAY_FS",
            ),
            (
                "br_netfilter",
                Facts {
                    bridge_filter: false,
                    ..fine()
                },
                "CONFIG_BRIDGE_NETFILTER",
            ),
            (
                "nf_tables",
                Facts {
                    nf_tables: Netfilter::Refused,
                    ..fine()
                },
                "CONFIG_NF_TABLES",
            ),
            (
                "cgroups",
                Facts {
                    cgroups: Cgroups::Without("memory"),
                    ..fine()
                },
                "cgroup_enable=memory",
            ),
            (
                "root",
                Facts {
                    privilege: Privilege::None,
                    ..fine()
                },
                "apt install sudo",
            ),
            (
                "root",
                Facts {
                    privilege: Privilege::SudoWithoutTerminal,
                    ..fine()
                },
                "NOPASSWD",
            ),
            (
                "root",
                Facts {
                    privilege: Privilege::ThroughSudo,
                    ..fine()
                },
                "as yourself",
            ),
        ];
        for (what, facts, want) in cases {
            let bad: Vec<_> = judge(&facts)
                .into_iter()
                .filter(|f| f.verdict == Verdict::Bad)
                .collect();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!(bad[0].what, what);
            assert!(bad[0].sentence.contains(want), "{}", bad[0].sentence);
        }
    }

    #[test]
    fn without_anything_to_build_no_go_is_needed() {
        let facts = Facts {
            go: None,
            must_build: false,
            ..fine()
        };
        assert!(judge(&facts).iter().all(|f| f.verdict == Verdict::Good));
    }

    #[test]
    fn versions_of_go_are_read() {
        for (text, want) in [
            ("go version go1.26.8 linux/amd64", Some((1, 26))),
            ("go version go1.27rc1 linux/amd64", Some((1, 27))),
            ("go version go2.0 linux/amd64", Some((2, 0))),
            ("go version devel", None),
        ] {
            assert_eq!(go_version(text), want, "{text}");
        }
    }
}
