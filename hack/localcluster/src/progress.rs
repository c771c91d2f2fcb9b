//! Showing that something long is going on: a spinner on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal: often enough that nobody thinks it hangs.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// One piece of long work. It writes to stderr, so that stdout stays for results.
#[derive(Debug)]
pub struct Progress {
    what: String,
    begun: Instant,
    output: Output,
}

#[derive(Debug)]
enum Output {
    Terminal(ProgressBar),
    Lines { next: Instant },
}

impl Progress {
    /// Says that `what` begins, such as "building kube-apiserver".
    pub fn begin(what: impl Into<String>) -> Self {
        let (what, begun) = (what.into(), Instant::now());
        let output = if io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner().with_message(what.clone());
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {msg} ({elapsed}) {prefix:.dim}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            Output::Terminal(bar)
        } else {
            eprintln!("{what} …");
            Output::Lines {
                next: begun + LINE_EVERY,
            }
        };
        Self {
            what,
            begun,
            output,
        }
    }

    /// Says how far it is.
    pub fn detail(&mut self, detail: &str) {
        match &mut self.output {
            Output::Terminal(bar) => bar.set_prefix(detail.to_owned()),
            Output::Lines { next } if Instant::now() >= *next => {
                eprintln!(
                    "{} … {} ({detail})",
                    self.what,
                    seconds(self.begun.elapsed())
                );
                *next = Instant::now() + LINE_EVERY;
            }
            Output::Lines { .. } => {}
        }
    }

    /// Says that it is done.
    pub fn done(self) {
        let line = format!("{}: {}", self.what, seconds(self.begun.elapsed()));
        match self.output {
            Output::Terminal(bar) => {
                bar.finish_and_clear();
                eprintln!("{line}");
            }
            Output::Lines { .. } => eprintln!("{line}"),
        }
    }
}

/// A duration for people: `0.4 s`, `12 s`, `3 min 5 s`.
pub fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..=9 => format!("{:.1} s", duration.as_secs_f64()),
        s @ 10..=59 => format!("{s} s"),
        s => format!("{} min {} s", s / 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_for_people() {
        for (millis, want) in [
            (0, "0.0 s"),
            (420, "0.4 s"),
            (12_900, "12 s"),
            (59_999, "59 s"),
            (185_000, "3 min 5 s"),
        ] {
            assert_eq!(seconds(Duration::from_millis(millis)), want);
        }
    }
}
