//! Faults on demand, for tests: localvirt's own, not KubeVirt's.
//!
//! An instance's annotation [`ANNOTATION`] says which of its streams fail, and how:
//! `console=die:1500ms,vnc=stall,portforward=refuse`. It holds for streams that are opened while it is there and, by
//! [`Faults::publish`], for those that are open already. Entry points: [`Plan`], [`Faults`].

use std::{collections::HashMap, str::FromStr, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::watch;

/// On a VirtualMachineInstance; on the template of its VirtualMachine it is there from the start.
pub const ANNOTATION: &str = "localvirt.kubeworkspaces.io/faults";

/// Which streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Serial consoles.
    Console,
    /// Displays.
    Vnc,
    /// Ports.
    PortForward,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// New streams are refused before the upgrade, in KubeVirt's words for a virt-handler that nobody answers for.
    Refuse,
    /// New streams get no answer at all, until the caller gives up.
    Hang,
    /// The connection is closed, without a Close frame: what a virt-handler that dies leaves.
    Die,
    /// The connection is reset.
    Reset,
    /// Nothing is read and nothing is written any more, pings included, until the plan changes.
    Stall,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What.
    pub fault: Fault,
    /// How long after the stream was opened, or the plan changed.
    pub after: Duration,
}

/// The faults of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    console: Option<Planned>,
    vnc: Option<Planned>,
    port_forward: Option<Planned>,
}

/// A plan that cannot be read. Streams are refused with it, since a test that misspells a fault must not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {ANNOTATION}: {0:?} is not of the form STREAM=FAULT[:TIME] with a stream of console, vnc, portforward, a fault of refuse, hang, die, reset, stall, and a time like 500ms or 2s"
)]
pub struct Unreadable(String);

impl Plan {
    /// The plan on an object; none without the annotation.
    ///
    /// # Errors
    /// When the annotation cannot be read.
    pub fn of(meta: &ObjectMeta) -> Result<Self, Unreadable> {
        let text = meta.annotations.as_ref().and_then(|a| a.get(ANNOTATION));
        text.map_or(Ok(Self::default()), |text| text.parse())
    }

    /// What happens to streams of this kind.
    pub fn on(&self, kind: StreamKind) -> Option<Planned> {
        match kind {
            StreamKind::Console => self.console,
            StreamKind::Vnc => self.vnc,
            StreamKind::PortForward => self.port_forward,
        }
    }
}

impl FromStr for Plan {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let mut plan = Self::default();
        for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            let unreadable = || Unreadable(item.to_owned());
            let (stream, planned) = item.split_once('=').ok_or_else(unreadable)?;
            let planned = Some(planned_of(planned).ok_or_else(unreadable)?);
            match stream {
                "console" => plan.console = planned,
                "vnc" => plan.vnc = planned,
                "portforward" => plan.port_forward = planned,
                _ => return Err(unreadable()),
            }
        }
        Ok(plan)
    }
}

fn planned_of(text: &str) -> Option<Planned> {
    let (fault, after) = text
        .split_once(':')
        .map_or((text, None), |(f, t)| (f, Some(t)));
    let fault = match fault {
        "refuse" => Fault::Refuse,
        "hang" => Fault::Hang,
        "die" => Fault::Die,
        "reset" => Fault::Reset,
        "stall" => Fault::Stall,
        _ => return None,
    };
    let after = after.map_or(Some(Duration::ZERO), duration)?;
    Some(Planned { fault, after })
}

/// `500ms` or `2s`.
fn duration(text: &str) -> Option<Duration> {
    if let Some(millis) = text.strip_suffix("ms") {
        return millis.parse().ok().map(Duration::from_millis);
    }
    text.strip_suffix('s')?
        .parse()
        .ok()
        .map(Duration::from_secs)
}

/// The plans of the instances that have open streams. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<HashMap<String, watch::Sender<Plan>>>>);

/// An open stream's view of its instance's plan.
#[derive(Debug)]
pub struct Subscription {
    faults: Faults,
    instance: String,
    plan: watch::Receiver<Plan>,
}

impl Faults {
    /// A stream of this instance is open; `plan` is what its object says now.
    pub fn subscribe(&self, instance_uid: &str, plan: Plan) -> Subscription {
        let mut plans = self.0.lock();
        let sender = plans
            .entry(instance_uid.to_owned())
            .or_insert_with(|| watch::Sender::new(plan));
        sender.send_if_modified(|old| std::mem::replace(old, plan) != plan);
        Subscription {
            faults: self.clone(),
            instance: instance_uid.to_owned(),
            plan: sender.subscribe(),
        }
    }

    /// The object of this instance says this now.
    pub fn publish(&self, instance_uid: &str, plan: Plan) {
        if let Some(sender) = self.0.lock().get(instance_uid) {
            sender.send_if_modified(|old| std::mem::replace(old, plan) != plan);
        }
    }
}

impl Subscription {
    /// What happens to a stream of this kind now.
    pub fn now(&mut self, kind: StreamKind) -> Option<Planned> {
        self.plan.borrow_and_update().on(kind)
    }

    /// Waits for another plan.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn changed(&mut self) {
        // The sender lives in the map as long as this does.
        let _ = self.plan.changed().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut plans = self.faults.0.lock();
        // This one is counted still.
        if plans
            .get(&self.instance)
            .is_some_and(|s| s.receiver_count() <= 1)
        {
            plans.remove(&self.instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_and_whatever_is_not_one_is_named() {
        let plan: Plan = "console=die:1500ms, vnc=stall,portforward=refuse:2s"
            .parse()
            .unwrap();
        let planned = |fault, millis| {
            Some(Planned {
                fault,
                after: Duration::from_millis(millis),
            })
        };
        assert_eq!(plan.on(StreamKind::Console), planned(Fault::Die, 1500));
        assert_eq!(plan.on(StreamKind::Vnc), planned(Fault::Stall, 0));
        assert_eq!(
            plan.on(StreamKind::PortForward),
            planned(Fault::Refuse, 2000)
        );
        assert_eq!("".parse(), Ok(Plan::default()));
        for bad in [
            "console",
            "console=burn",
            "ssh=die",
            "console=die:1",
            "console=die:xms",
        ] {
            let error = bad.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[tokio::test]
    async fn an_open_stream_hears_of_a_new_plan_and_only_its_own() {
        let faults = Faults::default();
        let mut mine = faults.subscribe("a", Plan::default());
        let mut other = faults.subscribe("b", Plan::default());
        faults.publish("a", "console=die".parse().unwrap());
        mine.changed().await;
        assert_eq!(mine.now(StreamKind::Console).unwrap().fault, Fault::Die);
        assert_eq!(other.now(StreamKind::Console), None);
    }

    #[test]
    fn nothing_is_kept_of_streams_that_have_ended() {
        let faults = Faults::default();
        let streams = [(); 3].map(|()| faults.subscribe("a", Plan::default()));
        faults.publish("b", "console=die".parse().unwrap());
        assert_eq!(faults.0.lock().len(), 1);
        drop(streams);
        assert!(faults.0.lock().is_empty());
    }
}
