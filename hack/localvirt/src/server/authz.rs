//! What a request wants, in the words of RBAC.
//!
//! Mirrors `pkg/virt-api/rest/authorizer.go`: all segments behind the name are the subresource, except that a
//! port and its protocol do not count.

use http::Method;
use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::route::{CHECKER, GROUP};

/// A path that no review can be asked about: 401 with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown api endpoint: {0}")]
pub struct Unknown(String);

/// The attributes to review.
///
/// # Errors
/// For every path that is no subresource of a machine or an instance.
pub fn attributes(method: &Method, path: &str) -> Result<ResourceAttributes, Unknown> {
    let unknown = || Unknown(path.to_owned());
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    if let ["", "apis", GROUP, version, rest @ ..] = parts.as_slice()
        && let Some(namespace) = checker_of(rest)
    {
        let verb = verb(method).ok_or_else(unknown)?;
        return Ok(checker(version, namespace, verb));
    }
    let [
        "",
        "apis",
        GROUP,
        version,
        "namespaces",
        namespace,
        resource,
        name,
        first,
        rest @ ..,
    ] = parts.as_slice()
    else {
        return Err(unknown());
    };
    if !["virtualmachines", "virtualmachineinstances"].contains(resource) {
        return Err(unknown());
    }
    let subresource = match *first {
        "portforward" => (*first).to_owned(),
        _ => [&[*first], rest].concat().join("/"),
    };
    Ok(ResourceAttributes {
        namespace: Some((*namespace).to_owned()),
        verb: Some(verb(method).ok_or_else(unknown)?.to_owned()),
        group: Some(GROUP.to_owned()),
        version: Some((*version).to_owned()),
        resource: Some((*resource).to_owned()),
        subresource: Some(subresource),
        name: Some((*name).to_owned()),
        ..ResourceAttributes::default()
    })
}

/// localvirt's own resource: the namespace that is asked about, if it is one.
fn checker_of<'a>(rest: &[&'a str]) -> Option<Option<&'a str>> {
    match rest {
        ["namespaces", namespace, resource, name] if CHECKER == [*resource, *name] => {
            Some(Some(*namespace))
        }
        [resource, name] if CHECKER == [*resource, *name] => Some(None),
        _ => None,
    }
}

fn checker(version: &str, namespace: Option<&str>, verb: &str) -> ResourceAttributes {
    let [resource, name] = CHECKER.map(str::to_owned);
    ResourceAttributes {
        namespace: namespace.map(str::to_owned),
        verb: Some(verb.to_owned()),
        group: Some(GROUP.to_owned()),
        version: Some(version.to_owned()),
        resource: Some(resource),
        name: Some(name),
        ..ResourceAttributes::default()
    }
}

fn verb(method: &Method) -> Option<&'static str> {
    Some(match *method {
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_subresource_is_asked_about() {
        let cases = [
            (
                "GET",
                "virtualmachineinstances/demo/console",
                "get",
                "console",
            ),
            (
                "GET",
                "virtualmachineinstances/demo/vnc/screenshot",
                "get",
                "vnc/screenshot",
            ),
            (
                "GET",
                "virtualmachineinstances/demo/portforward/22/tcp",
                "get",
                "portforward",
            ),
            ("PUT", "virtualmachines/demo/start", "update", "start"),
            (
                "PUT",
                "virtualmachines/demo/evacuate/cancel",
                "update",
                "evacuate/cancel",
            ),
        ];
        for (method, path, verb, subresource) in cases {
            let full = format!("/apis/{GROUP}/v1/namespaces/ns/{path}");
            let attributes = attributes(&method.parse().unwrap(), &full).unwrap();
            assert_eq!(attributes.verb.as_deref(), Some(verb), "{path}");
            assert_eq!(
                attributes.subresource.as_deref(),
                Some(subresource),
                "{path}"
            );
            assert_eq!(attributes.name.as_deref(), Some("demo"), "{path}");
        }
    }

    #[test]
    fn the_checker_is_a_resource_of_its_own() {
        for (path, namespace) in [
            ("namespaces/ns/localvirt/checker", Some("ns")),
            ("localvirt/checker", None),
        ] {
            let full = format!("/apis/{GROUP}/v1/{path}");
            let asked = attributes(&Method::DELETE, &full).unwrap();
            assert_eq!(asked.namespace.as_deref(), namespace);
            assert_eq!(
                (asked.resource.as_deref(), asked.name.as_deref()),
                (Some("localvirt"), Some("checker"))
            );
            assert_eq!(asked.verb.as_deref(), Some("delete"));
            assert_eq!(asked.subresource, None);
        }
    }

    #[test]
    fn what_cannot_be_asked_about_is_unknown() {
        let pods = format!("/apis/{GROUP}/v1/namespaces/ns/pods/p/log");
        for path in ["/livez", "/apis/other.io", &pods] {
            let error = attributes(&Method::GET, path).unwrap_err();
            assert_eq!(error.to_string(), format!("unknown api endpoint: {path}"));
        }
    }
}
