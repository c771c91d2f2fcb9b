//! Which right is asked for next. Pure: time is an argument.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

/// When a right is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    /// Something has changed: it comes before those whose time has merely come.
    urgent: bool,
    /// When it is to be asked for once more because of that change.
    again: Option<Instant>,
}

/// Rights by the time at which they are due: the urgent ones first, but never two of them in a row
/// while another waits, so that who changes roles without end does not stop the checks of all others.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: HashMap<u64, Due>,
    urgent: BTreeSet<(Instant, u64)>,
    regular: BTreeSet<(Instant, u64)>,
    /// The last turn was an urgent one's.
    urgent_had_its_turn: bool,
}

impl Schedule {
    /// Puts a right in.
    pub(super) fn insert(&mut self, id: u64, at: Instant) {
        self.put(
            id,
            Due {
                at,
                urgent: false,
                again: None,
            },
        );
    }

    /// Takes a right out for good.
    pub(super) fn remove(&mut self, id: u64) {
        if let Some(due) = self.due.remove(&id) {
            self.queue(due.urgent).remove(&(due.at, id));
        }
    }

    /// Something that a right may depend on has changed.
    pub(super) fn hurry(&mut self, id: u64, first: Instant, again: Instant) {
        let Some(due) = self.due.get(&id).copied() else {
            return;
        };
        let at = if due.urgent { due.at.min(first) } else { first };
        self.put(
            id,
            Due {
                at,
                urgent: true,
                again: Some(again),
            },
        );
    }

    /// The right whose turn it is, which is put in for its next time; or when to look again.
    pub(super) fn take(&mut self, now: Instant, every: Duration) -> Result<u64, Option<Instant>> {
        let first = |queue: &BTreeSet<(Instant, u64)>| queue.first().copied();
        let (urgent, regular) = (first(&self.urgent), first(&self.regular));
        let ripe = |entry: Option<(Instant, u64)>| entry.filter(|(at, _)| *at <= now);
        let turn = match self.urgent_had_its_turn {
            true => ripe(regular).or_else(|| ripe(urgent)),
            false => ripe(urgent).or_else(|| ripe(regular)),
        };
        let Some((_, id)) = turn else {
            let soonest = urgent.into_iter().chain(regular).map(|(at, _)| at).min();
            return Err(soonest);
        };
        self.urgent_had_its_turn = self.due.get(&id).is_some_and(|due| due.urgent);
        let again = self.due.get(&id).and_then(|due| due.again);
        let next = match again.filter(|again| *again > now) {
            Some(again) => Due {
                at: again,
                urgent: true,
                again: None,
            },
            None => Due {
                at: now + every,
                urgent: false,
                again: None,
            },
        };
        self.put(id, next);
        Ok(id)
    }

    fn put(&mut self, id: u64, due: Due) {
        self.remove(id);
        self.queue(due.urgent).insert((due.at, id));
        self.due.insert(id, due);
    }

    fn queue(&mut self, urgent: bool) -> &mut BTreeSet<(Instant, u64)> {
        match urgent {
            true => &mut self.urgent,
            false => &mut self.regular,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(30);

    #[test]
    fn each_comes_in_its_time_and_again_after_it() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(schedule.take(start, EVERY), Err(None));
        schedule.insert(1, at(30));
        schedule.insert(2, at(10));
        assert_eq!(schedule.take(start, EVERY), Err(Some(at(10))));
        assert_eq!(schedule.take(at(31), EVERY), Ok(2));
        assert_eq!(schedule.take(at(31), EVERY), Ok(1));
        assert_eq!(schedule.take(at(31), EVERY), Err(Some(at(61))));
        schedule.remove(1);
        assert_eq!(schedule.take(at(61), EVERY), Ok(2));
        assert_eq!(schedule.take(at(61), EVERY), Err(Some(at(91))));
    }

    #[test]
    fn what_a_change_touches_comes_before_all_that_wait_and_twice() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for id in 0..100 {
            schedule.insert(id, at(0));
        }
        schedule.hurry(70, at(300), at(3_000));
        assert_eq!(schedule.take(at(200), EVERY), Ok(0), "not yet");
        assert_eq!(schedule.take(at(300), EVERY), Ok(70));
        assert_eq!(schedule.take(at(300), EVERY), Ok(1));
        assert_eq!(schedule.take(at(3_000), EVERY), Ok(70));
        assert_eq!(schedule.take(at(3_000), EVERY), Ok(2));
        assert_eq!(schedule.due[&70].at, at(33_000));
    }

    #[test]
    fn changes_without_end_do_not_stop_the_checks_of_others() {
        let mut schedule = Schedule::default();
        let now = Instant::now();
        for id in 0..4 {
            schedule.insert(id, now);
        }
        let mut turns = Vec::new();
        for _ in 0..4 {
            for id in [2, 3] {
                schedule.hurry(id, now, now);
            }
            turns.push(schedule.take(now, EVERY));
        }
        assert_eq!(turns, [Ok(2), Ok(0), Ok(2), Ok(1)]);
    }

    #[test]
    fn changes_without_end_do_not_put_a_check_off() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        schedule.insert(1, at(30_000));
        for n in 0..10 {
            schedule.hurry(1, at(n * 100 + 300), at(n * 100 + 3_000));
        }
        assert_eq!(schedule.take(at(300), EVERY), Ok(1));
        schedule.hurry(9, at(0), at(1));
        assert_eq!(schedule.take(at(1_000), EVERY), Err(Some(at(3_900))));
    }
}
