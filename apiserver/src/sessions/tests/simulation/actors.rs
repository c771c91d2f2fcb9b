//! Who lives in a run: replicas, the people at them, those who meddle, and chance.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{Storage as _, storage::WriteContext};
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    World,
    weather::{Dice, Far, FarLeases, Sky, Weather},
};
use crate::{
    sessions::{Held, Reach, SessionDeps, Sessions, record::tests::wish, replica::ReplicaId},
    streams::close::CloseReason,
};

/// One start of a server.
struct Process {
    sessions: Sessions,
    weather: Arc<Weather>,
    killed: CancellationToken,
}

/// A pod in which servers are started one after the other.
pub(super) struct Machine {
    name: String,
    dice: Dice,
    starts: Mutex<u64>,
    process: Mutex<Process>,
}

impl Machine {
    pub(super) fn new(world: &World, n: usize, dice: Dice) -> Arc<Self> {
        let name = format!("pod-{n}");
        let process = start(world, &name, 0, dice.fork());
        Arc::new(Self {
            name,
            dice,
            starts: Mutex::new(0),
            process: Mutex::new(process),
        })
    }

    pub(super) fn sessions(&self) -> Sessions {
        self.process.lock().sessions.clone()
    }

    fn set(&self, sky: Sky) {
        self.process.lock().weather.set(sky);
    }

    pub(super) fn heal(&self) {
        self.set(Sky::Fair);
        self.process.lock().weather.set_deaf(false);
    }

    /// SIGKILL; another server starts in its place, or another pod's.
    fn crash(&self, world: &World) {
        let mut starts = self.starts.lock();
        *starts += 1;
        let name = match self.dice.once_in(2) {
            true => self.name.clone(),
            false => format!("{}-moved-{starts}", self.name),
        };
        let mut process = self.process.lock();
        process.weather.set(Sky::Dead);
        process.killed.cancel();
        *process = start(world, &name, *starts, self.dice.fork());
        world.tally.lock().crashes += 1;
    }

    fn at_hand(&self) -> (Sessions, CancellationToken) {
        let process = self.process.lock();
        (process.sessions.clone(), process.killed.clone())
    }
}

fn start(world: &World, pod: &str, nonce: u64, dice: Dice) -> Process {
    let weather = Weather::new(dice);
    let deps = SessionDeps {
        storage: Arc::new(Far {
            storage: world.storage.clone(),
            weather: weather.clone(),
        }),
        leases: Arc::new(FarLeases {
            leases: world.leases.clone(),
            weather: weather.clone(),
        }),
        me: ReplicaId::new(pod, nonce.to_string()),
        timing: world.timing,
    };
    // A process that is killed does not stop: it just sends nothing any more.
    let sessions = Sessions::start(deps, &TaskTracker::new(), &CancellationToken::new());
    Process {
        sessions,
        weather,
        killed: CancellationToken::new(),
    }
}

/// Wants the line again and again, from whichever replica the Service leads to.
pub(super) async fn person(world: Arc<World>, machines: Vec<Arc<Machine>>, n: usize, dice: Dice) {
    let mut tries = 0;
    while !world.over() {
        tries += 1;
        let machine = &machines[dice.roll(machines.len() as u64) as usize];
        let (sessions, killed) = machine.at_hand();
        let wish = wish(&format!("user-{}", n % 3), &format!("p{n}-{tries}"));
        let claiming = async {
            match dice.roll(3) {
                0 => sessions.take_over(&wish, Reach::Own).await,
                1 => sessions.take_over(&wish, Reach::Anybodys).await,
                _ => sessions.claim(&wish).await,
            }
        };
        // Some lose patience, and some of their replicas die under them.
        let patience = Duration::from_millis(500) + dice.up_to(30_000);
        let claimed = tokio::select! {
            biased;
            () = killed.cancelled() => None,
            claimed = claiming => Some(claimed),
            () = sleep(patience) => None,
        };
        match claimed {
            Some(Ok(held)) => stream(&world, held, &killed, &wish.claim, &dice).await,
            Some(Err(error)) => {
                let code = error.reason.code().as_u16();
                assert!([409, 503].contains(&code) && !error.message.is_empty());
                world.tally.lock().refusals += 1;
            }
            None => {}
        }
        sleep(dice.up_to(2_000)).await;
    }
}

/// From the dial to the end, as a stream does it.
async fn stream(world: &World, mut held: Held, killed: &CancellationToken, who: &str, dice: &Dice) {
    let dialled = tokio::select! {
        biased;
        () = killed.cancelled() => return,
        _ = held.told() => false,
        () = sleep(dice.up_to(300)) => true,
    };
    if !dialled {
        return held.release().await;
    }
    let id = world.accept(who);
    let told = tokio::select! {
        biased;
        () = killed.cancelled() => None,
        reason = held.told() => Some(reason),
        () = sleep(dice.up_to(20_000)) => Some(CloseReason::ClientClosed),
    };
    match told {
        Some(CloseReason::TakenOver) => world.tally.lock().takeovers += 1,
        Some(CloseReason::ControlPlaneUnreachable) => world.tally.lock().fenced += 1,
        _ => {}
    }
    // The upstream is given 2 s to say goodbye; a process that is killed leaves at once.
    if told.is_some() {
        tokio::select! {
            biased;
            () = killed.cancelled() => {}
            () = sleep(dice.up_to(1_950)) => {}
        }
    }
    world.end(id);
    tokio::select! {
        biased;
        () = killed.cancelled() => {}
        () = held.release() => {}
    }
}

/// Deletes and labels the session, straight in the storage.
pub(super) async fn meddler(world: Arc<World>, dice: Dice) {
    let key = wish("", "").key();
    while !world.over() {
        sleep(dice.up_to(6_000)).await;
        let Ok(mut stored) = world.storage.get(&key).await else {
            continue;
        };
        match dice.once_in(3) {
            true => stored
                .object
                .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z"),
            false => {
                let label = serde_json::json!({"n": dice.roll(9).to_string()});
                stored.object.metadata_mut().insert("labels".into(), label);
            }
        }
        let context = WriteContext::default();
        let written = world
            .storage
            .update(&context, &key, &stored.object, stored.revision);
        let _ = written.await;
    }
}

/// Changes the weather.
pub(super) async fn chaos(world: Arc<World>, machines: Vec<Arc<Machine>>, dice: Dice) {
    while !world.over() {
        sleep(dice.up_to(8_000)).await;
        let machine = &machines[dice.roll(machines.len() as u64) as usize];
        match dice.roll(10) {
            0..4 => machine.set(Sky::Cut),
            4..7 => {
                machine.set(Sky::Rough);
                machine.process.lock().weather.set_deaf(false);
            }
            7 => machine.process.lock().weather.set_deaf(true),
            8 => machine.crash(&world),
            _ => {
                world.storage.break_watches();
                if dice.once_in(2) {
                    world.storage.compact();
                }
            }
        }
    }
}
