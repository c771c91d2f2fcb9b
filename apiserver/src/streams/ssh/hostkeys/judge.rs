//! What a pin, a root disk and a shown key mean together. Pure.

use apiserver_generic::ApiError;
use apiservice::v1alpha1::{GROUP, HostKey, HostKeyAlgorithm, RootIdentity, SshStatus};

use crate::streams::ssh::guest::Shown;

/// What there is to do before a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// The root has no pin yet: look at all keys and pin them.
    Pin,
    /// The root is pinned.
    Expect(&'a SshStatus),
}

/// What a workspace's pin is worth for the root that it has now. An empty pin is none: it would
/// refuse every key.
pub(super) fn next<'a>(pin: Option<&'a SshStatus>, root: &RootIdentity) -> Next<'a> {
    match pin {
        Some(pin) if pin.root == *root && !pin.host_keys.is_empty() => Next::Expect(pin),
        _ => Next::Pin,
    }
}

/// The types to ask for, the preferred one first.
pub(super) fn wanted(pin: &SshStatus) -> Vec<HostKeyAlgorithm> {
    let mut wanted: Vec<_> = pin.host_keys.iter().map(|key| key.algorithm).collect();
    wanted.sort_unstable();
    wanted
}

/// Whether what was shown is what was pinned.
pub(super) fn matches(pin: &SshStatus, shown: &Shown) -> bool {
    match shown {
        Shown::Key(key) => pin.host_keys.contains(key),
        Shown::NoneOf(_) => false,
    }
}

/// Why a change is refused, for an Event and for the caller.
pub(super) fn change(pin: &SshStatus, shown: &Shown) -> String {
    match shown {
        Shown::Key(key) => {
            let name = key.algorithm.as_str();
            let before = pin.host_keys.iter().find(|k| k.algorithm == key.algorithm);
            let before = before.map_or("no such key", |key| key.fingerprint.as_str());
            format!(
                "the guest's {name} host key is {}, and {before} is pinned since {}",
                key.fingerprint, pin.pinned_at
            )
        }
        Shown::NoneOf(offered) => format!(
            "the guest has none of the host keys that are pinned since {} ({}); it offers {}",
            pin.pinned_at,
            listed(&pin.host_keys),
            match offered.as_slice() {
                [] => "nothing".to_owned(),
                offered => offered.join(", "),
            }
        ),
    }
}

/// 409: the root disk is the same and the key is another.
pub(super) fn refusal(workspace: &str, change: &str) -> ApiError {
    let text = format!(
        "the host key changed: {change}, although its root disk is the same. Either somebody made new keys in the guest, or another machine answers in its place. If you know that the keys were changed, accept them with: kubectl workspace ssh {workspace} --accept-new-host-key"
    );
    ApiError::conflict(GROUP, "workspaces", workspace, &text).cause(
        "HostKeyChanged",
        change,
        "status.ssh.hostKeys",
    )
}

/// 409: nothing could be pinned.
pub(super) fn nothing_to_pin(workspace: &str, offered: &[String]) -> ApiError {
    let known: Vec<_> = HostKeyAlgorithm::ALL.map(HostKeyAlgorithm::as_str).into();
    let text = format!(
        "the guest offers no host key of a type that is understood ({}), but {}; run ssh-keygen -A in the guest and restart its sshd",
        known.join(", "),
        match offered {
            [] => "none at all".to_owned(),
            offered => offered.join(", "),
        }
    );
    ApiError::conflict(GROUP, "workspaces", workspace, &text).cause("NoHostKey", text, "")
}

/// What an accepted change was, for an Event.
pub(super) fn accepted(before: &SshStatus, now: &SshStatus) -> String {
    format!(
        "the pinned host keys {} were replaced by {}",
        listed(&before.host_keys),
        listed(&now.host_keys)
    )
}

fn listed(keys: &[HostKey]) -> String {
    let each = |key: &HostKey| format!("{} {}", key.algorithm.as_str(), key.fingerprint);
    keys.iter().map(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use apiservice::v1alpha1::RootKind;

    use super::*;

    fn key(algorithm: HostKeyAlgorithm, public: &[u8]) -> HostKey {
        let name = algorithm.as_str().as_bytes();
        let length = u32::try_from(name.len()).unwrap().to_be_bytes();
        HostKey::of_blob(&[&length, name, public].concat()).unwrap()
    }

    fn root(uid: &str) -> RootIdentity {
        RootIdentity {
            kind: RootKind::VirtualMachineInstance,
            uid: uid.into(),
        }
    }

    fn pin(keys: &[HostKey]) -> SshStatus {
        SshStatus {
            root: root("a"),
            host_keys: keys.to_vec(),
            pinned_at: "2026-01-01T00:00:00Z".into(),
        }
    }

    use HostKeyAlgorithm::{EcdsaP256, Ed25519, Rsa};

    #[test]
    fn p_12_a_pin_belongs_to_its_root_disk() {
        let pinned = pin(&[key(Ed25519, b"1")]);
        let volume = RootIdentity {
            kind: RootKind::PersistentVolumeClaim,
            ..root("a")
        };
        let table = [
            (None, root("a"), false),
            (Some(pinned.clone()), root("a"), true),
            (Some(pinned.clone()), root("b"), false),
            (Some(pinned), volume, false),
            (Some(pin(&[])), root("a"), false),
        ];
        for (pin, root, expected) in table {
            let expects = matches!(next(pin.as_ref(), &root), Next::Expect(_));
            assert_eq!(expects, expected, "{pin:?} {root:?}");
        }
    }

    #[test]
    fn p_12_only_a_pinned_key_matches() {
        let pinned = pin(&[key(Rsa, b"r"), key(Ed25519, b"1")]);
        assert_eq!(wanted(&pinned), [Ed25519, Rsa]);
        for (shown, expected) in [
            (Shown::Key(key(Ed25519, b"1")), true),
            (Shown::Key(key(Rsa, b"r")), true),
            (Shown::Key(key(Ed25519, b"2")), false),
            (Shown::Key(key(EcdsaP256, b"1")), false),
            (Shown::NoneOf(vec!["ssh-dss".into()]), false),
        ] {
            assert_eq!(matches(&pinned, &shown), expected, "{shown:?}");
        }
    }

    #[test]
    fn a_refusal_names_both_keys_and_the_way_out() {
        let (before, now) = (key(Ed25519, b"1"), key(Ed25519, b"2"));
        let words = change(
            &pin(std::slice::from_ref(&before)),
            &Shown::Key(now.clone()),
        );
        let error = refusal("demo", &words);
        assert_eq!(error.reason.code(), 409);
        for part in [
            before.fingerprint.as_str(),
            now.fingerprint.as_str(),
            "2026-01-01T00:00:00Z",
            "kubectl workspace ssh demo --accept-new-host-key",
        ] {
            assert!(error.message.contains(part), "{part}: {}", error.message);
        }
        let details = error.details.unwrap();
        assert_eq!(details.causes[0].reason, "HostKeyChanged");
        let gone = change(&pin(&[before]), &Shown::NoneOf(vec!["ssh-rsa".into()]));
        assert!(gone.contains("offers ssh-rsa"), "{gone}");
    }

    #[test]
    fn a_guest_without_keys_is_told_how_to_make_them() {
        let error = nothing_to_pin("demo", &["ssh-dss".into()]);
        assert_eq!(error.reason.code(), 409);
        assert!(error.message.contains("ssh-dss") && error.message.contains("ssh-keygen -A"));
    }
}
