//! `/livez`, `/readyz` and `/healthz`: named checks, in the format of
//! `k8s.io/apiserver/pkg/server/healthz`.
//!
//! Entry point: [`Health`]. A check looks at what is known already and never waits. These paths are
//! open to everybody, so a reason is written for everybody: no names of users, no addresses.

use http::{Response, StatusCode};
use tokio_util::sync::CancellationToken;

use crate::{Body, request, respond};

/// Says what is wrong, if anything is.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

struct Named {
    name: &'static str,
    check: Check,
}

/// The checks.
pub struct Health {
    live: Vec<Named>,
    ready: Vec<Named>,
}

impl Health {
    /// Nothing to check but that requests are answered, and that no shutdown has begun.
    pub fn new(shutting_down: CancellationToken) -> Self {
        let shutdown = move || match shutting_down.is_cancelled() {
            true => Err("the server is shutting down".to_owned()),
            false => Ok(()),
        };
        Self {
            live: vec![Named {
                name: "ping",
                check: Box::new(|| Ok(())),
            }],
            ready: vec![Named {
                name: "shutdown",
                check: Box::new(shutdown),
            }],
        }
    }

    /// Adds a check whose failure means: restart me.
    #[must_use]
    pub fn live(mut self, name: &'static str, check: Check) -> Self {
        self.live.push(Named { name, check });
        self
    }

    /// Adds a check whose failure means: send me no requests.
    #[must_use]
    pub fn ready(mut self, name: &'static str, check: Check) -> Self {
        self.ready.push(Named { name, check });
        self
    }

    /// Answers a health path; `None` when it is none.
    pub fn answer(&self, path: &str, query: &str) -> Option<Response<Body>> {
        let mut segments = path.trim_matches('/').split('/');
        let endpoint = segments.next()?;
        let checks: Vec<&Named> = match endpoint {
            "healthz" | "livez" => self.live.iter().collect(),
            "readyz" => self.live.iter().chain(&self.ready).collect(),
            _ => return None,
        };
        match (segments.next(), segments.next()) {
            (None, _) => Some(report(endpoint, &checks, query)),
            (Some(name), None) => {
                let one = checks.into_iter().find(|check| check.name == name)?;
                Some(report(endpoint, &[one], query))
            }
            _ => None,
        }
    }
}

/// Whether a path is one that kubelets and kube-apiserver ask every few seconds.
pub fn is_probe(path: &str) -> bool {
    let first = path.trim_matches('/').split('/').next();
    matches!(first, Some("healthz" | "livez" | "readyz"))
}

fn report(endpoint: &str, checks: &[&Named], query: &str) -> Response<Body> {
    let excluded = excluded(query);
    let mut lines = String::new();
    let mut failed = Vec::new();
    for Named { name, check } in checks {
        let line = if excluded.iter().any(|e| e == name) {
            format!("[+]{name} excluded: ok\n")
        } else {
            match check() {
                Ok(()) => format!("[+]{name} ok\n"),
                Err(reason) => {
                    failed.push(format!("{name}: {reason}"));
                    format!("[-]{name} failed: {reason}\n")
                }
            }
        };
        lines.push_str(&line);
    }
    let unmatched: Vec<String> = excluded
        .iter()
        .filter(|e| checks.iter().all(|check| check.name != *e))
        .map(|e| format!("{e:?}"))
        .collect();
    if !unmatched.is_empty() {
        let list = unmatched.join(",");
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {list}\n"
        ));
    }
    if !failed.is_empty() {
        tracing::info!(endpoint, failed = failed.join("; "), "health check failed");
        let text = format!("{lines}{endpoint} check failed\n");
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, text);
    }
    if request::first(query, "verbose").is_some() {
        return respond::text(StatusCode::OK, format!("{lines}{endpoint} check passed\n"));
    }
    respond::text(StatusCode::OK, "ok")
}

fn excluded(query: &str) -> Vec<String> {
    query
        .split('&')
        .filter_map(|pair| request::first(pair, "exclude"))
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(health: &Health, url: &str) -> (u16, String) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let response = health.answer(path, query).unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn checks_are_reported_by_name() {
        let stopping = CancellationToken::new();
        let health = Health::new(stopping.clone())
            .live("alive", Box::new(|| Ok(())))
            .ready("trust", Box::new(|| Err("no CA yet".into())));
        for (url, code, text) in [
            ("/livez", 200, "ok"),
            ("/healthz", 200, "ok"),
            (
                "/livez?verbose",
                200,
                "[+]ping ok\n[+]alive ok\nlivez check passed\n",
            ),
            (
                "/livez?exclude=nope&verbose",
                200,
                "[+]ping ok\n[+]alive ok\nwarn: some health checks cannot be excluded: no matches for \"nope\"\nlivez check passed\n",
            ),
            (
                "/readyz",
                500,
                "[+]ping ok\n[+]alive ok\n[+]shutdown ok\n[-]trust failed: no CA yet\nreadyz check failed\n",
            ),
            ("/readyz?exclude=trust", 200, "ok"),
            (
                "/readyz?verbose&exclude=trust&exclude=alive",
                200,
                "[+]ping ok\n[+]alive excluded: ok\n[+]shutdown ok\n[+]trust excluded: ok\nreadyz check passed\n",
            ),
            (
                "/readyz/trust",
                500,
                "[-]trust failed: no CA yet\nreadyz check failed\n",
            ),
            ("/readyz/alive", 200, "ok"),
        ] {
            assert_eq!(ask(&health, url).await, (code, text.to_owned()), "{url}");
        }
        for path in ["/livez/trust", "/readyz/a/b", "/health", "/"] {
            assert!(health.answer(path, "").is_none(), "{path}");
        }
        stopping.cancel();
        assert_eq!(ask(&health, "/readyz/shutdown").await.0, 500);
        assert_eq!(ask(&health, "/livez").await.0, 200);
    }
}
