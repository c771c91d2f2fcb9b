//! Machines without a guest, for load and for tests without a kubelet: localvirt's own, not KubeVirt's.
//!
//! A machine whose containerDisk is [`IMAGE`] (its tag is the [`Script`]) has no QEMU and no running container. Its
//! launcher Pod is an object that no scheduler and no kubelet looks at, whose status localvirt writes and says so; its
//! console, display and ports are played inside localvirt by the script. Everything else is as for a real machine: the
//! owners, the labels, `activePods`, the phases, one session with last wins, take-over, pause. So thousands of them are
//! cheap, and all that is checked on the way to a console still holds.
//!
//! With `--without-kubelet` every machine is like that, whatever its image. Entry points: [`Script::of`] (is this
//! instance guestless?), [`Guestless`] (what plays), [`pod`] (its Pod).

mod board;
mod display;
mod held;
mod picture;
mod play;
pub mod pod;

pub use board::Guestless;

use crate::api::{Instance, Machine};

/// The containerDisk of a guestless machine, without its tag. There is no such image, and none is pulled.
pub const IMAGE: &str = "kubeworkspaces.io/guestless";
/// On an instance: what plays its guest. The machine controller writes it for [`IMAGE`].
pub const ANNOTATION: &str = "localvirt.kubeworkspaces.io/guestless";
/// Two nodes that no cluster has: what `status.nodeName` says, and what a migration changes.
pub const NODES: [&str; 2] = ["localvirt-guestless-1", "localvirt-guestless-2"];
/// What the Pod's addresses are unless told otherwise: TEST-NET-1 (RFC 5737), where nobody answers. Ports of a
/// guestless machine answer through `portforward` only.
pub const ADDRESS: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// What a guestless machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Greets with a line, then sends back what it gets. The display is a picture that every key changes.
    Echo,
    /// Sends numbered lines without an end, and takes what it gets. The display changes all the time.
    Flood,
    /// Takes what it gets and never says a word.
    Silent,
}

impl Script {
    /// The script that an instance's annotation names; `None` for a machine with a real guest.
    pub fn of(instance: &Instance) -> Option<Self> {
        let annotations = instance.meta.annotations.as_ref()?;
        Self::named(annotations.get(ANNOTATION)?)
    }

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Flood => "flood",
            Self::Silent => "silent",
        }
    }

    fn named(word: &str) -> Option<Self> {
        [Self::Echo, Self::Flood, Self::Silent]
            .into_iter()
            .find(|s| s.as_str() == word)
    }
}

/// Which machines are guestless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Those that ask for it.
    #[default]
    Asked,
    /// All: there is no kubelet that could run a guest.
    All,
}

impl Policy {
    /// Whether Pods of guestless machines name a node.
    pub fn binding(self) -> pod::Binding {
        match self {
            Self::Asked => pod::Binding::Unbound,
            Self::All => pod::Binding::Bound,
        }
    }

    /// What plays this machine's guest, if there is none. What is no script is returned as it stands, for the refusal.
    pub fn script(self, machine: &Machine) -> Option<Result<Script, String>> {
        let annotated = machine
            .template_meta
            .annotations
            .as_ref()
            .and_then(|a| a.get(ANNOTATION));
        let word = annotated
            .map(String::as_str)
            .or_else(|| asked_by_image(machine));
        match (word, self) {
            (Some(word), _) => Some(Script::named(word).ok_or_else(|| word.to_owned())),
            (None, Self::All) => Some(Ok(Script::Echo)),
            (None, Self::Asked) => None,
        }
    }
}

/// The tag of [`IMAGE`], if one of the machine's containerDisks is that.
fn asked_by_image(machine: &Machine) -> Option<&str> {
    let volumes = machine.template_spec["volumes"].as_array()?;
    let mut images = volumes
        .iter()
        .filter_map(|v| v["containerDisk"]["image"].as_str());
    images.find_map(|image| match image.strip_prefix(IMAGE)? {
        "" => Some("echo"),
        rest => rest.strip_prefix(':'),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::machine;

    fn with_image(image: &str) -> Machine {
        let volumes = json!([{"name": "seed", "cloudInitNoCloud": {}}, {"name": "root", "containerDisk": {"image": image}}]);
        machine(
            json!({"runStrategy": "Always", "template": {"spec": {"volumes": volumes}}}),
            json!({}),
        )
    }

    #[test]
    fn the_image_names_the_script() {
        let cases = [
            ("kubeworkspaces.io/guestless:flood", Some(Ok(Script::Flood))),
            ("kubeworkspaces.io/guestless", Some(Ok(Script::Echo))),
            (
                "kubeworkspaces.io/guestless:dance",
                Some(Err("dance".to_owned())),
            ),
            ("kubeworkspaces.io/guestless-not:echo", None),
            ("kubeworkspaces.io/guest-tiny:dev", None),
        ];
        for (image, want) in cases {
            assert_eq!(Policy::Asked.script(&with_image(image)), want, "{image}");
        }
        assert_eq!(
            Policy::All.script(&with_image("any")),
            Some(Ok(Script::Echo))
        );
    }

    #[test]
    fn an_annotation_of_the_template_goes_before_the_image() {
        let mut machine = with_image("kubeworkspaces.io/guestless:flood");
        machine.template_meta.annotations =
            Some([(ANNOTATION.to_owned(), "silent".to_owned())].into());
        assert_eq!(Policy::Asked.script(&machine), Some(Ok(Script::Silent)));
    }
}
