//! Addresses of the cluster, and the one link between the machine and the node.
//!
//! Pods and Services are reachable inside the node's namespaces only: the machine has no route to them, and the node
//! has none beyond the machine's end of the link, so that no packet of the cluster leaves the machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::error::NodeError;
use super::subnet::Subnet;
use super::tool::{ip, output};
use crate::controlplane::ServiceRanges;
use crate::proc::CommandLine;

/// Pods' addresses, IPv4 and IPv6. One node, so these are the node's too.
pub const POD_RANGES: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/64"];
/// The link's name inside the node.
const INSIDE: &str = "eth0";

/// The veth pair: the machine's end is `.1`, the node's `.2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The name of the machine's end.
    pub name: String,
    /// The machine's address on it: where the node reaches servers of the machine.
    pub host: Ipv4Addr,
    /// The node's address on it: where the machine reaches kube-apiserver and node ports.
    pub node: Ipv4Addr,
    /// The machine's IPv6 address.
    pub host6: Ipv6Addr,
    /// The node's IPv6 address.
    pub node6: Ipv6Addr,
}

impl Link {
    /// The n-th candidate. Blocks that few use, in private and unique-local space.
    fn candidate(name: &str, n: u8) -> Self {
        let (a, b, c) =
            [(172, 30, 99), (172, 29, 99), (10, 213, 99), (192, 168, 213)][usize::from(n % 4)];
        let base = 4 * (n / 4);
        let v4 = |last: u8| Ipv4Addr::new(a, b, c, base + last);
        let v6 = |last| Ipv6Addr::new(0xfd6b, 0x7773, 0x7061, u16::from(n), 0, 0, 0, last);
        Self {
            name: name.to_owned(),
            host: v4(1),
            node: v4(2),
            host6: v6(1),
            node6: v6(2),
        }
    }

    /// The node's addresses, the first one first.
    pub fn node_addresses(&self) -> [IpAddr; 2] {
        [self.node.into(), self.node6.into()]
    }

    fn subnets(&self) -> [Option<Subnet>; 2] {
        [
            Subnet::new(self.host.into(), 30),
            Subnet::new(self.host6.into(), 64),
        ]
    }

    /// The first candidate that overlaps nothing in use.
    fn choose(name: &str, used: &[Subnet]) -> Result<Self, NodeError> {
        let candidates: Vec<Self> = (0..64).map(|n| Self::candidate(name, n)).collect();
        let free = |link: &&Self| {
            link.subnets()
                .into_iter()
                .flatten()
                .all(|own| !used.iter().any(|u| u.overlaps(own)))
        };
        candidates.iter().find(free).cloned().ok_or_else(|| {
            let all = candidates
                .iter()
                .flat_map(Self::subnets)
                .flatten()
                .map(|s| s.to_string());
            NodeError::NoFreeNetwork(all.collect::<Vec<_>>().join(", "))
        })
    }

    /// Finds a network that this machine does not use.
    ///
    /// # Errors
    /// When all are in use or `ip` does not say.
    pub fn probe(name: &str) -> Result<Self, NodeError> {
        let mut used = Vec::new();
        for question in [
            "-j addr show",
            "-j -4 route show table all",
            "-j -6 route show table all",
        ] {
            used.extend(in_use(&output(&ip(question))?)?);
        }
        Self::choose(name, &used)
    }

    /// What makes the link.
    fn commands(
        &self,
        init: i32,
        machine_ipv6: bool,
        services: &ServiceRanges,
    ) -> Vec<(Side, String)> {
        let Self {
            name,
            host,
            node,
            host6,
            node6,
        } = self;
        let ServiceRanges { v4, v6 } = services;
        let mut machine = vec![
            format!("link add {name} type veth peer name {INSIDE} netns {init}"),
            // No link-local addresses and no router discovery: it carries our two addresses only.
            format!("link set {name} addrgenmode none"),
            format!("addr add {host}/30 dev {name}"),
        ];
        if machine_ipv6 {
            machine.push(format!("addr add {host6}/64 dev {name} nodad"));
        }
        machine.push(format!("link set {name} up"));
        let inside = [
            "link set lo up".to_owned(),
            format!("addr add {node}/30 dev {INSIDE}"),
            format!("addr add {node6}/64 dev {INSIDE} nodad"),
            format!("link set {INSIDE} up"),
            // Without a route, a connection from the node itself (kube-apiserver to an aggregated server's Service)
            // fails before kube-proxy's rules can redirect it.
            format!("-4 route add {v4} dev {INSIDE} src {node}"),
            format!("-6 route add {v6} dev {INSIDE} src {node6}"),
        ];
        let machine = machine.into_iter().map(|words| (Side::Machine, words));
        machine
            .chain(inside.map(|words| (Side::Node, words)))
            .collect()
    }

    /// Makes the link between this machine and the node whose pid 1 is `init`.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn make(&self, init: i32, enter: &CommandLine) -> Result<(), NodeError> {
        for (side, words) in self.commands(init, machine_has_ipv6(), &ServiceRanges::default()) {
            let command = match side {
                Side::Machine => ip(&words),
                Side::Node => ip(&words).inside(enter),
            };
            output(&command)?;
        }
        Ok(())
    }

    /// Rules for packets that pods send to the machine: they get the node's address, since the machine would answer
    /// an address of a pod through its default route.
    pub fn rules(&self) -> String {
        let [pods, pods6] = POD_RANGES;
        format!(
            "table inet kubeworkspaces {{\n  chain postrouting {{\n    type nat hook postrouting priority srcnat;\n    \
             oifname \"{INSIDE}\" ip saddr {pods} masquerade\n    oifname \"{INSIDE}\" ip6 saddr {pods6} masquerade\n  }}\n}}\n"
        )
    }
}

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Machine,
    Node,
}

/// Whether new links of the machine may have IPv6 addresses. The node's own namespace always may.
fn machine_has_ipv6() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    setting.is_ok_and(|value| value.trim() == "0")
}

/// The ranges in an answer of `ip -j addr` or `ip -j route`.
fn in_use(json: &str) -> Result<Vec<Subnet>, NodeError> {
    let answer = |problem: String| NodeError::Answer {
        program: "ip",
        problem,
    };
    let items: Vec<serde_json::Value> = match json.trim() {
        "" => Vec::new(),
        json => serde_json::from_str(json).map_err(|e| answer(e.to_string()))?,
    };
    let mut ranges = Vec::new();
    for item in &items {
        for address in item["addr_info"].as_array().into_iter().flatten() {
            let text = format!(
                "{}/{}",
                address["local"].as_str().unwrap_or(""),
                address["prefixlen"]
            );
            ranges.push(
                text.parse()
                    .map_err(|()| answer(format!("{text} is not an address")))?,
            );
        }
        match item["dst"].as_str() {
            None | Some("default") => {}
            Some(dst) => ranges.push(
                dst.parse()
                    .map_err(|()| answer(format!("{dst} is not a destination")))?,
            ),
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnets(all: &[&str]) -> Vec<Subnet> {
        all.iter().map(|s| s.parse().unwrap()).collect()
    }

    #[test]
    fn the_first_free_network_is_taken() {
        for (used, want) in [
            (vec![], "172.30.99.1"),
            (vec!["0.0.0.0/0", "192.0.2.0/24"], "172.30.99.1"),
            (vec!["172.30.0.0/16"], "172.29.99.1"),
            (vec!["172.16.0.0/12", "10.0.0.0/8"], "192.168.213.1"),
            (
                vec![
                    "172.30.99.2",
                    "172.29.0.0/16",
                    "10.0.0.0/8",
                    "192.168.0.0/16",
                ],
                "172.30.99.5",
            ),
            (vec!["fd6b:7773:7061::/64"], "172.29.99.1"),
        ] {
            let link = Link::choose("l", &subnets(&used)).unwrap();
            assert_eq!(link.host.to_string(), want, "{used:?}");
        }
        let all = subnets(&["172.16.0.0/12", "10.0.0.0/8", "192.168.0.0/16"]);
        let error = Link::choose("l", &all).unwrap_err().to_string();
        assert!(
            error.contains("172.30.99.1/30") && error.contains("remove one of those routes"),
            "{error}"
        );
    }

    #[test]
    fn no_candidate_overlaps_pods_services_or_another_candidate() {
        let ServiceRanges { v4, v6 } = ServiceRanges::default();
        let ranges = subnets(&[&POD_RANGES[..], &[&v4, &v6]].concat());
        let candidates: Vec<_> = (0..64).map(|n| Link::candidate("l", n)).collect();
        for (n, link) in candidates.iter().enumerate() {
            for own in link.subnets().into_iter().flatten() {
                assert!(!ranges.iter().any(|range| range.overlaps(own)), "{own}");
                let others = candidates[..n].iter().flat_map(Link::subnets).flatten();
                assert!(
                    others.into_iter().all(|other| !other.overlaps(own)),
                    "{own}"
                );
            }
        }
    }

    #[test]
    fn addresses_and_routes_of_the_machine_are_in_use() {
        let addresses = r#"[{"ifname":"lo","addr_info":[{"local":"127.0.0.1","prefixlen":8}]},{"ifname":"x","addr_info":[]}]"#;
        assert_eq!(in_use(addresses).unwrap(), subnets(&["127.0.0.1/8"]));
        let routes =
            r#"[{"dst":"default","gateway":"192.0.2.1"},{"dst":"192.0.2.0/24"},{"dst":"fd00::5"}]"#;
        assert_eq!(
            in_use(routes).unwrap(),
            subnets(&["192.0.2.0/24", "fd00::5"])
        );
        assert_eq!(in_use("").unwrap(), []);
        assert!(in_use("nonsense").is_err());
        assert!(in_use(r#"[{"dst":"?"}]"#).is_err());
    }

    #[test]
    fn neither_side_gets_a_default_route_and_the_machine_gets_no_route_at_all() {
        for ipv6 in [false, true] {
            let commands = Link::candidate("l", 0).commands(7, ipv6, &ServiceRanges::default());
            for (side, words) in &commands {
                assert!(!words.contains("default"), "{words}");
                assert!(*side == Side::Node || !words.contains("route"), "{words}");
            }
            let machine6 =
                |(side, words): &(Side, String)| *side == Side::Machine && words.contains("fd6b:");
            assert_eq!(commands.iter().any(machine6), ipv6);
        }
    }
}
