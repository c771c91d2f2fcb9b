//! Which subprotocol a stream speaks with its client (RFC 6455 §4.2.2, `Sec-WebSocket-Protocol`).
//!
//! The client's order decides. kube-apiserver has consumed its bearer-token item already; on a direct
//! connection the item is still there and is never chosen and never repeated in a message.

use apiserver_generic::ApiError;

/// Prefix of the item with which browsers hand over a token.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// What a client may speak; which of them depends on the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subprotocol {
    /// KubeVirt's own: binary messages are bytes.
    Plain,
    /// noVNC's and xterm.js's word for the same.
    Binary,
    /// Nothing was offered: bytes, and no header in the answer.
    Unnamed,
    /// Kubernetes remote command with stream close (KEP-4006).
    ChannelV5,
    /// Kubernetes remote command.
    ChannelV4,
    /// Bytes with an end of each direction: the first byte of a message is 0 for data, 1 for the end
    /// of the sender's data.
    Tunnel,
}

impl Subprotocol {
    /// The name on the wire.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Plain => Some("plain.kubevirt.io"),
            Self::Binary => Some("binary"),
            Self::ChannelV5 => Some("v5.channel.k8s.io"),
            Self::ChannelV4 => Some("v4.channel.k8s.io"),
            Self::Tunnel => Some("v1.tunnel.kubeworkspaces.io"),
            Self::Unnamed => None,
        }
    }
}

/// Chooses one of `known` from the values of all `Sec-WebSocket-Protocol` headers, joined in their
/// order.
///
/// # Errors
/// 400 when something is offered and nothing of it is known.
pub fn negotiate<'a>(
    headers: impl IntoIterator<Item = &'a str>,
    known: &[Subprotocol],
) -> Result<Subprotocol, ApiError> {
    let offered: Vec<&str> = headers
        .into_iter()
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|item| !item.is_empty() && !item.starts_with(BEARER))
        .collect();
    if offered.is_empty() {
        return Ok(Subprotocol::Unnamed);
    }
    let parse = |item: &str| known.iter().find(|p| p.name() == Some(item)).copied();
    offered
        .into_iter()
        .find_map(parse)
        .ok_or_else(|| unknown(known))
}

fn unknown(known: &[Subprotocol]) -> ApiError {
    let known: Vec<_> = known.iter().filter_map(|p| p.name()).collect();
    ApiError::bad_request(format!(
        "none of the offered WebSocket subprotocols is supported; offer one of {}, or none for plain bytes",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Subprotocol; 4] = [
        Subprotocol::Plain,
        Subprotocol::Binary,
        Subprotocol::ChannelV5,
        Subprotocol::ChannelV4,
    ];

    #[test]
    fn the_clients_order_decides() {
        let cases: &[(&[&str], Subprotocol)] = &[
            (&[], Subprotocol::Unnamed),
            (&[""], Subprotocol::Unnamed),
            (&["binary"], Subprotocol::Binary),
            (&["foo, binary"], Subprotocol::Binary),
            (&["plain.kubevirt.io,v5.channel.k8s.io"], Subprotocol::Plain),
            (
                &["v4.channel.k8s.io", "v5.channel.k8s.io"],
                Subprotocol::ChannelV4,
            ),
            (&["foo", "v5.channel.k8s.io"], Subprotocol::ChannelV5),
            (
                &["base64url.bearer.authorization.k8s.io.dG9r, plain.kubevirt.io"],
                Subprotocol::Plain,
            ),
        ];
        for (offered, expected) in cases {
            assert_eq!(
                negotiate(offered.iter().copied(), &KNOWN).ok(),
                Some(*expected),
                "{offered:?}"
            );
        }
    }

    #[test]
    fn an_unknown_offer_is_refused_with_the_list_and_not_repeated() {
        let error = negotiate(["foo-secret"], &KNOWN).unwrap_err();
        assert_eq!(error.reason.code(), 400);
        assert!(error.message.contains("v4.channel.k8s.io"));
        assert!(!error.message.contains("foo-secret"));
    }

    #[test]
    fn what_another_mode_speaks_is_unknown() {
        let error = negotiate(["v5.channel.k8s.io"], &[Subprotocol::Tunnel]).unwrap_err();
        assert!(
            error
                .message
                .contains("offer one of v1.tunnel.kubeworkspaces.io,")
        );
    }

    #[test]
    fn a_token_alone_is_like_no_offer() {
        let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
        assert_eq!(negotiate([token], &KNOWN).ok(), Some(Subprotocol::Unnamed));
    }
}
