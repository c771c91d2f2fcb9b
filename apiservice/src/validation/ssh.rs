//! Valid host keys: a pin that says one thing and means another would be printed into known_hosts.

use std::collections::BTreeSet;

use apiserver_generic::{Cause, Object};

use super::{cause, invalid};
use crate::v1alpha1::SshStatus;

const FIELD: &str = "status.ssh";

/// Problems of `status.ssh`, whose shape the schema has judged.
pub(super) fn host_keys(object: &Object) -> Vec<Cause> {
    let Some(value) = object.pointer("/status/ssh") else {
        return Vec::new();
    };
    let status: SshStatus = match serde_json::from_value(value.clone()) {
        Ok(status) => status,
        Err(error) => return vec![invalid(FIELD, "ssh", &error.to_string())],
    };
    let mut causes = Vec::new();
    if status.root.uid.is_empty() {
        let field = format!("{FIELD}.root.uid");
        causes.push(cause("FieldValueRequired", &field, "Required value".into()));
    }
    if status.pinned_at.parse::<jiff::Timestamp>().is_err() {
        let why = "must be a time as in RFC 3339";
        causes.push(invalid(
            &format!("{FIELD}.pinnedAt"),
            &status.pinned_at,
            why,
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, key) in status.host_keys.iter().enumerate() {
        let field = format!("{FIELD}.hostKeys[{index}]");
        if !key.is_consistent() {
            let why = "algorithm, key and fingerprint must belong together";
            causes.push(invalid(&field, key.algorithm.as_str(), why));
        }
        if !seen.insert(key.algorithm) {
            let text = format!("Duplicate value: {:?}", key.algorithm.as_str());
            causes.push(cause("FieldValueDuplicate", &field, text));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::v1alpha1::HostKey;

    fn fields(edit: impl FnOnce(&mut Value)) -> Vec<String> {
        let blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x01x";
        let key = json!(HostKey::of_blob(blob).unwrap());
        let mut ssh = json!({"root": {"kind": "VirtualMachineInstance", "uid": "u"},
            "hostKeys": [key], "pinnedAt": "2026-01-01T00:00:00Z"});
        edit(&mut ssh);
        let object = json!({"metadata": {"name": "w"}, "status": {"ssh": ssh}});
        let causes = host_keys(&Object::from_value(object).unwrap());
        causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn every_fault_of_a_pin_names_its_field() {
        assert_eq!(fields(|_| {}), [""; 0]);
        assert_eq!(
            fields(|s| s["root"]["uid"] = json!("")),
            ["status.ssh.root.uid"]
        );
        assert_eq!(
            fields(|s| s["pinnedAt"] = json!("now")),
            ["status.ssh.pinnedAt"]
        );
        assert_eq!(
            fields(|s| s["root"]["kind"] = json!("Disk")),
            ["status.ssh"]
        );
        let forged = |s: &mut Value| s["hostKeys"][0]["fingerprint"] = json!("SHA256:x");
        assert_eq!(fields(forged), ["status.ssh.hostKeys[0]"]);
        let twice = |s: &mut Value| s["hostKeys"] = json!([s["hostKeys"][0], s["hostKeys"][0]]);
        assert_eq!(fields(twice), ["status.ssh.hostKeys[1]"]);
    }
}
