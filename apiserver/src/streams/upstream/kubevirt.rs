//! Where KubeVirt serves a machine's streams (`pkg/virt-api/api.go`).

use super::Address;

pub(super) fn console(namespace: &str, instance: &str) -> Address {
    Address {
        uri: format!(
            "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{instance}/console"
        ),
        subprotocols: "plain.kubevirt.io",
        what: "console of the machine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_the_instances() {
        assert_eq!(
            console("t1", "demo").uri,
            "/apis/subresources.kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo/console"
        );
    }
}
