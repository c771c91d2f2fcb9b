//! One session per device, and the last one wins.
//!
//! A newcomer cuts the session before it and waits until that one has really let go of the device, so that no two ever
//! write to it, and the newcomer never reads the middle of the other's stream. Entry point: [`Slot`].

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The place of a device's one session.
#[derive(Clone, Debug, Default)]
pub struct Slot(Arc<Mutex<Option<Holder>>>);

#[derive(Clone, Debug)]
struct Holder {
    cut: CancellationToken,
    ended: CancellationToken,
}

/// The right to use the device, until it is dropped.
#[derive(Debug)]
pub struct Session {
    slot: Slot,
    holder: Holder,
}

/// Another session is live, and was to be preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied;

impl Slot {
    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Cuts the holder and takes its place.
    ///
    /// # Cancel safety
    /// Dropped while it waits, it has cut the holder and holds nothing.
    pub async fn take(&self) -> Session {
        loop {
            match self.try_take() {
                Ok(session) => return session,
                Err(holder) => {
                    holder.cut.cancel();
                    holder.ended.cancelled().await;
                }
            }
        }
    }

    /// Takes the place if it is free.
    pub fn take_free(&self) -> Result<Session, Occupied> {
        self.try_take().map_err(|_| Occupied)
    }

    fn try_take(&self) -> Result<Session, Holder> {
        let mut place = self.0.lock();
        if let Some(holder) = &*place {
            return Err(holder.clone());
        }
        let holder = Holder {
            cut: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        *place = Some(holder.clone());
        Ok(Session {
            slot: self.clone(),
            holder,
        })
    }
}

impl Session {
    /// Ends when a newcomer wants the device.
    pub async fn cut(&self) {
        self.holder.cut.cancelled().await;
    }

    /// Is cancelled when a newcomer wants the device.
    pub fn token(&self) -> CancellationToken {
        self.holder.cut.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.slot.0.lock().take();
        self.holder.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newcomer_gets_in_only_after_the_holder_has_let_go() {
        let slot = Slot::default();
        let first = slot.take().await;
        let newcomer = tokio::spawn({
            let slot = slot.clone();
            async move { slot.take().await }
        });
        first.cut().await;
        assert!(!newcomer.is_finished());
        drop(first);
        let second = newcomer.await.unwrap();
        assert!(slot.is_held());
        drop(second);
        assert!(!slot.is_held());
    }

    #[tokio::test]
    async fn a_preserved_session_is_not_cut() {
        let slot = Slot::default();
        let first = slot.take_free().unwrap();
        assert_eq!(slot.take_free().err(), Some(Occupied));
        let cut = tokio::time::timeout(std::time::Duration::from_millis(20), first.cut()).await;
        assert!(cut.is_err());
    }

    #[tokio::test]
    async fn of_many_newcomers_all_get_their_turn_once() {
        let slot = Slot::default();
        let turns = (0..20).map(|_| {
            let slot = slot.clone();
            tokio::spawn(async move { drop(slot.take().await) })
        });
        futures::future::join_all(turns)
            .await
            .into_iter()
            .for_each(|turn| turn.unwrap());
        assert!(!slot.is_held());
    }
}
