//! The table.

use super::{
    Cell::{self, Answer, Ends, EndsUnheard, GoesOn, Never, Opens},
    Mode::{
        self, Console, PodPort, Port, Relayed, Scratch, Screenshot, Shell, Terminal, Tunnel, Vnc,
    },
    State,
};

const MACHINES: &[Mode] = &[Console, Vnc, Screenshot, Terminal, Tunnel, Port, Relayed];
const MACHINES_STREAMS: &[Mode] = &[Console, Vnc, Terminal, Tunnel, Port, Relayed];
const CONTAINERS: &[Mode] = &[Shell, Scratch, PodPort];
const SHELLS: &[Mode] = &[Shell, Scratch];
const PORTS: &[Mode] = &[Port, Relayed, PodPort];
/// Streams with one holder, and those that disturb nobody.
const HELD: &[Mode] = &[Console, Vnc, Terminal];
const SHARED: &[Mode] = &[Shell, Scratch, Tunnel, Port, Relayed, PodPort];
/// Where a person is expected.
const ATTENDED: &[Mode] = &[Console, Shell, Scratch, Vnc, Terminal];
const UNATTENDED: &[Mode] = &[Tunnel, Port, Relayed, PodPort];
const PICTURE: &[Mode] = &[Screenshot];

const ONE_ANSWER: Cell = Never("a picture is one answer: nothing of it stays open");

/// What some modes meet.
type Group = (&'static [Mode], Cell);

/// State by state: which modes meet what.
pub(super) const TABLE: &[(State, &[Group])] = &[
    (
        State::NotRunning,
        &[
            (MACHINES, Answer(400, Some(2), "not started yet")),
            (CONTAINERS, Answer(400, Some(2), "its pod is being created")),
        ],
    ),
    (
        State::Starting,
        &[
            (MACHINES, Answer(400, Some(2), "the machine is Scheduling")),
            (
                CONTAINERS,
                Answer(400, Some(2), "its pod is ImagePullBackOff"),
            ),
        ],
    ),
    (
        State::Stopping,
        &[
            (MACHINES, Answer(400, Some(2), "the machine is stopping")),
            (CONTAINERS, Answer(400, Some(2), "its pod is being created")),
        ],
    ),
    (
        State::Failed,
        &[
            (MACHINES, Answer(409, None, "the machine failed")),
            // Its workload replaces the pod.
            (CONTAINERS, Answer(400, Some(2), "its pod is Failed")),
        ],
    ),
    (
        State::Stopped,
        &[
            (MACHINES, Answer(409, None, "kubectl workspace start demo")),
            (
                CONTAINERS,
                Answer(409, None, "kubectl workspace start demo"),
            ),
        ],
    ),
    (
        State::Deleting,
        &[
            (MACHINES, Answer(409, None, "is being deleted")),
            (CONTAINERS, Answer(409, None, "is being deleted")),
        ],
    ),
    (
        State::Deleted,
        &[
            (MACHINES, Answer(404, None, "\"demo\" not found")),
            (CONTAINERS, Answer(404, None, "\"demo\" not found")),
        ],
    ),
    (
        State::Paused,
        &[
            (&[Console, Vnc, Screenshot], Opens),
            (
                &[Terminal, Tunnel, Port, Relayed],
                Answer(409, None, "virtctl unpause vm demo"),
            ),
            (CONTAINERS, Never("containers are not paused")),
        ],
    ),
    (
        State::NoDevice,
        &[
            (&[Console], Answer(409, None, "no serial console")),
            (&[Vnc, Screenshot], Answer(409, None, "no display")),
            (
                &[Terminal, Tunnel],
                Answer(503, Some(1), "nothing listens on that port"),
            ),
            (PORTS, Answer(403, None, "not declared by the workspace")),
            // An image without a shell, which its kubelet finds out after the upgrade.
            (SHELLS, Ends(1011, "executable file not found")),
        ],
    ),
    (
        State::OtherType,
        &[
            (
                &[Vnc, Screenshot, Terminal, Tunnel],
                Answer(400, None, "kubectl workspace console demo"),
            ),
            (
                &[Console],
                Never("`console` of a container is the mode Shell"),
            ),
            (SHELLS, Never("`console` of a machine is the mode Console")),
            (
                &[Port, Relayed],
                Never("ports of containers are the mode PodPort"),
            ),
            (&[PodPort], Never("ports of machines are the mode Port")),
        ],
    ),
    (
        State::UpstreamRefuses,
        &[
            (
                &[Console, Vnc, Screenshot],
                Answer(503, Some(1), "no handler"),
            ),
            (CONTAINERS, Answer(503, Some(1), "no handler")),
            (
                &[Terminal, Tunnel, Port, Relayed],
                Answer(503, Some(1), "connection refused"),
            ),
        ],
    ),
    (
        State::MayNotCreate,
        &[
            (
                MACHINES_STREAMS,
                Answer(403, None, "cannot create resource"),
            ),
            (CONTAINERS, Answer(403, None, "cannot create resource")),
            // Looking needs `get` alone.
            (PICTURE, Opens),
        ],
    ),
    (
        State::Held,
        &[
            (HELD, Answer(409, None, "held by user \"jane\"")),
            (SHARED, Opens),
            // Beside whoever holds the display.
            (PICTURE, Opens),
        ],
    ),
    (
        State::Draining,
        &[
            (
                MACHINES_STREAMS,
                Answer(503, Some(1), "another replica answers"),
            ),
            (CONTAINERS, Answer(503, Some(1), "another replica answers")),
            // Ordinary requests are answered to the last.
            (PICTURE, Opens),
        ],
    ),
    (
        State::UpstreamDies,
        &[
            (
                &[Console, Vnc, Terminal, Tunnel, Port],
                Ends(1011, "cut by the upstream"),
            ),
            (CONTAINERS, Ends(1011, "cut by the upstream")),
            // KubeVirt ends a forward in no other way when the guest ends it.
            (
                &[Relayed],
                Ends(1000, "the other side ended the connection"),
            ),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::UpstreamEnds,
        &[
            (&[Console, Vnc], Ends(1011, "cut by the upstream")),
            (SHELLS, Ends(1000, "exit status 7")),
            (&[Terminal], Ends(1000, "exit status 7")),
            (
                UNATTENDED,
                Ends(1000, "the other side ended the connection"),
            ),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::GuestGone,
        &[
            (MACHINES_STREAMS, Ends(4006, "the guest is gone")),
            (CONTAINERS, Ends(4006, "the pod is gone")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::Migrated,
        &[
            (MACHINES_STREAMS, Ends(4005, "moved to another node")),
            (
                CONTAINERS,
                Never("a pod does not move: it is replaced, which is GuestGone"),
            ),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::StoppedMeanwhile,
        &[
            (MACHINES_STREAMS, Ends(4003, "was stopped")),
            (CONTAINERS, Ends(4003, "was stopped")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::DeletedMeanwhile,
        &[
            (MACHINES_STREAMS, Ends(4004, "was deleted")),
            (CONTAINERS, Ends(4004, "was deleted")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::ClientDies,
        &[
            (MACHINES_STREAMS, EndsUnheard),
            (CONTAINERS, EndsUnheard),
            (PICTURE, EndsUnheard),
        ],
    ),
    (
        State::ClientCloses,
        &[
            (MACHINES_STREAMS, Ends(1000, "")),
            (CONTAINERS, Ends(1000, "")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::SlowClient,
        &[
            // The reason waits behind what was not read, and may be cut with it.
            (MACHINES_STREAMS, Ends(4008, "did not read")),
            (CONTAINERS, Ends(4008, "did not read")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::SlowGuest,
        &[
            (MACHINES_STREAMS, Ends(1011, "")),
            (CONTAINERS, Ends(1011, "")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::TakenOver,
        &[
            (HELD, Ends(1000, "taken over by another user")),
            (SHARED, GoesOn),
            (
                PICTURE,
                Never("a picture holds nothing that could be taken"),
            ),
        ],
    ),
    (
        State::Idle,
        &[
            (ATTENDED, Ends(4001, "idle for too long")),
            (UNATTENDED, GoesOn),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::Revoked,
        &[
            (MACHINES_STREAMS, Ends(4002, "was revoked")),
            (CONTAINERS, Ends(4002, "was revoked")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::Drain,
        &[
            (MACHINES_STREAMS, Ends(1001, "another replica answers")),
            (CONTAINERS, Ends(1001, "another replica answers")),
            (PICTURE, ONE_ANSWER),
        ],
    ),
    (
        State::EndedByAdmin,
        &[
            (MACHINES_STREAMS, Ends(4007, "by an administrator")),
            (CONTAINERS, Ends(4007, "by an administrator")),
            (PICTURE, Never("a picture has no session object")),
        ],
    ),
];
