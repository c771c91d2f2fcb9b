//! Which ports of a workspace are forwarded: the declared ones, and 22.

use controller::plan::{Port, Protocol};

/// SSH.
pub const SSH: u16 = 22;

/// A port as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// By its number.
    Number(u16),
    /// By the name under which it is declared.
    Name(String),
}

/// Why a port is not forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Neither a number nor a name.
    #[error("{0:?} is no port: name one from 1 to 65535, or a declared port by its name")]
    Malformed(String),
    /// No port has this name.
    #[error("no port of the workspace is named {name:?}; declared are {declared}")]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        declared: String,
    },
    /// It is declared for datagrams.
    #[error("port {0} is declared for UDP")]
    Datagrams(u16),
    /// It is not declared.
    #[error(
        "port {number} is not declared by the workspace; declared are {declared}; declare it in spec.template.spec.containers[0].ports"
    )]
    Undeclared {
        /// The number.
        number: u16,
        /// What there is.
        declared: String,
    },
}

impl Wanted {
    /// Reads a path segment.
    ///
    /// # Errors
    /// It is neither a number of a port nor a name.
    pub fn read(text: &str) -> Result<Self, PortError> {
        let malformed = || PortError::Malformed(text.chars().take(64).collect());
        let digits = |c: char| c.is_ascii_digit();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if text.is_empty() || text.len() > 63 || !text.chars().all(word) {
            return Err(malformed());
        }
        if !text.chars().all(digits) {
            return Ok(Self::Name(text.to_owned()));
        }
        match text.parse() {
            Ok(number) if number > 0 => Ok(Self::Number(number)),
            _ => Err(malformed()),
        }
    }
}

/// The number to dial.
///
/// # Errors
/// The port is not declared for TCP, and neither 22 nor let through by `undeclared`.
pub fn find(wanted: &Wanted, declared: &[Port], undeclared: bool) -> Result<u16, PortError> {
    look(wanted, declared, |number| number == SSH || undeclared)
}

/// The same where 22 is a port like any other.
///
/// # Errors
/// The port is not declared for TCP, and not let through by `undeclared`.
pub fn find_declared(
    wanted: &Wanted,
    declared: &[Port],
    undeclared: bool,
) -> Result<u16, PortError> {
    look(wanted, declared, |_| undeclared)
}

fn look(wanted: &Wanted, declared: &[Port], also: impl Fn(u16) -> bool) -> Result<u16, PortError> {
    let tcp = |port: &&Port| port.protocol == Protocol::Tcp;
    match wanted {
        Wanted::Name(name) => {
            let named = || declared.iter().filter(|p| p.name.as_ref() == Some(name));
            match (named().find(tcp), named().next()) {
                (Some(port), _) => Ok(port.number),
                (None, Some(port)) => Err(PortError::Datagrams(port.number)),
                (None, None) => Err(PortError::Unknown {
                    name: name.clone(),
                    declared: words(declared),
                }),
            }
        }
        Wanted::Number(number) => {
            let number = *number;
            if also(number) || declares(declared, number) {
                return Ok(number);
            }
            match declared.iter().any(|port| port.number == number) {
                true => Err(PortError::Datagrams(number)),
                false => Err(PortError::Undeclared {
                    number,
                    declared: words(declared),
                }),
            }
        }
    }
}

/// Whether this TCP port is declared.
pub fn declares(declared: &[Port], number: u16) -> bool {
    declared
        .iter()
        .any(|port| port.number == number && port.protocol == Protocol::Tcp)
}

fn words(declared: &[Port]) -> String {
    let one = |port: &Port| match &port.name {
        Some(name) => format!("{} ({name})", port.number),
        None => port.number.to_string(),
    };
    let all: Vec<_> = declared
        .iter()
        .filter(|port| port.protocol == Protocol::Tcp)
        .map(one)
        .collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Vec<Port> {
        let port = |number, name: Option<&str>, protocol| Port {
            name: name.map(str::to_owned),
            number,
            protocol,
        };
        vec![
            port(8080, Some("http"), Protocol::Tcp),
            port(53, Some("dns"), Protocol::Udp),
            port(9000, None, Protocol::Tcp),
        ]
    }

    #[test]
    fn declared_ports_and_ssh_are_forwarded_and_no_others() {
        let udp = |number| Err(PortError::Datagrams(number));
        for (text, expected) in [
            ("8080", Ok(8080)),
            ("http", Ok(8080)),
            ("9000", Ok(9000)),
            ("22", Ok(22)),
            ("53", udp(53)),
            ("dns", udp(53)),
        ] {
            let wanted = Wanted::read(text).unwrap();
            assert_eq!(find(&wanted, &declared(), false), expected, "{text}");
        }
        let other = Wanted::Number(6443);
        let error = find(&other, &declared(), false).unwrap_err().to_string();
        assert!(error.contains("declared are 8080 (http), 9000"), "{error}");
        assert_eq!(find(&other, &declared(), true), Ok(6443));
        let ssh = Wanted::Number(SSH);
        assert!(find_declared(&ssh, &declared(), false).is_err());
        assert_eq!(find_declared(&ssh, &declared(), true), Ok(22));
        let name = Wanted::Name("nope".into());
        assert!(matches!(
            find(&name, &declared(), true),
            Err(PortError::Unknown { .. })
        ));
    }

    #[test]
    fn what_is_no_port_is_refused() {
        let long = "x".repeat(64);
        for text in ["", "0", "65536", "+80", "8080/tcp", "1.2", "a b", &long] {
            assert!(Wanted::read(text).is_err(), "{text:?}");
        }
        assert_eq!(Wanted::read("0080"), Ok(Wanted::Number(80)));
    }
}
