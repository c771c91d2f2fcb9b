//! Where private keys may be, and how they leave no trace.
//!
//! A key is on the heap, in buffers that are wiped when they are dropped, or on the stack of code
//! that runs inside [`scrubbed`]. What the TLS and HTTP layers hold of a message before it reaches us
//! is wiped by the program's allocator (`main.rs`) when they free it.

use std::{hint::black_box, io};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// How deep a stack is overwritten: more than parsing a key or signing takes.
const DEPTH: usize = 256 * 1024;

/// Runs `work`, then overwrites the part of the stack that it may have used. A result that holds a
/// secret has to be behind a pointer.
pub(super) fn scrubbed<R>(work: impl FnOnce() -> R) -> R {
    let result = apart(work);
    overwrite();
    result
}

/// A frame of its own, below the caller's, so that [`overwrite`] covers it.
#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[inline(never)]
fn overwrite() {
    let mut stack = [0_u8; DEPTH];
    black_box(&mut stack);
}

/// Keeps keys out of core dumps, and other processes of the same user out of this one's memory.
///
/// # Errors
/// The kernel refused; the server must not take keys then.
pub fn forbid_dumps() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
