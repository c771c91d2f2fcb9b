//! A request for a stream without its body: what the handler decides over.

use std::sync::Arc;

use apiserver_generic::{
    ApiError, Attributes, Authorizer, Call, UserInfo, audit::Record, endpoints::Query,
    stopwatch::Stopwatch,
};
use apiservice::v1alpha1::GROUP;
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use tokio_util::sync::CancellationToken;

use super::wire::Stdio;

/// What a caller asks for.
pub struct Asked {
    /// Namespace of the workspace.
    pub(super) namespace: String,
    /// Name of the workspace.
    pub(super) name: String,
    /// What follows a colon in the name: `http` of `workspaces/demo:http/proxy`.
    pub(super) named_port: Option<String>,
    /// What follows the subresource in the path.
    pub(super) rest: Vec<String>,
    /// The query, as it was sent.
    pub(super) query: String,
    /// The method.
    pub(super) method: Method,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// Whether `?takeover=true` was said.
    pub(super) takeover: bool,
    /// What a shell gets: pipes after `?tty=false`.
    pub(super) stdio: Stdio,
    /// Who asks.
    pub(super) user: UserInfo,
    /// What was authorized already.
    pub(super) attributes: Attributes,
    /// Asks for more.
    pub(super) authorizer: Arc<dyn Authorizer>,
    /// The request's audit id.
    pub(super) audit_id: Arc<str>,
    /// The request's audit, open until the stream ends.
    pub(super) audit: Record,
    /// Where it came from.
    pub(super) client_address: String,
    /// Cancelled when the server begins to drain.
    pub(super) draining: CancellationToken,
    /// Since the request's head was read.
    pub(super) stopwatch: Stopwatch,
}

impl Asked {
    /// Takes a call apart; the connection is there once the `101` is written.
    pub(super) fn read(mut call: Call) -> (Self, OnUpgrade) {
        let upgrade = hyper::upgrade::on(&mut call.request);
        let peer = call.client.peer.ip();
        let query = call.request.uri().query().unwrap_or_default().to_owned();
        let (name, named_port) = split_port(&call.info.name);
        let asked = Self {
            stdio: wants_stdio(&Query::of(call.request.uri())),
            takeover: wants_takeover(&query),
            query,
            rest: call.info.rest,
            method: call.request.method().clone(),
            headers: std::mem::take(call.request.headers_mut()),
            namespace: call.info.namespace,
            name,
            named_port,
            user: call.authorized.user().clone(),
            attributes: call.authorized.attributes().clone(),
            authorizer: call.authorizer,
            audit_id: call.audit_id,
            audit: call.audit,
            client_address: call
                .client
                .forwarded_for
                .unwrap_or_else(|| peer.to_string()),
            draining: call.draining,
            stopwatch: call.stopwatch,
        };
        (asked, upgrade)
    }

    /// What is needed beside the `get` that was asked for: `create`, since a reader of everything
    /// must not open a shell, and both on `w1` for what is addressed as `w1:port`.
    pub(super) fn further(&self) -> Vec<Attributes> {
        let with = |verb: &str, name: &str| Attributes {
            verb: verb.to_owned(),
            name: name.to_owned(),
            ..self.attributes.clone()
        };
        let mut further = vec![with("create", &self.attributes.name)];
        if self.named_port.is_some() {
            further.extend(["get", "create"].map(|verb| with(verb, &self.name)));
        }
        further
    }

    /// All that a stream needs to be allowed, now and as long as it is open.
    pub(super) fn permissions(&self) -> Vec<Attributes> {
        let first = std::iter::once(self.attributes.clone());
        first.chain(self.further()).collect()
    }

    /// For subresources that have no port: a name with a colon names no workspace.
    ///
    /// # Errors
    /// 404.
    pub(super) fn without_port(&self) -> Result<(), ApiError> {
        match &self.named_port {
            None => Ok(()),
            Some(port) => {
                let name = format!("{}:{port}", self.name);
                Err(ApiError::not_found(GROUP, "workspaces", &name))
            }
        }
    }

    /// What is needed when the stream is opened and not after: pinning new host keys changes the
    /// workspace's status.
    pub(super) fn once(&self) -> Option<Attributes> {
        let update = Attributes {
            verb: "update".to_owned(),
            subresource: String::new(),
            name: self.name.clone(),
            ..self.attributes.clone()
        };
        self.accepts_host_key().then_some(update)
    }

    /// Whether host keys that changed are to be pinned.
    pub(super) fn accepts_host_key(&self) -> bool {
        self.attributes.subresource == "ssh" && says_yes(&self.query, "acceptNewHostKey")
    }

    /// What is needed to end the session of another user.
    pub(super) fn delete_session(&self, session: &str) -> Attributes {
        Attributes {
            verb: "delete".to_owned(),
            resource: "workspacesessions".to_owned(),
            subresource: String::new(),
            name: session.to_owned(),
            ..self.attributes.clone()
        }
    }
}

/// `demo:http` is port `http` of `demo`; no name contains a colon.
fn split_port(name: &str) -> (String, Option<String>) {
    match name.split_once(':') {
        Some((name, port)) => (name.to_owned(), Some(port.to_owned())),
        None => (name.to_owned(), None),
    }
}

fn wants_takeover(query: &str) -> bool {
    says_yes(query, "takeover")
}

/// Whether a switch is on: a misspelled yes is a no.
fn says_yes(query: &str, switch: &str) -> bool {
    let said = |pair: &str| matches!(pair.strip_prefix(switch), Some("" | "=true" | "=1"));
    query.split('&').any(said)
}

/// `tty` as `pods/exec` reads a boolean. Unlike there, a console that does not say has a terminal.
fn wants_stdio(query: &Query) -> Stdio {
    match query.switch("tty") {
        Some(false) => Stdio::Pipes,
        Some(true) | None => Stdio::Terminal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_has_a_terminal_unless_it_is_told_not_to() {
        for (query, expected) in [
            ("", Stdio::Terminal),
            ("tty", Stdio::Terminal),
            ("tty=no", Stdio::Terminal),
            ("xtty=false", Stdio::Terminal),
            ("tty=true&tty=false", Stdio::Terminal),
            ("takeover=true&tty=False", Stdio::Pipes),
            ("tty=0", Stdio::Pipes),
            ("tty=fals%65", Stdio::Pipes),
        ] {
            let query = Query::of(&format!("/console?{query}").parse().unwrap());
            assert_eq!(wants_stdio(&query), expected, "{query:?}");
        }
    }

    #[test]
    fn only_a_plain_yes_takes_over() {
        for (query, expected) in [
            ("takeover=true", true),
            ("a=b&takeover=1", true),
            ("takeover=false", false),
            ("xtakeover=true", false),
            ("", false),
        ] {
            assert_eq!(wants_takeover(query), expected, "{query:?}");
        }
    }
}
