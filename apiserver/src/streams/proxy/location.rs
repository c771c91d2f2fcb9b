//! Where a guest's redirect leads, as its client has to spell it. Pure.
//!
//! A reference is resolved as browsers do (RFC 3986 §5, and the URL standard where it is laxer:
//! backslashes are slashes), against what the guest was asked for. What is the guest's own comes out
//! under the prefix, whatever way it was written; everything else is another site, and is named in full.

use super::path::Prefix;

/// Where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the guest: a path under the prefix.
    Inside(String),
    /// To another site: an `http` or `https` URL.
    Outside(String),
    /// Elsewhere: no URL that can be followed with a safe conscience.
    Other(String),
}

impl Target {
    /// As text.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Inside(text) | Self::Outside(text) | Self::Other(text) => text,
        }
    }
}

/// Names under which a guest may know itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    port: u16,
    /// What the client called us, if that is known.
    forwarded: Option<String>,
}

/// Names of a machine for itself.
const LOOPBACKS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Own {
    /// A guest on this port, behind what its client called us.
    pub(super) fn new(port: u16, forwarded: Option<&str>) -> Self {
        Self {
            port,
            forwarded: forwarded.map(str::to_owned),
        }
    }

    /// What the guest is told to be called: what a port forward would call it, which servers for
    /// development accept.
    pub(super) fn host(&self) -> String {
        match self.port {
            80 => "localhost".to_owned(),
            port => format!("localhost:{port}"),
        }
    }

    /// What absolute links to itself begin with.
    pub(super) fn origins(&self) -> Vec<String> {
        let port = match self.port {
            80 => String::new(),
            port => format!(":{port}"),
        };
        let origin = |host| format!("http://{host}{port}");
        LOOPBACKS.map(origin).to_vec()
    }

    fn is(&self, scheme: &str, authority: &str) -> bool {
        let forwarded = self.forwarded.as_deref();
        if forwarded.is_some_and(|own| own.eq_ignore_ascii_case(authority)) {
            return true;
        }
        let default = if scheme == "https" { "443" } else { "80" };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (authority, default),
        };
        let here = LOOPBACKS.iter().any(|own| own.eq_ignore_ascii_case(host));
        here && port.parse() == Ok(self.port)
    }
}

/// Resolves a `Location`; `asked` is the path and query that the guest was asked for.
pub(super) fn resolve(location: &[u8], asked: &str, own: &Own, prefix: &Prefix) -> Target {
    let text = printable(location);
    if let Some((scheme, rest)) = scheme(&text) {
        return match rest.strip_prefix("//") {
            Some(rest) if matches!(scheme.as_str(), "http" | "https") => {
                at_authority(&scheme, rest, own, prefix)
            }
            _ => Target::Other(text),
        };
    }
    if let Some(rest) = text.strip_prefix("//") {
        return at_authority("https", rest, own, prefix);
    }
    let (path, rest) = split(&text);
    let (asked_path, asked_query) = split(asked);
    let inside = match path {
        "" if rest.starts_with('?') => format!("{asked_path}{rest}"),
        "" => format!("{asked_path}{asked_query}{rest}"),
        path if path.starts_with('/') => format!("{}{rest}", without_dots(path)),
        path => {
            let folder = asked_path.rfind('/').map_or("/", |at| &asked_path[..=at]);
            format!("{}{rest}", without_dots(&format!("{folder}{path}")))
        }
    };
    Target::Inside(prefix.join(&inside))
}

fn at_authority(scheme: &str, rest: &str, own: &Own, prefix: &Prefix) -> Target {
    let rest = rest.trim_start_matches('/');
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if authority.is_empty() {
        return Target::Other(format!("{scheme}://{rest}"));
    }
    if !own.is(scheme, authority) {
        return Target::Outside(format!("{scheme}://{authority}{rest}"));
    }
    let (path, rest) = split(rest);
    let path = if path.is_empty() { "/" } else { path };
    Target::Inside(prefix.join(&format!("{}{rest}", without_dots(path))))
}

/// A scheme in lower case, and what follows its colon.
fn scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(word);
    valid.then(|| (scheme.to_ascii_lowercase(), rest))
}

/// The path, and query and fragment.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(['?', '#']).unwrap_or(text.len()))
}

/// What a header may hold and a URL may not is encoded; backslashes before the query are slashes.
fn printable(location: &[u8]) -> String {
    let mut text = String::new();
    let mut in_path = true;
    for byte in location.trim_ascii() {
        in_path &= !matches!(byte, b'?' | b'#');
        match byte {
            b'\t' => {}
            b'\\' if in_path => text.push('/'),
            0x21..=0x7e if !matches!(byte, b'"' | b'<' | b'>') => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// RFC 3986 §5.2.4, for paths that begin with a slash; `%2e` is a dot, as browsers have it.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "." if last => kept.push(""),
            ".." if last => {
                kept.pop();
                kept.push("");
            }
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/w1/proxy";

    fn to(location: &str) -> Target {
        let own = Own::new(8080, Some("kw.example.org:6443"));
        let prefix = Prefix::new("t1", "w1");
        resolve(location.as_bytes(), "/a/b?q=1", &own, &prefix)
    }

    #[test]
    fn s_21_what_is_the_guests_own_keeps_the_prefix() {
        for (location, expected) in [
            ("/login", "/login"),
            ("/", "/"),
            (" /login ", "/login"),
            ("login?next=/x", "/a/login?next=/x"),
            ("../../../x", "/x"),
            ("./", "/a/"),
            ("..", "/"),
            ("%2e%2e/x", "/x"),
            ("/x/../y/.", "/y/"),
            ("?q=2", "/a/b?q=2"),
            ("#top", "/a/b?q=1#top"),
            ("", "/a/b?q=1"),
            ("/a%2Fb", "/a%2Fb"),
            ("/ö <x>", "/%C3%B6%20%3Cx%3E"),
            ("http://localhost:8080/x?y#z", "/x?y#z"),
            ("HTTP://LOCALHOST:8080", "/"),
            ("http://127.0.0.1:8080/x", "/x"),
            ("http://[::1]:8080/x", "/x"),
            ("//localhost:8080/x", "/x"),
            ("https://kw.example.org:6443/x", "/x"),
            (&format!("https://kw.example.org:6443{PREFIX}/x"), "/x"),
            (&format!("{PREFIX}/x"), "/x"),
        ] {
            let expected = Target::Inside(format!("{PREFIX}{expected}"));
            assert_eq!(to(location), expected, "{location:?}");
        }
    }

    #[test]
    fn what_leads_elsewhere_is_named_in_full() {
        for (location, expected) in [
            ("https://example.org/a?b", "https://example.org/a?b"),
            ("http://localhost:9090/x", "http://localhost:9090/x"),
            ("http://localhost/x", "http://localhost/x"),
            ("//evil.example", "https://evil.example"),
            ("/\\evil.example/x", "https://evil.example/x"),
            ("\\\\evil.example", "https://evil.example"),
            ("///evil.example", "https://evil.example"),
            ("http:\\\\evil.example", "http://evil.example"),
            (
                "http://localhost:8080@evil.example/",
                "http://localhost:8080@evil.example/",
            ),
        ] {
            assert_eq!(to(location), Target::Outside(expected.into()), "{location}");
        }
        for location in ["javascript:alert(1)", "data:text/html,x", "https:x", "a:b"] {
            assert_eq!(to(location), Target::Other(location.into()), "{location}");
        }
    }

    #[test]
    fn port_80_is_not_spelled() {
        let own = Own::new(80, None);
        assert_eq!(own.host(), "localhost");
        assert_eq!(own.origins()[0], "http://localhost");
        let prefix = Prefix::new("t1", "w1");
        let target = resolve(b"http://localhost/x", "/", &own, &prefix);
        assert_eq!(target.as_str(), format!("{PREFIX}/x"));
    }
}
