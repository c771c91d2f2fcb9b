//! What a path asks for.

use http::Method;

/// The group that is served here.
pub const GROUP: &str = "subresources.kubevirt.io";
/// The versions, preferred one first; both mean the same.
pub const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

/// An object in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The serial console of an instance.
    Console(Named),
    /// The display of an instance.
    Vnc(Named),
    /// A picture of the display.
    Screenshot(Named),
    /// A port of an instance.
    InstancePort(Named, Port),
    /// A port of a machine's instance.
    MachinePort(Named, Port),
    /// Something done to a guest.
    Guest(Named, GuestVerb),
    /// What the guest's agent knows.
    AgentFacts(Named),
    /// A machine's run state.
    Power(Named, PowerVerb),
    /// A migration of a machine's instance.
    Migrate(Named),
    /// The checker's verdict on a namespace, or on all: localvirt's own.
    Verdict(Option<String>),
    /// The checker begins anew.
    Anew(Option<String>),
}

/// A port as it stands in the path: not checked, like KubeVirt's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, or what stands for it.
    pub port: String,
    /// `tcp` unless the path says more.
    pub protocol: String,
}

/// What can be done to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestVerb {
    /// Stop its processors.
    Pause,
    /// Let them run.
    Unpause,
    /// Press the reset button.
    Reset,
    /// Reboot by way of the guest's operating system.
    SoftReboot,
}

/// What can be done to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerVerb {
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Both.
    Restart,
}

/// Why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Nothing is there.
    NotFound,
    /// Something is there, for another method.
    MethodNotAllowed,
}

/// Reads a path, which may end in a slash.
///
/// # Errors
/// When nothing is served there, or not with this method.
pub fn parse(method: &Method, path: &str) -> Result<Route, NoRoute> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if let Some(namespace) = checked(&parts) {
        return match *method {
            Method::GET => Ok(Route::Verdict(namespace)),
            Method::DELETE => Ok(Route::Anew(namespace)),
            _ => Err(NoRoute::MethodNotAllowed),
        };
    }
    let [
        "apis",
        GROUP,
        version,
        "namespaces",
        namespace,
        resource,
        name,
        rest @ ..,
    ] = parts.as_slice()
    else {
        return Err(NoRoute::NotFound);
    };
    if !VERSIONS.contains(version) {
        return Err(NoRoute::NotFound);
    }
    let object = Named {
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
    };
    let (route, wanted) = match *resource {
        "virtualmachineinstances" => instance(object, rest),
        "virtualmachines" => machine(object, rest),
        _ => None,
    }
    .ok_or(NoRoute::NotFound)?;
    if method == wanted {
        Ok(route)
    } else {
        Err(NoRoute::MethodNotAllowed)
    }
}

/// Where the checker's verdict is read: the resource and the name, in a namespace or in all of them.
pub const CHECKER: [&str; 2] = ["localvirt", "checker"];

fn checked(parts: &[&str]) -> Option<Option<String>> {
    let ["apis", GROUP, version, rest @ ..] = parts else {
        return None;
    };
    if !VERSIONS.contains(version) {
        return None;
    }
    match rest {
        ["namespaces", namespace, resource, name] if CHECKER == [*resource, *name] => {
            Some(Some((*namespace).to_owned()))
        }
        [resource, name] if CHECKER == [*resource, *name] => Some(None),
        _ => None,
    }
}

fn instance(object: Named, rest: &[&str]) -> Option<(Route, Method)> {
    let route = match rest {
        ["console"] => Route::Console(object),
        ["vnc"] => Route::Vnc(object),
        ["vnc", "screenshot"] => Route::Screenshot(object),
        ["portforward", port @ ..] => Route::InstancePort(object, parse_port(port)?),
        ["guestosinfo" | "userlist" | "filesystemlist"] => Route::AgentFacts(object),
        [verb] => return Some((Route::Guest(object, guest_verb(verb)?), Method::PUT)),
        _ => return None,
    };
    Some((route, Method::GET))
}

fn guest_verb(word: &str) -> Option<GuestVerb> {
    Some(match word {
        "pause" => GuestVerb::Pause,
        "unpause" => GuestVerb::Unpause,
        "reset" => GuestVerb::Reset,
        "softreboot" => GuestVerb::SoftReboot,
        _ => return None,
    })
}

fn machine(object: Named, rest: &[&str]) -> Option<(Route, Method)> {
    let verb = match rest {
        ["portforward", port @ ..] => {
            return Some((Route::MachinePort(object, parse_port(port)?), Method::GET));
        }
        ["migrate"] => return Some((Route::Migrate(object), Method::PUT)),
        ["start"] => PowerVerb::Start,
        ["stop"] => PowerVerb::Stop,
        ["restart"] => PowerVerb::Restart,
        _ => return None,
    };
    Some((Route::Power(object, verb), Method::PUT))
}

fn parse_port(parts: &[&str]) -> Option<Port> {
    let (port, protocol) = match parts {
        [port] => (port, "tcp"),
        [port, protocol] => (port, *protocol),
        _ => return None,
    };
    Some(Port {
        port: (*port).to_owned(),
        protocol: protocol.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(method: &str, rest: &str) -> Result<Route, NoRoute> {
        parse(
            &method.parse().unwrap(),
            &format!("/apis/{GROUP}/v1/namespaces/ns/{rest}"),
        )
    }

    fn demo() -> Named {
        Named {
            namespace: "ns".into(),
            name: "demo".into(),
        }
    }

    fn port(port: &str, protocol: &str) -> Port {
        Port {
            port: port.into(),
            protocol: protocol.into(),
        }
    }

    #[test]
    fn every_subresource_has_its_route() {
        let cases = [
            (
                "GET",
                "virtualmachineinstances/demo/console",
                Route::Console(demo()),
            ),
            (
                "GET",
                "virtualmachineinstances/demo/console/",
                Route::Console(demo()),
            ),
            (
                "GET",
                "virtualmachineinstances/demo/vnc",
                Route::Vnc(demo()),
            ),
            (
                "GET",
                "virtualmachineinstances/demo/vnc/screenshot",
                Route::Screenshot(demo()),
            ),
            (
                "GET",
                "virtualmachineinstances/demo/portforward/22",
                Route::InstancePort(demo(), port("22", "tcp")),
            ),
            (
                "GET",
                "virtualmachineinstances/demo/portforward/53/udp",
                Route::InstancePort(demo(), port("53", "udp")),
            ),
            (
                "GET",
                "virtualmachines/demo/portforward/22",
                Route::MachinePort(demo(), port("22", "tcp")),
            ),
            (
                "PUT",
                "virtualmachineinstances/demo/pause",
                Route::Guest(demo(), GuestVerb::Pause),
            ),
            (
                "PUT",
                "virtualmachineinstances/demo/softreboot",
                Route::Guest(demo(), GuestVerb::SoftReboot),
            ),
            (
                "GET",
                "virtualmachineinstances/demo/guestosinfo",
                Route::AgentFacts(demo()),
            ),
            (
                "PUT",
                "virtualmachines/demo/migrate",
                Route::Migrate(demo()),
            ),
            (
                "GET",
                "localvirt/checker",
                Route::Verdict(Some("ns".into())),
            ),
            (
                "DELETE",
                "localvirt/checker",
                Route::Anew(Some("ns".into())),
            ),
            (
                "PUT",
                "virtualmachines/demo/restart",
                Route::Power(demo(), PowerVerb::Restart),
            ),
        ];
        for (method, path, want) in cases {
            assert_eq!(at(method, path), Ok(want), "{method} {path}");
        }
    }

    #[test]
    fn other_paths_and_methods_are_refused_apart() {
        let cases = [
            ("PUT", "localvirt/checker", NoRoute::MethodNotAllowed),
            ("GET", "localvirt/other", NoRoute::NotFound),
            ("GET", "virtualmachines/demo/console", NoRoute::NotFound),
            ("GET", "virtualmachineinstances/demo/ssh", NoRoute::NotFound),
            (
                "GET",
                "virtualmachineinstances/demo/portforward",
                NoRoute::NotFound,
            ),
            (
                "GET",
                "virtualmachineinstances/demo/portforward/1/tcp/x",
                NoRoute::NotFound,
            ),
            (
                "POST",
                "virtualmachineinstances/demo/console",
                NoRoute::MethodNotAllowed,
            ),
            (
                "GET",
                "virtualmachines/demo/start",
                NoRoute::MethodNotAllowed,
            ),
        ];
        for (method, path, want) in cases {
            assert_eq!(at(method, path), Err(want), "{method} {path}");
        }
        let all = format!("/apis/{GROUP}/v1/localvirt/checker");
        assert_eq!(parse(&Method::GET, &all), Ok(Route::Verdict(None)));
        let other = "/apis/other/v1/namespaces/ns/virtualmachines/demo/start";
        assert_eq!(parse(&Method::PUT, other), Err(NoRoute::NotFound));
        let v2 = format!("/apis/{GROUP}/v2/namespaces/ns/virtualmachineinstances/demo/console");
        assert_eq!(parse(&Method::GET, &v2), Err(NoRoute::NotFound));
    }
}
