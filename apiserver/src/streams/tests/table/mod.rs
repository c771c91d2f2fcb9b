//! Every way into a workspace in every state: what is answered or how it ends, in which words, and that
//! nothing is left of it. [`rows`] is the table; [`before`] and [`after`] make it happen.

mod after;
mod before;
mod guest;
mod rows;

use std::time::Duration;

use futures::StreamExt as _;

use self::rows::TABLE;

/// An enum that knows all of its variants.
macro_rules! listed {
    ($(#[$about:meta])* enum $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

listed! {
    /// The ways into workspaces.
    enum Mode {
        /// A machine's serial line.
        Console,
        /// `console` of a container.
        Shell,
        /// `console` of a scratch workspace.
        Scratch,
        /// A machine's display.
        Vnc,
        /// A picture of it.
        Screenshot,
        /// `ssh` whose client is the server.
        Terminal,
        /// `ssh` of a native client.
        Tunnel,
        /// A machine's port over the pod network.
        Port,
        /// The same by KubeVirt's portforward.
        Relayed,
        /// A container's port, by its kubelet.
        PodPort,
    }
}

impl Mode {
    /// The type of its workspace.
    fn kind(self) -> &'static str {
        match self {
            Self::Shell | Self::PodPort => "container",
            Self::Scratch => "scratch",
            _ => "vm",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Console | Self::Shell | Self::Scratch => "demo/console",
            Self::Vnc => "demo/vnc",
            Self::Screenshot => "demo/screenshot",
            Self::Terminal => "demo/ssh?cols=100&rows=30",
            Self::Tunnel => "demo/ssh?mode=tunnel",
            Self::Port | Self::Relayed | Self::PodPort => "demo/portforward/8080",
        }
    }

    /// The name of its claim, if it has one holder.
    fn claim(self) -> Option<&'static str> {
        match self {
            Self::Console => Some("console"),
            Self::Vnc => Some("vnc"),
            Self::Terminal => Some("ssh"),
            _ => None,
        }
    }
}

listed! {
    /// What a caller, or an open stream, may meet.
    enum State {
        // Before the upgrade.
        /// No instance, no pod.
        NotRunning,
        /// It is on its way.
        Starting,
        /// It is on its way out.
        Stopping,
        /// It ended by itself.
        Failed,
        /// Somebody stopped it.
        Stopped,
        /// It is being deleted.
        Deleting,
        /// There is no such workspace.
        Deleted,
        /// Its processors stand still.
        Paused,
        /// The guest has not what is asked for.
        NoDevice,
        /// The workspace is of a type that has no such thing.
        OtherType,
        /// KubeVirt, the kubelet or the guest says no.
        UpstreamRefuses,
        /// The caller has `get` alone.
        MayNotCreate,
        /// Another user is there already.
        Held,
        /// The server is being stopped.
        Draining,
        // After it.
        /// The upstream's connection breaks.
        UpstreamDies,
        /// The upstream ends in order.
        UpstreamEnds,
        /// The guest or the pod is gone.
        GuestGone,
        /// The machine moves.
        Migrated,
        /// The workspace is stopped.
        StoppedMeanwhile,
        /// The workspace is deleted.
        DeletedMeanwhile,
        /// The client's connection breaks.
        ClientDies,
        /// The client says goodbye.
        ClientCloses,
        /// The client reads nothing.
        SlowClient,
        /// The guest reads nothing.
        SlowGuest,
        /// Another user wants it.
        TakenOver,
        /// Nothing passes.
        Idle,
        /// A right is taken away.
        Revoked,
        /// The server is stopped.
        Drain,
        /// The session object is deleted.
        EndedByAdmin,
    }
}

impl State {
    fn is_before(self) -> bool {
        (self as u8) < (Self::UpstreamDies as u8)
    }
}

/// What has to come of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// This code before the upgrade, with `Retry-After`, and these words in the message.
    Answer(u16, Option<u64>, &'static str),
    /// A stream, or a picture.
    Opens,
    /// This close code, and these words in the reason.
    Ends(u16, &'static str),
    /// The end of the guest's side; nobody is left to be told.
    EndsUnheard,
    /// The stream goes on as if nothing were.
    GoesOn,
    /// There is no such case: why.
    Never(&'static str),
}

/// How long a cell may take.
const LIMIT: Duration = Duration::from_secs(40);

/// What the table says.
fn cells(mode: Mode, state: State) -> Vec<Cell> {
    let rows = TABLE.iter().filter(|(of, _)| *of == state);
    let groups = rows.flat_map(|(_, groups)| groups.iter());
    let groups = groups.filter(|(modes, _)| modes.contains(&mode));
    groups.map(|(_, cell)| *cell).collect()
}

/// Runs these states' cells, a few at a time, each on a task of its own, and names all that failed.
async fn hold(states: impl Fn(State) -> bool, at_once: usize) {
    let states = State::ALL.iter().filter(|state| states(**state));
    let all = states.flat_map(|state| Mode::ALL.iter().map(move |mode| (*mode, *state)));
    let runs = all.map(|(mode, state)| async move {
        let cell = cells(mode, state)[0];
        let run = tokio::spawn(async move {
            match (cell, state.is_before()) {
                (Cell::Never(_), _) => {}
                (cell, true) => before::check(mode, state, cell).await,
                (cell, false) => after::check(mode, state, cell).await,
            }
        });
        let ran = tokio::time::timeout(LIMIT, run).await;
        let ran = ran
            .map_err(|_| "hangs")
            .and_then(|ran| ran.map_err(|_| "fails"));
        ran.err().map(|how| format!("{mode:?} {state:?} {how}"))
    });
    let failed: Vec<_> = futures::stream::iter(runs)
        .buffer_unordered(at_once)
        .filter_map(futures::future::ready)
        .collect()
        .await;
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_cell_is_there_once() {
    for mode in Mode::ALL {
        for state in State::ALL {
            let found = cells(*mode, *state);
            assert_eq!(found.len(), 1, "{mode:?} {state:?}: {found:?}");
            if let Cell::Never(why) = found[0] {
                assert!(why.len() > 15, "{mode:?} {state:?} says why");
            }
        }
    }
}

#[tokio::test]
async fn s_09_before_the_upgrade_every_state_has_its_status() {
    hold(State::is_before, 16).await;
}

/// Ends that come by themselves after a time, which must not pass for another reason.
const TIMED: [State; 3] = [State::Idle, State::SlowClient, State::SlowGuest];

#[tokio::test]
async fn s_10_after_the_upgrade_every_end_has_its_code_and_reason() {
    let wanted =
        |state: State| !state.is_before() && state != State::ClientDies && !TIMED.contains(&state);
    hold(wanted, 8).await;
}

#[tokio::test]
async fn streams_that_nobody_uses_or_reads_end_as_what_they_are() {
    hold(|state| TIMED.contains(&state), 4).await;
}

#[tokio::test]
async fn s_04_a_client_that_dies_leaves_nothing() {
    hold(|state| state == State::ClientDies, 8).await;
}
