//! Serving: TLS, HTTP/1.1 with upgrades and HTTP/2 on one port, limits, and a graceful end.
//!
//! Entry point: [`Listener`]. A client certificate is asked for and its handshake signature is
//! checked, but nobody judges it here: it travels with every request as [`Peer`], and `authn`
//! judges it against the CAs that are trusted at that moment, as kube-apiserver does.

mod certificate;
mod connection;
pub mod limits;
mod listener;
mod panics;
mod tls;

pub use certificate::{
    CertificateError, CertificateSource, CurrentCertificate, FileCertificate, certified_key,
    check_current,
};
pub use connection::{Handler, Peer};
pub use listener::{Listener, Shutdown, bind};
pub use panics::contain;
pub use tls::{TlsError, server_config};

#[cfg(test)]
mod tests;
