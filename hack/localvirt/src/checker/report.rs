//! The checker's verdict, as JSON.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Checker, Device, Mode, Tally, Violation};

impl Checker {
    /// The verdict on one namespace, or on all.
    pub fn report(&self, namespace: Option<&str>) -> Value {
        let state = self.0.lock();
        let wanted = |name: &str| namespace.is_none_or(|n| n == name);
        let sum = |mode| {
            let counted = state.namespaces.iter().filter(|(name, _)| wanted(name));
            counted
                .filter_map(|(_, n)| n.modes.get(&mode))
                .fold(Tally::default(), Tally::plus)
        };
        let live = |mode| {
            let open = state.open.iter();
            let open = open.filter(|(d, _)| d.mode == mode && wanted(&d.namespace));
            let accepted = open.flat_map(|(_, entries)| entries);
            accepted
                .filter(|e| e.accepted.load(Ordering::Relaxed))
                .count()
        };
        let modes = [Mode::Console, Mode::Vnc].map(|mode| (mode, sum(mode), live(mode)));
        let failed = modes.iter().any(|(_, tally, _)| tally.violations > 0);
        let recent = state.recent.iter().filter(|v| wanted(&v.device.namespace));
        json!({
            "kind": "CheckerReport",
            "apiVersion": "localvirt.kubeworkspaces.io/v1",
            "namespace": namespace,
            "verdict": if failed { "fail" } else { "pass" },
            "modes": modes.iter().map(|(mode, tally, live)| (mode.as_str().to_owned(), tally.report(*live)))
                .collect::<serde_json::Map<_, _>>(),
            "recent": recent.map(Violation::report).collect::<Vec<_>>(),
        })
    }
}

impl Tally {
    fn plus(self, other: &Self) -> Self {
        Self {
            attempts: self.attempts + other.attempts,
            accepted: self.accepted + other.accepted,
            ended: self.ended + other.ended,
            violations: self.violations + other.violations,
        }
    }

    fn report(self, live: usize) -> Value {
        let Self {
            attempts,
            accepted,
            ended,
            violations,
        } = self;
        json!({ "attempts": attempts, "accepted": accepted, "ended": ended, "live": live, "violations": violations })
    }
}

impl Violation {
    fn report(&self) -> Value {
        let Device {
            namespace,
            name,
            uid,
            mode,
        } = &self.device;
        json!({ "namespace": namespace, "name": name, "uid": uid, "mode": mode.as_str(), "at": self.at.to_string() })
    }
}
