//! Whether one more stream may be opened, asked after authorization and before anything is looked up.
//!
//! A [`Gate`] decides by who asks and for what; the [`Permit`] that it gives is kept until the stream
//! has ended, so that what it counts is counted exactly as long as the stream lives.

use std::{any::Any, sync::Arc};

use apiserver_generic::{ApiError, UserInfo};

/// A stream that somebody wants to open.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Who.
    pub user: &'a UserInfo,
    /// Namespace of the workspace.
    pub namespace: &'a str,
    /// Its name, which may not exist.
    pub workspace: &'a str,
}

/// One limit.
pub trait Gate: Send + Sync + 'static {
    /// Lets a stream in.
    ///
    /// # Errors
    /// 429 or 503 with `Retry-After`.
    fn admit(&self, asking: &Asking<'_>) -> Result<Permit, ApiError>;
}

/// Room for one stream; dropping it gives the room back.
#[derive(Debug, Default)]
pub struct Permit(Vec<Box<dyn Any + Send + Sync>>);

impl Permit {
    /// Holds this as long as the stream lives.
    pub fn holding(guard: impl Any + Send + Sync) -> Self {
        Self(vec![Box::new(guard)])
    }

    pub(super) fn join(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// All limits of a server, asked in their order. Clones are the same.
#[derive(Clone, Default)]
pub struct Gates(Vec<Arc<dyn Gate>>);

impl Gates {
    /// Adds a limit.
    #[must_use]
    pub fn with(mut self, gate: Arc<dyn Gate>) -> Self {
        self.0.push(gate);
        self
    }

    /// Lets a stream in if every gate does; what earlier gates gave is given back otherwise.
    ///
    /// # Errors
    /// The first refusal.
    pub fn admit(&self, asking: &Asking<'_>) -> Result<Permit, ApiError> {
        let mut permit = Permit::default();
        for gate in &self.0 {
            permit = permit.join(gate.admit(asking)?);
        }
        Ok(permit)
    }
}

#[cfg(test)]
mod tests {
    use apiserver_generic::Reason;
    use tokio::sync::Semaphore;

    use super::*;

    struct Room(Arc<Semaphore>);

    impl Gate for Room {
        fn admit(&self, _: &Asking<'_>) -> Result<Permit, ApiError> {
            let room = self.0.clone().try_acquire_owned();
            room.map(Permit::holding)
                .map_err(|_| ApiError::new(Reason::TooManyRequests, "full"))
        }
    }

    #[test]
    fn a_refusal_gives_back_what_earlier_gates_gave() {
        let rooms = [2, 1].map(|size| Arc::new(Semaphore::new(size)));
        let gates = rooms.iter().fold(Gates::default(), |gates, room| {
            gates.with(Arc::new(Room(room.clone())))
        });
        let asking = Asking {
            user: &UserInfo::default(),
            namespace: "t1",
            workspace: "demo",
        };
        let first = gates.admit(&asking).unwrap();
        assert!(gates.admit(&asking).is_err());
        assert_eq!(rooms[0].available_permits(), 1, "only the first is out");
        drop(first);
        assert_eq!([2, 1], [0, 1].map(|i| rooms[i].available_permits()));
    }
}
