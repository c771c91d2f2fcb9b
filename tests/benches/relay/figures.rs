//! Figures, as a table for people and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Core-seconds per GiB and MiB per second of one direction: ours, and the peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Size of the messages.
    pub(crate) size: u32,
    /// From the client to the upstream.
    pub(crate) up: bool,
    /// Core-seconds per GiB.
    pub(crate) cost: (f64, f64),
    /// MiB per second.
    pub(crate) rate: (f64, f64),
}

/// Bytes per idle stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// How many there were.
    pub(crate) streams: usize,
    /// Ours.
    pub(crate) ours: f64,
    /// The peer's.
    pub(crate) theirs: f64,
}

/// What a relay adds to a keystroke: median and 99th percentile, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// Ours.
    pub(crate) ours: (f64, f64),
    /// The peer's.
    pub(crate) theirs: (f64, f64),
}

/// Medians of set-ups, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetUp {
    /// Inside the server.
    pub(crate) own: f64,
    /// As the client sees it.
    pub(crate) total: f64,
}

/// All that was measured.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Transfers.
    pub(crate) costs: Vec<Cost>,
    /// Memory.
    pub(crate) idle: Option<Idle>,
    /// Keystrokes.
    pub(crate) keys: Option<Keys>,
    /// Set-ups.
    pub(crate) set_up: Option<SetUp>,
}

impl Figures {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut rows = vec![["".into(), "server".into(), "peer".into(), "ratio".into()]];
        let mut row = |what: String, unit: &str, digits: usize, ours: f64, theirs: f64| {
            let number = |value: f64| format!("{value:.digits$} {unit}");
            let ratio = format!("{:.2}", ours / theirs);
            rows.push([what, number(ours), number(theirs), ratio]);
        };
        for Cost {
            size,
            up,
            cost,
            rate,
        } in &self.costs
        {
            let way = if *up { "to the guest" } else { "to the client" };
            let what = format!("{} messages {way}", human(*size));
            row(what.clone(), "core-s/GiB", 2, cost.0, cost.1);
            row(what, "MiB/s", 0, rate.0, rate.1);
        }
        for size in self.sizes() {
            let (ours, theirs) = self.both_ways(size);
            let what = format!("{} messages, both ways", human(size));
            row(what, "core-s/GiB", 2, ours, theirs);
        }
        if let Some(Idle {
            streams,
            ours,
            theirs,
        }) = self.idle
        {
            let what = format!("idle stream, of {streams}");
            row(what, "KiB", 1, ours / 1024.0, theirs / 1024.0);
        }
        if let Some(Keys { ours, theirs }) = self.keys {
            row(
                "keystroke, p50".into(),
                "ms",
                3,
                ours.0 * 1e3,
                theirs.0 * 1e3,
            );
            row(
                "keystroke, p99".into(),
                "ms",
                3,
                ours.1 * 1e3,
                theirs.1 * 1e3,
            );
        }
        if let Some(SetUp { own, total }) = self.set_up {
            let alone = |what: &str, value: f64| {
                [
                    what.to_owned(),
                    format!("{:.2} ms", value * 1e3),
                    String::new(),
                    String::new(),
                ]
            };
            rows.push(alone("set-up inside the server, p50 at most", own));
            rows.push(alone("set-up as the client sees it, p50", total));
        }
        align(&rows)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let (mut ratios, mut ours, mut peer) = (Map::new(), Map::new(), Map::new());
        let mut put = |name: String, us: f64, them: f64| {
            ratios.insert(name.clone(), json!(us / them));
            ours.insert(name.clone(), json!(us));
            peer.insert(name, json!(them));
        };
        for size in self.sizes() {
            let (us, them) = self.both_ways(size);
            put(format!("core_seconds_per_gib_{}", label(size)), us, them);
        }
        if let Some(idle) = self.idle {
            put("bytes_per_idle_stream".into(), idle.ours, idle.theirs);
        }
        if let Some(keys) = self.keys {
            put("keystroke_seconds_p50".into(), keys.ours.0, keys.theirs.0);
            put("keystroke_seconds_p99".into(), keys.ours.1, keys.theirs.1);
        }
        if let Some(set_up) = self.set_up {
            ours.insert("set_up_own_seconds_p50".into(), json!(set_up.own));
            ours.insert("set_up_total_seconds_p50".into(), json!(set_up.total));
        }
        json!({ "ratios": ratios, "server": ours, "peer": peer })
    }

    fn sizes(&self) -> Vec<u32> {
        self.costs
            .iter()
            .filter(|cost| cost.up)
            .map(|cost| cost.size)
            .collect()
    }

    /// The mean over both directions: as much passes each way.
    fn both_ways(&self, size: u32) -> (f64, f64) {
        let costs: Vec<_> = self.costs.iter().filter(|cost| cost.size == size).collect();
        let mean = |of: fn(&Cost) -> f64| {
            costs.iter().map(|cost| of(cost)).sum::<f64>() / costs.len() as f64
        };
        (mean(|cost| cost.cost.0), mean(|cost| cost.cost.1))
    }
}

/// `4k`, `256`.
fn label(size: u32) -> String {
    match size {
        size if size >= 1024 => format!("{}k", size / 1024),
        size => size.to_string(),
    }
}

fn human(size: u32) -> String {
    match size {
        size if size >= 1024 => format!("{} KiB", size / 1024),
        size => format!("{size} B"),
    }
}

/// Columns as wide as they must be; numbers to the right.
fn align(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for [what, ours, theirs, ratio] in rows {
        let [a, b, c, d] = widths;
        let _ = writeln!(text, "{what:<a$}  {ours:>b$}  {theirs:>c$}  {ratio:>d$}");
    }
    text
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The smallest value that is not below so large a part of all.
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}
