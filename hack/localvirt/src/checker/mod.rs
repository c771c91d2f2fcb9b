//! Watches that no machine's console or display is ever held twice: localvirt's own, not KubeVirt's.
//!
//! The upstream is the one place that knows. KubeVirt lets the last caller win and cuts the one before, so a server that
//! promises one holder must never dial while a stream that it opened has not ended. Each such dial is a violation here,
//! whether or not localvirt cut the older stream at once. Entry point: [`Checker::attempt`], at every dial of a console
//! or display; a stream has ended when its client's Close frame or end of data has been read, before it is answered.

mod report;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

/// Violations that are kept to be shown; all are counted.
const RECENT: usize = 64;
/// Namespaces that are counted apart. The one that was quiet longest makes room for another.
const NAMESPACES: usize = 1_000;

/// What has one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The serial console.
    Console,
    /// The display.
    Vnc,
}

impl Mode {
    /// Its word in paths and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Vnc => "vnc",
        }
    }
}

/// One device of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Namespace of the instance.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a machine that was started again is another.
    pub uid: String,
    /// Which device.
    pub mode: Mode,
}

/// Counts dials, streams and violations. A clone is the same checker.
#[derive(Clone, Debug, Default)]
pub struct Checker(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    open: HashMap<Device, Vec<Arc<Entry>>>,
    namespaces: BTreeMap<String, Namespace>,
    recent: VecDeque<Violation>,
    turns: u64,
}

#[derive(Debug, Default)]
struct Namespace {
    modes: BTreeMap<Mode, Tally>,
    last_turn: u64,
}

/// What happened with one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Dials.
    pub attempts: u64,
    /// Dials that became streams.
    pub accepted: u64,
    /// Streams that have ended.
    pub ended: u64,
    /// Streams that were accepted while another had not ended.
    pub violations: u64,
}

/// One dial, and the stream that it became.
#[derive(Debug, Default)]
struct Entry {
    accepted: AtomicBool,
    /// Another was accepted while this one was being dialled.
    overlapped: AtomicBool,
    /// localvirt itself keeps it from ending.
    excused: AtomicBool,
}

#[derive(Clone, Debug)]
struct Violation {
    device: Device,
    at: Timestamp,
}

/// A dial whose answer is not known yet. Dropped, it was refused.
#[derive(Debug)]
pub struct Attempt {
    held: Vec<Arc<Entry>>,
    live: Live,
}

/// A stream. Dropped, it has ended.
#[derive(Debug)]
pub struct Live {
    checker: Checker,
    device: Device,
    entry: Arc<Entry>,
}

/// Excuses one stream.
#[derive(Clone, Debug)]
pub struct Excuse(Arc<Entry>);

impl Checker {
    /// Somebody dials this device.
    pub fn attempt(&self, device: Device) -> Attempt {
        let entry = Arc::new(Entry::default());
        let mut state = self.0.lock();
        state.tally(&device).attempts += 1;
        let open = state.open.entry(device.clone()).or_default();
        let held = open.clone();
        open.push(entry.clone());
        drop(state);
        let checker = self.clone();
        Attempt {
            held,
            live: Live {
                checker,
                device,
                entry,
            },
        }
    }

    /// What happened with one mode in one namespace.
    pub fn tally(&self, namespace: &str, mode: Mode) -> Tally {
        let state = self.0.lock();
        let modes = state.namespaces.get(namespace).map(|n| &n.modes);
        modes
            .and_then(|m| m.get(&mode))
            .copied()
            .unwrap_or_default()
    }

    /// Begins to count anew, in one namespace or in all. Streams that are open stay known.
    pub fn reset(&self, namespace: Option<&str>) {
        let mut state = self.0.lock();
        let wanted = |name: &str| namespace.is_none_or(|n| n == name);
        state.namespaces.retain(|name, _| !wanted(name));
        state.recent.retain(|v| !wanted(&v.device.namespace));
    }
}

impl State {
    fn tally(&mut self, device: &Device) -> &mut Tally {
        self.turns += 1;
        let turn = self.turns;
        if !self.namespaces.contains_key(&device.namespace) && self.namespaces.len() >= NAMESPACES {
            let quiet = self.namespaces.iter().min_by_key(|(_, n)| n.last_turn);
            if let Some(name) = quiet.map(|(name, _)| name.clone()) {
                self.namespaces.remove(&name);
            }
        }
        let namespace = self.namespaces.entry(device.namespace.clone()).or_default();
        namespace.last_turn = turn;
        namespace.modes.entry(device.mode).or_default()
    }
}

impl Attempt {
    /// The dial became a stream. `preserving` says that the upstream accepts only while nobody holds the device.
    pub fn accepted(self, preserving: bool) -> Live {
        let Self { held, live } = self;
        let mut state = live.checker.0.lock();
        let overlapped = live.entry.overlapped.load(Ordering::Relaxed);
        let violates = !preserving && (overlapped || held.iter().any(|e| e.counts()));
        live.entry.accepted.store(true, Ordering::Relaxed);
        for other in state.open.get(&live.device).into_iter().flatten() {
            if !other.accepted.load(Ordering::Relaxed) {
                other.overlapped.store(true, Ordering::Relaxed);
            }
        }
        let tally = state.tally(&live.device);
        tally.accepted += 1;
        if violates {
            tally.violations += 1;
            state.recent.push_back(Violation {
                device: live.device.clone(),
                at: Timestamp::now(),
            });
            if state.recent.len() > RECENT {
                state.recent.pop_front();
            }
        }
        drop(state);
        live
    }
}

impl Entry {
    fn counts(&self) -> bool {
        self.accepted.load(Ordering::Relaxed) && !self.excused.load(Ordering::Relaxed)
    }
}

impl Live {
    /// The excuse of this stream, to be used when the need arises.
    pub fn excuse(&self) -> Excuse {
        Excuse(self.entry.clone())
    }
}

impl Excuse {
    /// From now on nobody is blamed for the stream: localvirt keeps it open on purpose.
    pub fn apply(&self) {
        self.0.excused.store(true, Ordering::Relaxed);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut state = self.checker.0.lock();
        if let Some(open) = state.open.get_mut(&self.device) {
            open.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            if open.is_empty() {
                state.open.remove(&self.device);
            }
        }
        if self.entry.accepted.load(Ordering::Relaxed) {
            state.tally(&self.device).ended += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(uid: &str, mode: Mode) -> Device {
        Device {
            namespace: "ns".into(),
            name: "demo".into(),
            uid: uid.into(),
            mode,
        }
    }

    fn open(checker: &Checker, uid: &str) -> Live {
        checker.attempt(device(uid, Mode::Console)).accepted(false)
    }

    fn violations(checker: &Checker) -> u64 {
        checker.tally("ns", Mode::Console).violations
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let checker = Checker::default();
        for _ in 0..3 {
            drop(open(&checker, "a"));
        }
        let tally = checker.tally("ns", Mode::Console);
        assert_eq!((tally.accepted, tally.ended, tally.violations), (3, 3, 0));
        assert_eq!(checker.report(None)["verdict"], "pass");
    }

    #[test]
    fn a_second_holder_is_a_violation_even_if_the_first_was_cut_at_once() {
        let checker = Checker::default();
        let first = open(&checker, "a");
        let attempt = checker.attempt(device("a", Mode::Console));
        drop(first);
        let _second = attempt.accepted(false);
        assert_eq!(violations(&checker), 1);
        let report = checker.report(Some("ns"));
        assert_eq!(report["verdict"], "fail");
        assert_eq!(report["recent"][0]["uid"], "a");
        assert_eq!(checker.report(Some("other"))["verdict"], "pass");
    }

    #[test]
    fn of_two_dials_at_the_same_time_only_one_may_become_a_stream() {
        for first_wins in [true, false] {
            let checker = Checker::default();
            let one = checker.attempt(device("a", Mode::Console));
            let two = checker.attempt(device("a", Mode::Console));
            let (winner, loser) = if first_wins { (one, two) } else { (two, one) };
            drop(winner.accepted(false));
            let _loser = loser.accepted(false);
            assert_eq!(violations(&checker), 1, "first wins: {first_wins}");
        }
    }

    #[test]
    fn a_refused_dial_is_nobodys_stream() {
        let checker = Checker::default();
        let refused = checker.attempt(device("a", Mode::Console));
        let _live = open(&checker, "a");
        drop(refused);
        assert_eq!(violations(&checker), 0);
        let tally = checker.tally("ns", Mode::Console);
        assert_eq!((tally.attempts, tally.accepted), (2, 1));
    }

    #[test]
    fn machines_and_modes_are_apart() {
        let checker = Checker::default();
        let _one = open(&checker, "a");
        let _other = open(&checker, "b");
        let _display = checker.attempt(device("a", Mode::Vnc)).accepted(false);
        assert_eq!(violations(&checker), 0);
        assert_eq!(checker.report(None)["modes"]["console"]["live"], 2);
    }

    #[test]
    fn what_is_preserved_or_kept_open_by_us_blames_nobody() {
        let checker = Checker::default();
        let stalled = open(&checker, "a");
        stalled.excuse().apply();
        let _second = open(&checker, "a");
        let display = || checker.attempt(device("a", Mode::Vnc));
        let _held = display().accepted(true);
        let _preserved = display().accepted(true);
        assert_eq!(checker.report(None)["verdict"], "pass");
    }

    #[test]
    fn a_reset_forgets_counts_and_keeps_streams() {
        let checker = Checker::default();
        let first = open(&checker, "a");
        drop(open(&checker, "a"));
        checker.reset(Some("ns"));
        assert_eq!(checker.report(None)["verdict"], "pass");
        assert_eq!(checker.report(None)["modes"]["console"]["live"], 1);
        drop(open(&checker, "a"));
        assert_eq!(violations(&checker), 1, "the first is still there");
        drop(first);
    }

    #[test]
    fn namespaces_are_bounded() {
        let checker = Checker::default();
        for n in 0..NAMESPACES + 10 {
            let namespace = format!("ns-{n}");
            let device = Device {
                namespace,
                ..device("a", Mode::Console)
            };
            drop(checker.attempt(device));
        }
        assert!(checker.0.lock().namespaces.len() <= NAMESPACES);
        assert!(checker.0.lock().open.is_empty());
    }
}
