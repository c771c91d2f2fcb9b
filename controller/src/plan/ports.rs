//! Ports: what containers declare, what the Service offers, what a machine lets through.

use serde_json::{Value, json};

use super::problem::Problem;

/// Port of a workspace that declares none.
const DEFAULT_PORT: u16 = 8080;
/// SSH, which every machine lets through.
const SSH: u16 = 22;

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Bytes.
    Tcp,
    /// Datagrams.
    Udp,
    /// Which no workspace can be reached by.
    Sctp,
}

impl Protocol {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// A declared port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its number.
    pub number: u16,
    /// Its transport.
    pub protocol: Protocol,
}

impl Port {
    fn tcp(number: u16, name: Option<&str>) -> Self {
        Self {
            name: name.map(str::to_owned),
            number,
            protocol: Protocol::Tcp,
        }
    }

    fn same_endpoint(&self, other: &Self) -> bool {
        self.number == other.number && self.protocol == other.protocol
    }
}

/// Ports of a container in their declared order, each endpoint once; 8080 if it declares none.
pub fn declared(container: &Value, agent: Option<u16>) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    for port in container["ports"].as_array().into_iter().flatten() {
        if let Some(port) = read(port) {
            push(&mut ports, port);
        }
    }
    if ports.is_empty() {
        ports.push(Port::tcp(DEFAULT_PORT, None));
    }
    if let Some(agent) = agent {
        push(&mut ports, Port::tcp(agent, Some("agent")));
    }
    ports
}

/// Whether a container declares no port of its own.
pub(crate) fn none_declared(container: &Value) -> bool {
    let ports = container["ports"].as_array();
    !ports.is_some_and(|ports| ports.iter().any(|port| read(port).is_some()))
}

/// The entry that a container without ports gets.
pub(crate) fn default_container_port() -> Value {
    json!({"name": "workspace-port", "containerPort": DEFAULT_PORT, "protocol": "TCP"})
}

/// `spec.ports` of the Service: the first declared port is 80, the others keep their number.
pub(crate) fn of_service(ports: &[Port]) -> (Vec<Value>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut taken = vec!["http".to_owned()];
    let mut out = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        if index == 0 {
            out.push(service_port("http", 80, port));
        } else if port.number == 80 && port.protocol == ports[0].protocol {
            problems.push(Problem::ignored(
                "spec.template.spec.containers[0].ports",
                "the Service cannot offer port 80 beside the first port, which is its port 80; \
                 declare port 80 first",
            ));
        } else {
            let name = free_name(port, &taken);
            out.push(service_port(&name, port.number, port));
            taken.push(name);
        }
    }
    (out, problems)
}

/// Ports of a machine's interface: the declared ones and 22. KubeVirt forwards nothing else.
pub(crate) fn of_machine(ports: &[Port]) -> (Vec<Value>, Vec<Problem>) {
    let (usable, sctp): (Vec<Port>, Vec<Port>) = ports
        .iter()
        .cloned()
        .partition(|port| port.protocol != Protocol::Sctp);
    let mut usable = usable;
    push(&mut usable, Port::tcp(SSH, None));
    let problems = sctp.iter().map(|port| {
        let why = format!("SCTP port {} does not reach a machine", port.number);
        Problem::ignored("spec.template.spec.containers[0].ports", &why)
    });
    let entry = |port: &Port| json!({"port": port.number, "protocol": port.protocol.as_str()});
    (usable.iter().map(entry).collect(), problems.collect())
}

fn read(port: &Value) -> Option<Port> {
    let number = u16::try_from(port["containerPort"].as_i64()?).ok()?;
    let protocol = match port["protocol"].as_str().unwrap_or("TCP") {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    let name = port["name"].as_str().filter(|name| !name.is_empty());
    (number > 0).then(|| Port {
        name: name.map(str::to_owned),
        number,
        protocol,
    })
}

fn push(ports: &mut Vec<Port>, port: Port) {
    if !ports.iter().any(|known| known.same_endpoint(&port)) {
        ports.push(port);
    }
}

/// The port's own name if it is free, else one made of its number.
fn free_name(port: &Port, taken: &[String]) -> String {
    let numbered = format!("port-{}", port.number);
    let with_protocol = format!("{numbered}-{}", port.protocol.as_str().to_lowercase());
    [port.name.clone(), Some(numbered)]
        .into_iter()
        .flatten()
        .find(|name| !taken.contains(name))
        .unwrap_or(with_protocol)
}

fn service_port(name: &str, number: u16, port: &Port) -> Value {
    json!({
        "name": name, "port": number, "targetPort": port.number,
        "protocol": port.protocol.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(ports: Value) -> Value {
        json!({"ports": ports})
    }

    #[test]
    fn a_container_without_ports_has_8080() {
        for ports in [json!(null), json!([]), json!([{"containerPort": 0}])] {
            let container = container(ports);
            assert!(none_declared(&container));
            assert_eq!(declared(&container, None), [Port::tcp(8080, None)]);
        }
    }

    #[test]
    fn the_first_port_is_80_and_names_stay_unique() {
        let ports = declared(
            &container(json!([
                {"containerPort": 3000, "name": "web"},
                {"containerPort": 22, "name": "ssh"},
                {"containerPort": 9000, "name": "http"},
                {"containerPort": 53, "protocol": "UDP"},
                {"containerPort": 53, "protocol": "TCP"},
                {"containerPort": 22, "name": "again"},
            ])),
            Some(44787),
        );
        let (service, problems) = of_service(&ports);
        let told: Vec<String> = service
            .iter()
            .map(|p| {
                format!(
                    "{}:{}>{}/{}",
                    p["name"], p["port"], p["targetPort"], p["protocol"]
                )
            })
            .map(|text| text.replace('"', ""))
            .collect();
        assert_eq!(
            told,
            [
                "http:80>3000/TCP",
                "ssh:22>22/TCP",
                "port-9000:9000>9000/TCP",
                "port-53:53>53/UDP",
                "port-53-tcp:53>53/TCP",
                "agent:44787>44787/TCP",
            ]
        );
        assert!(problems.is_empty());
    }

    #[test]
    fn a_second_port_80_is_told_not_dropped() {
        let ports = declared(
            &container(json!([{"containerPort": 8080}, {"containerPort": 80}])),
            None,
        );
        let (service, problems) = of_service(&ports);
        assert_eq!(service.len(), 1);
        assert!(problems[0].message.contains("declare port 80 first"));
        let (service, problems) = of_service(&declared(
            &container(json!([{"containerPort": 80}, {"containerPort": 8080}])),
            None,
        ));
        assert_eq!((service.len(), problems.len()), (2, 0));
    }

    #[test]
    fn a_machine_lets_22_through_once() {
        let machine = |ports| of_machine(&declared(&container(ports), None));
        let (ports, _) = machine(json!(null));
        assert_eq!(ports[0]["port"], 8080);
        assert_eq!(ports[1], json!({"port": 22, "protocol": "TCP"}));
        let (ports, _) = machine(json!([{"containerPort": 22}]));
        assert_eq!(ports.len(), 1);
        // 22/UDP is not SSH.
        let (ports, _) = machine(json!([{"containerPort": 22, "protocol": "UDP"}]));
        assert_eq!(ports.len(), 2);
        let (ports, problems) = machine(json!([{"containerPort": 5, "protocol": "SCTP"}]));
        assert_eq!((ports.len(), problems.len()), (1, 1));
    }
}
