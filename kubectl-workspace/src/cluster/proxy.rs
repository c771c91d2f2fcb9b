//! Which proxy leads to the API server: the kubeconfig's `proxy-url`, else what the environment says as Go reads it
//! (`golang.org/x/net/http/httpproxy`). Entry point: [`choose`].

use std::net::IpAddr;

use http::Uri;

/// The proxy for `server`, if there is one. A `proxy-url` is meant for its cluster whatever NO_PROXY says.
pub(super) fn choose(
    server: &Uri,
    proxy_url: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, String> {
    if let Some(url) = proxy_url {
        return parse("proxy-url", url).map(Some);
    }
    let either = |upper: &'static str, lower: &'static str| {
        let found = |name: &'static str| Some((name, environment(name).filter(|v| !v.is_empty())?));
        found(upper).or_else(|| found(lower))
    };
    let named = match server.scheme_str() {
        Some("https") => either("HTTPS_PROXY", "https_proxy"),
        _ => either("HTTP_PROXY", "http_proxy"),
    };
    let Some((name, url)) = named else {
        return Ok(None);
    };
    let exceptions = either("NO_PROXY", "no_proxy").map_or_else(String::new, |(_, value)| value);
    if goes_direct(server, &exceptions) {
        return Ok(None);
    }
    parse(name, &url).map(Some)
}

/// `host:port` alone is an http proxy.
fn parse(name: &str, url: &str) -> Result<Uri, String> {
    let full = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    match full.parse::<Uri>() {
        Ok(uri) if uri.host().is_none() => Err(format!("{name} is no URL with a host")),
        Ok(uri) if matches!(uri.scheme_str(), Some("http" | "https")) => Ok(uri),
        Ok(uri) => Err(format!(
            "{name} is a {} proxy, which this plugin cannot use: give it an http or https one",
            uri.scheme_str().unwrap_or_default()
        )),
        // the text may have a password in it
        Err(_) => Err(format!("{name} is no URL")),
    }
}

/// The machine itself is never reached through a proxy.
fn goes_direct(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let port = server
        .port_u16()
        .unwrap_or(if server.scheme_str() == Some("https") {
            443
        } else {
            80
        });
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|a| a.is_loopback()) {
        return true;
    }
    exceptions
        .split(',')
        .map(|rule| rule.trim().to_ascii_lowercase())
        .any(|rule| matches(&rule, &host, address, port))
}

fn matches(rule: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if rule.is_empty() {
        return false;
    }
    if rule == "*" {
        return true;
    }
    if let Some((network, length)) = rule.split_once('/') {
        return address.is_some_and(|a| in_network(a, network, length));
    }
    if let Ok(ip) = rule.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address == Some(ip);
    }
    let (name, wanted) = match rule.rsplit_once(':') {
        Some((name, text)) => match text.parse() {
            Ok(number) => (name, Some(number)),
            Err(_) => return false,
        },
        None => (rule, None),
    };
    if wanted.is_some_and(|wanted: u16| wanted != port) {
        return false;
    }
    let name = name.trim_matches(['[', ']']);
    if let Ok(ip) = name.parse::<IpAddr>() {
        return address == Some(ip);
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(domain) => host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.')),
        None => {
            host == name
                || host
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with('.'))
        }
    }
}

fn in_network(address: IpAddr, network: &str, length: &str) -> bool {
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let ((address, width), (network, other)) = (bits(address), bits(network));
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    width == other && length <= width && address & mask == network & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(server: &str, url: Option<&str>, environment: &[(&str, &str)]) -> Option<String> {
        let value = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let uri = choose(&server.parse().unwrap(), url, value).unwrap()?;
        Some(uri.to_string())
    }

    #[test]
    fn the_kubeconfig_wins_over_the_environment() {
        let environment = [("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "*")];
        let url = chosen("https://api.example", Some("http://mine:2"), &environment);
        assert_eq!(url.as_deref(), Some("http://mine:2/"));
    }

    #[test]
    fn the_environment_is_read_as_go_reads_it() {
        let https = ("HTTPS_PROXY", "http://p:1");
        type Environment<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, Environment<'_>, bool); 17] = [
            ("https://api.example", &[https], true),
            ("https://api.example", &[("https_proxy", "p:1")], true),
            ("http://api.example", &[https], false),
            ("http://api.example", &[("HTTP_PROXY", "http://p:1")], true),
            ("https://localhost:6443", &[https], false),
            ("https://127.0.0.1:6443", &[https], false),
            ("https://[::1]:6443", &[https], false),
            ("https://api.example", &[https, ("NO_PROXY", "*")], false),
            (
                "https://api.example",
                &[https, ("NO_PROXY", "x, example")],
                false,
            ),
            (
                "https://api.example",
                &[https, ("no_proxy", ".example")],
                false,
            ),
            ("https://example", &[https, ("NO_PROXY", ".example")], true),
            (
                "https://badexample",
                &[https, ("NO_PROXY", "example")],
                true,
            ),
            (
                "https://api.example:6443",
                &[https, ("NO_PROXY", "api.example:443")],
                true,
            ),
            (
                "https://10.1.2.3:6443",
                &[https, ("NO_PROXY", "10.0.0.0/8")],
                false,
            ),
            (
                "https://11.1.2.3:6443",
                &[https, ("NO_PROXY", "10.0.0.0/8")],
                true,
            ),
            (
                "https://[fd00::5]",
                &[https, ("NO_PROXY", "fd00::/16")],
                false,
            ),
            // the rule is for the server, not for the proxy
            ("https://api.example", &[https, ("NO_PROXY", "p")], true),
        ];
        for (server, environment, proxied) in cases {
            let url = chosen(server, None, environment);
            let expected = proxied.then(|| "http://p:1/".to_owned());
            assert_eq!(url, expected, "{server} {environment:?}");
        }
    }

    #[test]
    fn what_is_no_url_is_named() {
        for (url, word) in [
            ("http://", "proxy-url"),
            ("http://a b:secret@x", "proxy-url"),
            ("socks5://x:1", "socks5"),
        ] {
            let chosen = choose(&"https://x".parse().unwrap(), Some(url), |_| None);
            let error = chosen.unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
    }
}
