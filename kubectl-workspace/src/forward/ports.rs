//! `[LOCAL:]PORT` as kubectl has it. Entry point: [`Ports`].

use std::fmt;

use serde_json::Value;

/// A local port and the port of the workspace that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// 0 is any; `None` the same number as the remote one.
    local: Option<u16>,
    remote: Remote,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Remote {
    Number(u16),
    Name(String),
}

/// Why an argument is no pair of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortsError {
    /// kubectl cannot either.
    #[error("{0:?}: only TCP can be forwarded; UDP cannot pass through the Kubernetes API")]
    Udp(String),
    /// Not a number from 1 to 65535, nor a name.
    #[error("{0:?} is not [LOCAL:]PORT: as 8080, 8080:80, :80 or 8080:http")]
    Form(String),
    /// The workspace has no such port.
    #[error("{workspace} has no port named {name:?}; its ports are: {known}")]
    Unknown {
        /// The workspace.
        workspace: String,
        /// What was typed.
        name: String,
        /// What there is.
        known: String,
    },
}

/// Both ports as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// 0 is any.
    pub local: u16,
    /// Of the workspace.
    pub remote: u16,
}

impl std::str::FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let form = || PortsError::Form(text.to_owned());
        let ports = match text.rsplit_once('/') {
            None => text,
            Some((ports, protocol)) if protocol.eq_ignore_ascii_case("tcp") => ports,
            Some((_, protocol)) if protocol.eq_ignore_ascii_case("udp") => {
                return Err(PortsError::Udp(text.to_owned()));
            }
            Some(_) => return Err(form()),
        };
        let (local, remote) = match ports.split_once(':') {
            None => (None, ports),
            Some(("", remote)) => (Some(0), remote),
            Some((local, remote)) => (Some(local.parse().map_err(|_| form())?), remote),
        };
        let remote = match remote.parse() {
            Ok(0) => return Err(form()),
            Ok(number) => Remote::Number(number),
            Err(_) if is_name(remote) => Remote::Name(remote.to_owned()),
            Err(_) => return Err(form()),
        };
        Ok(Self { local, remote })
    }
}

/// IANA_SVC_NAME, as the API validates names of ports.
fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= 15 && text.chars().all(inner) && text.contains(|c: char| c.is_ascii_lowercase())
}

impl Ports {
    /// The numbers, with names looked up in the workspace.
    pub fn resolve(&self, workspace: &Value) -> Result<Pair, PortsError> {
        let remote = match &self.remote {
            Remote::Number(number) => *number,
            Remote::Name(name) => named(workspace, name)?,
        };
        Ok(Pair {
            local: self.local.unwrap_or(remote),
            remote,
        })
    }
}

fn named(workspace: &Value, name: &str) -> Result<u16, PortsError> {
    let containers = workspace["spec"]["template"]["spec"]["containers"].as_array();
    let ports: Vec<_> = containers
        .into_iter()
        .flatten()
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .collect();
    let found = ports.iter().find(|port| port["name"] == name);
    let number = found.and_then(|port| port["containerPort"].as_u64());
    if let Some(number) = number.and_then(|n| u16::try_from(n).ok()) {
        return Ok(number);
    }
    let known: Vec<_> = ports
        .iter()
        .filter_map(|port| match port["name"].as_str() {
            Some(name) => Some(format!("{name} ({})", port["containerPort"])),
            None => port["containerPort"].as_u64().map(|n| n.to_string()),
        })
        .collect();
    Err(PortsError::Unknown {
        workspace: workspace["metadata"]["name"]
            .as_str()
            .unwrap_or("the workspace")
            .to_owned(),
        name: name.to_owned(),
        known: if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        },
    })
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.local, self.remote)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolved(text: &str) -> Result<String, PortsError> {
        let ports = json!([{"name": "http", "containerPort": 8000}, {"containerPort": 22}]);
        let workspace = json!({"metadata": {"name": "demo"},
            "spec": {"template": {"spec": {"containers": [{"ports": ports}]}}}});
        let ports: Ports = text.parse()?;
        Ok(ports.resolve(&workspace)?.to_string())
    }

    #[test]
    fn ports_are_kubectls() {
        let cases = [
            ("80", "80:80"),
            ("8080:80", "8080:80"),
            (":80", "0:80"),
            ("0:80", "0:80"),
            ("8080:http", "8080:8000"),
            ("http", "8000:8000"),
            (":http", "0:8000"),
            ("8080:80/tcp", "8080:80"),
        ];
        for (text, expected) in cases {
            assert_eq!(resolved(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_forwarded_is_refused_in_words() {
        for text in [
            "", ":", "0", "8080:", "8080:0", "x:80", "65536", "1:2:3", "80/sctp", "-1", "HTTP",
        ] {
            assert!(
                matches!(resolved(text), Err(PortsError::Form(_))),
                "{text:?}"
            );
        }
        let udp = resolved("53:53/udp").unwrap_err().to_string();
        assert!(udp.contains("UDP"), "{udp}");
        let unknown = resolved("8080:web").unwrap_err().to_string();
        assert!(
            unknown.contains("http (8000), 22") && unknown.contains("demo"),
            "{unknown}"
        );
    }
}
