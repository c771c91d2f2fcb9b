//! Time and chance, given to decisions as values so that these stay pure.

use jiff::Timestamp;

/// Letters of generated names: no vowels, no look-alikes
/// (`k8s.io/apimachinery/pkg/util/rand/rand.go`).
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Where time, UIDs and random suffixes come from.
pub trait Environment: Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
    /// A new UID.
    fn uid(&self) -> String;
    /// Five random letters for a generated name.
    fn suffix(&self) -> String;
}

/// The real thing.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Environment for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    fn suffix(&self) -> String {
        let random = uuid::Uuid::new_v4();
        let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
        random.as_bytes().iter().take(5).map(letter).collect()
    }
}

/// RFC 3339 with whole seconds, as `metav1.Time` has it.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}
