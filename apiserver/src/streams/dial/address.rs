//! Which addresses of a pod are dialled: those that its status says, unless they lead elsewhere.
//!
//! A pod on its node's network, or one whose status names a loopback or link-local address, would
//! lend our position in the network to whoever made it: such an address is refused by its name.

use std::net::IpAddr;

use apiserver_generic::Object;

/// Why a pod is not dialled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It shares its node's network.
    #[error("{address} is its node's own address (hostNetwork) and is not dialled")]
    HostNetwork {
        /// The address.
        address: String,
    },
    /// The address is no pod's.
    #[error("its pod's address {address} is {what} and is not dialled")]
    Kind {
        /// The address.
        address: IpAddr,
        /// What it is.
        what: &'static str,
    },
    /// It has none.
    #[error("its pod has no address yet")]
    Nothing,
}

/// The addresses of a pod, all of them fit to be dialled.
///
/// # Errors
/// The first that is not, or that there is none.
pub fn of_pod(pod: &Object) -> Result<Vec<IpAddr>, Refused> {
    let said = list(pod, "/status/podIPs", "/status/podIP");
    let host = list(pod, "/status/hostIPs", "/status/hostIP");
    if pod.pointer("/spec/hostNetwork").is_some_and(|v| v == true) {
        let address = said.first().or(host.first());
        let address = address.map(ToString::to_string).unwrap_or_default();
        return Err(Refused::HostNetwork { address });
    }
    for address in &said {
        if host.contains(address) {
            let address = address.to_string();
            return Err(Refused::HostNetwork { address });
        }
        if let Some(what) = forbidden(*address) {
            let address = *address;
            return Err(Refused::Kind { address, what });
        }
    }
    match said.is_empty() {
        true => Err(Refused::Nothing),
        false => Ok(said),
    }
}

/// Whether an address that somebody reported is one of these.
pub fn is_one_of(reported: Option<&str>, addresses: &[IpAddr]) -> bool {
    let reported = reported.and_then(|text| text.parse::<IpAddr>().ok());
    reported.is_some_and(|address| addresses.contains(&plain(address)))
}

fn list(pod: &Object, many: &str, one: &str) -> Vec<IpAddr> {
    let parse = |text: &str| text.parse().ok().map(plain);
    let mut found: Vec<IpAddr> = pod
        .pointer(many)
        .and_then(|list| list.as_array())
        .into_iter()
        .flatten()
        .filter_map(|entry| parse(entry["ip"].as_str()?))
        .collect();
    if found.is_empty() {
        found.extend(pod.str_at(one).and_then(parse));
    }
    found
}

/// An IPv4 address in IPv6 clothes is that IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn forbidden(address: IpAddr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if address.is_unspecified() {
        return Some("the unspecified address");
    }
    if address.is_multicast() {
        return Some("a multicast address");
    }
    let link_local = match address {
        IpAddr::V4(v4) if v4.is_broadcast() => return Some("the broadcast address"),
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    link_local.then_some("a link-local address")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn addresses(spec: Value, status: Value) -> Result<Vec<String>, String> {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        let found = of_pod(&Object::from_value(pod).unwrap());
        found
            .map(|list| list.iter().map(ToString::to_string).collect())
            .map_err(|refused| refused.to_string())
    }

    #[test]
    fn both_families_are_dialled_in_the_pods_order() {
        let status = json!({"podIP": "10.1.0.9", "hostIP": "192.0.2.1",
            "podIPs": [{"ip": "2001:db8::1a:22"}, {"ip": "10.1.0.9"}]});
        let found = addresses(json!({}), status).unwrap();
        assert_eq!(found, ["2001:db8::1a:22", "10.1.0.9"]);
        assert_eq!(
            addresses(json!({}), json!({"podIP": "10.1.0.9"})).unwrap(),
            ["10.1.0.9"]
        );
    }

    #[test]
    fn addresses_that_lead_elsewhere_are_refused_by_name() {
        for (address, what) in [
            ("127.0.0.1", "loopback"),
            ("127.8.8.8", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("169.254.169.254", "link-local"),
            ("::ffff:169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
        ] {
            let good = json!({"podIPs": [{"ip": "10.1.0.9"}, {"ip": address}]});
            let refused = addresses(json!({}), good).unwrap_err();
            assert!(refused.contains(what), "{address}: {refused}");
            let named = address.trim_start_matches("::ffff:");
            assert!(refused.contains(named), "{refused}");
        }
    }

    #[test]
    fn a_pod_on_its_nodes_network_is_refused_however_it_says_so() {
        let status = json!({"podIP": "192.0.2.1"});
        let refused = addresses(json!({"hostNetwork": true}), status).unwrap_err();
        assert!(refused.contains("192.0.2.1"), "{refused}");
        let status = json!({"podIP": "192.0.2.1", "hostIP": "192.0.2.1"});
        let refused = addresses(json!({}), status).unwrap_err();
        assert!(refused.contains("hostNetwork"), "{refused}");
        assert!(
            addresses(json!({}), json!({}))
                .unwrap_err()
                .contains("no address")
        );
    }

    #[test]
    fn a_reported_address_counts_only_if_it_is_the_pods() {
        let pod: Vec<IpAddr> = vec!["10.1.0.9".parse().unwrap()];
        for (reported, expected) in [
            (Some("10.1.0.9"), true),
            (Some("::ffff:10.1.0.9"), true),
            (Some("10.0.2.15"), false),
            (Some("nonsense"), false),
            (None, false),
        ] {
            assert_eq!(is_one_of(reported, &pod), expected, "{reported:?}");
        }
    }
}
