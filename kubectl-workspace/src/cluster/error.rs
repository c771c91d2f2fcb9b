//! Why a request was not answered as hoped, and what the server said. Entry points: [`ClusterError`], [`Refusal`].

use std::time::Duration;

use serde_json::Value;

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig or a flag.
    #[error("the kubeconfig cannot be used: {0}")]
    Config(String),
    /// The credential plugin.
    #[error("{0}")]
    Credentials(String),
    /// The server cannot be reached.
    #[error("cannot reach the API server {server}: {why}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why not.
        why: String,
    },
    /// The request took too long.
    #[error("the API server did not answer within {0:?} (--request-timeout)")]
    Timeout(Duration),
    /// The server said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer cannot be read.
    #[error("the API server's answer cannot be read: {0}")]
    Answer(String),
}

impl ClusterError {
    /// The HTTP code, when there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }
}

/// A `metav1.Status` that says no, or what a proxy sent in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP code.
    pub code: u16,
    /// In the server's words.
    pub message: String,
    /// Seconds after which it is worth asking again.
    pub retry_after: Option<u64>,
    /// `details.causes`: reason, field, message.
    pub causes: Vec<(String, String, String)>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match (self.code, self.retry_after) {
            (401, _) => {
                f.write_str(": the credentials of the kubeconfig are not accepted; log in again")
            }
            (429, Some(seconds)) => write!(f, ": try again in {seconds} s"),
            _ => Ok(()),
        }
    }
}

impl Refusal {
    /// Takes an answer apart.
    pub fn read(code: u16, retry_after: Option<u64>, body: &[u8]) -> Self {
        let status: Option<Value> = serde_json::from_slice(body).ok();
        let Some(status) = status.filter(|status| status["message"].is_string()) else {
            return Self {
                code,
                message: foreign(code, String::from_utf8_lossy(body).trim()),
                retry_after,
                causes: Vec::new(),
            };
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = status["details"]["causes"].as_array();
        Self {
            code,
            message: text(&status["message"]),
            retry_after,
            causes: causes
                .into_iter()
                .flatten()
                .map(|c| (text(&c["reason"]), text(&c["field"]), text(&c["message"])))
                .collect(),
        }
    }
}

/// No Status: something between here and kube-apiserver has answered.
fn foreign(code: u16, body: &str) -> String {
    match code {
        403 if body.eq_ignore_ascii_case("forbidden") => {
            "a proxy between here and the API server refuses this request: kubectl proxy has --accept-paths, --reject-paths, --accept-hosts and --reject-methods for that".into()
        }
        _ => format!("HTTP {code}: {}", body.chars().take(300).collect::<String>()),
    }
}

/// An error with its causes, of which the last is mostly the one that helps.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let cases: [(u16, Option<u64>, &str, &str); 5] = [
            (
                403,
                None,
                r#"{"kind":"Status","message":"forbidden: no","code":403}"#,
                "forbidden: no",
            ),
            (
                429,
                Some(2),
                r#"{"message":"too many"}"#,
                "too many: try again in 2 s",
            ),
            (
                401,
                None,
                r#"{"message":"Unauthorized"}"#,
                "Unauthorized: the credentials of the kubeconfig are not accepted; log in again",
            ),
            (502, None, "bad gateway\n", "HTTP 502: bad gateway"),
            (500, None, "[1]", "HTTP 500: [1]"),
        ];
        for (code, retry, body, expected) in cases {
            assert_eq!(
                Refusal::read(code, retry, body.as_bytes()).to_string(),
                expected
            );
        }
    }

    #[test]
    fn p_04_a_refusal_by_kubectl_proxy_names_its_flags() {
        let refusal = Refusal::read(403, None, b"Forbidden\n").to_string();
        assert!(
            refusal.contains("--accept-paths") && refusal.contains("--reject-paths"),
            "{refusal}"
        );
    }
}
