//! Where KubeVirt serves a machine's streams (`pkg/virt-api/api.go`).

use super::Address;

const SUBPROTOCOL: &str = "plain.kubevirt.io";

fn path(namespace: &str, instance: &str, tail: &str) -> String {
    format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{instance}/{tail}"
    )
}

pub(super) fn console(namespace: &str, instance: &str) -> Address {
    Address {
        uri: path(namespace, instance, "console"),
        subprotocols: SUBPROTOCOL,
        what: "console of the machine",
    }
}

pub(super) fn display(namespace: &str, instance: &str, preserve: bool) -> Address {
    let tail = if preserve {
        "vnc?preserveSession=true"
    } else {
        "vnc"
    };
    Address {
        uri: path(namespace, instance, tail),
        subprotocols: SUBPROTOCOL,
        what: "display of the machine",
    }
}

pub(super) fn port(namespace: &str, instance: &str, port: u16) -> Address {
    Address {
        uri: path(namespace, instance, &format!("portforward/{port}")),
        subprotocols: SUBPROTOCOL,
        what: "port of the machine",
    }
}

/// Where a picture of the display is taken.
pub fn screenshot(namespace: &str, instance: &str, move_cursor: bool) -> String {
    let query = if move_cursor { "?moveCursor=true" } else { "" };
    path(namespace, instance, &format!("vnc/screenshot{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str =
        "/apis/subresources.kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo";

    #[test]
    fn streams_are_the_instances() {
        for (address, tail) in [
            (console("t1", "demo"), "console"),
            (display("t1", "demo", true), "vnc?preserveSession=true"),
            (display("t1", "demo", false), "vnc"),
            (port("t1", "demo", 22), "portforward/22"),
        ] {
            assert_eq!(address.uri, format!("{BASE}/{tail}"));
        }
        let picture = screenshot("t1", "demo", true);
        assert_eq!(picture, format!("{BASE}/vnc/screenshot?moveCursor=true"));
    }
}
