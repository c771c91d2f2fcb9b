//! A guest's SSH server, met over any connection: key exchange, login, terminal.
//!
//! Entry points: [`exchange`] only looks at the host key and leaves; [`Guest::meet`] stays, and
//! [`Guest::log_in`] makes a [`Shell`] of it. Wire protocol: RFC 4253, 4252 and 4254 by russh.

use std::{borrow::Cow, sync::Arc, time::Duration};

use apiservice::v1alpha1::{HostKey, HostKeyAlgorithm};
use parking_lot::Mutex;
use russh::{
    AlgorithmKind, Channel, ChannelMsg, Error, Preferred, Pty, SshId,
    client::{self, AuthResult, Handle, Msg},
    keys::{Algorithm, EcdsaCurve, HashAlg, PublicKeyOrCertificate},
};
use tokio::time::timeout;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    cut::Cuttable,
    key::{UserKey, host_key},
    shell::{Shell, ShellParts},
    trouble::{Trouble, before_proof, said},
};
use crate::streams::{relay::Connection, wire::Size};

/// How long a key exchange may take; guests without hardware virtualization need seconds.
pub const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);
/// How long a login may take, from its first word to the shell.
pub const LOGIN_LIMIT: Duration = Duration::from_secs(30);
/// How much may be under way from the guest.
const WINDOW: u32 = 64 * 1024;
/// The longest piece that the guest may send at a time.
const LONGEST_PACKET: u32 = 16 * 1024;
/// How many pieces may wait for the client to take them.
const WAITING: usize = 2;
/// A guest that answers nothing this often in a row is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);
const MISSED: usize = 2;
/// How much is kept of what is printed before there is a shell.
const LONGEST_EARLY: usize = 64 * 1024;
/// How much of a banner is shown.
const LONGEST_BANNER: usize = 4 * 1024;
/// What a terminal is when the client does not say.
const TERM: &str = "xterm-256color";
const SIZE: Size = Size { cols: 80, rows: 24 };
const SPEED: u32 = 38_400;

/// What a server showed when it was asked for a host key of some types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// One, and proved that it has the private half.
    Key(HostKey),
    /// It has none of these; what it offers instead.
    NoneOf(Vec<String>),
}

/// The client's terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Its type.
    pub term: Option<String>,
    /// Its size.
    pub size: Option<Size>,
}

/// Exchanges keys and leaves.
///
/// # Errors
/// What kept the server from showing a key.
pub async fn exchange<IO: Connection + 'static>(
    io: IO,
    wanted: &[HostKeyAlgorithm],
) -> Result<Shown, Trouble> {
    let door = Door::default();
    let seen = door.seen.clone();
    let error = match connect(io, wanted, door).await {
        // Nobody is let in through a door that trusts no key.
        Ok(_) => return Err(Trouble::HostKey),
        Err(error) => error,
    };
    match (seen.lock().take(), error) {
        (Some(key), Failed::Library(Error::UnknownKey)) => Ok(Shown::Key(key)),
        (
            _,
            Failed::Library(Error::NoCommonAlgo {
                kind: AlgorithmKind::Key,
                theirs,
                ..
            }),
        ) => Ok(Shown::NoneOf(theirs)),
        (_, failed) => Err(failed.into()),
    }
}

/// A server that proved to have a pinned key, before anybody logs in.
pub struct Guest {
    handle: Handle<Door>,
    knife: DropGuard,
    banner: Arc<Mutex<String>>,
}

impl Guest {
    /// Exchanges keys, and stays if the server proves to have one of these.
    ///
    /// # Errors
    /// What kept it from that; [`Trouble::HostKey`] if it has another key of these types.
    pub async fn meet<IO: Connection + 'static>(
        io: IO,
        pinned: &[HostKey],
    ) -> Result<Self, Trouble> {
        let wanted: Vec<_> = pinned.iter().map(|key| key.algorithm).collect();
        let door = Door {
            trusted: pinned.to_vec(),
            ..Door::default()
        };
        let banner = door.banner.clone();
        match connect(io, &wanted, door).await {
            Ok((handle, knife)) => Ok(Self {
                handle,
                knife,
                banner,
            }),
            Err(Failed::Library(Error::NoCommonAlgo {
                kind: AlgorithmKind::Key,
                ..
            })) => Err(Trouble::HostKey),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Logs in and opens a shell on a terminal. The key is gone when this returns.
    ///
    /// # Errors
    /// What the guest refused.
    pub async fn log_in(
        self,
        user: &str,
        key: UserKey,
        screen: &Screen,
        tasks: &TaskTracker,
    ) -> Result<Shell, Trouble> {
        let Self {
            mut handle,
            knife,
            banner,
        } = self;
        let entering = async {
            authenticate(&mut handle, user, key).await?;
            open(&handle, screen).await
        };
        let entered = timeout(LOGIN_LIMIT, entering).await;
        let (channel, early) = entered.unwrap_or(Err(Trouble::SlowLogin(LOGIN_LIMIT)))?;
        // Banners end their lines as files do; a terminal in raw mode wants both characters.
        let banner = std::mem::take(&mut *banner.lock());
        let banner = banner.replace("\r\n", "\n").replace('\n', "\r\n");
        let parts = ShellParts {
            handle,
            channel,
            knife,
            greeting: [banner.as_bytes(), &early].concat(),
        };
        Ok(parts.start(tasks))
    }
}

/// Why there is no session.
enum Failed {
    Library(Error),
    Stalled,
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Library(error) => before_proof(&error),
            Failed::Stalled => Self::Stalled(EXCHANGE_LIMIT),
        }
    }
}

async fn connect<IO: Connection + 'static>(
    io: IO,
    wanted: &[HostKeyAlgorithm],
    door: Door,
) -> Result<(Handle<Door>, DropGuard), Failed> {
    let knife = CancellationToken::new();
    let io = Cuttable::new(io, &knife);
    // From here on the library's task ends with this guard, whatever it waits for.
    let knife = knife.drop_guard();
    let connecting = client::connect_stream(Arc::new(config(wanted)), io, door);
    match timeout(EXCHANGE_LIMIT, connecting).await {
        Ok(Ok(handle)) => Ok((handle, knife)),
        Ok(Err(error)) => Err(Failed::Library(error)),
        Err(_) => Err(Failed::Stalled),
    }
}

fn config(wanted: &[HostKeyAlgorithm]) -> client::Config {
    let keys: Vec<_> = wanted.iter().copied().flat_map(signature_names).collect();
    client::Config {
        client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-kubeworkspaces")),
        window_size: WINDOW,
        maximum_packet_size: LONGEST_PACKET,
        channel_buffer_size: WAITING,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: MISSED,
        preferred: Preferred {
            key: Cow::Owned(keys),
            ..Preferred::DEFAULT
        },
        ..client::Config::default()
    }
}

/// By which names keys of a type are negotiated; SHA-1 is none of them.
fn signature_names(algorithm: HostKeyAlgorithm) -> Vec<Algorithm> {
    let ecdsa = |curve| vec![Algorithm::Ecdsa { curve }];
    match algorithm {
        HostKeyAlgorithm::Ed25519 => vec![Algorithm::Ed25519],
        HostKeyAlgorithm::EcdsaP256 => ecdsa(EcdsaCurve::NistP256),
        HostKeyAlgorithm::EcdsaP384 => ecdsa(EcdsaCurve::NistP384),
        HostKeyAlgorithm::EcdsaP521 => ecdsa(EcdsaCurve::NistP521),
        HostKeyAlgorithm::Rsa => [HashAlg::Sha512, HashAlg::Sha256]
            .map(|hash| Algorithm::Rsa { hash: Some(hash) })
            .to_vec(),
    }
}

/// Whether a server that offers these names has a key of this type.
pub(super) fn offers(offered: &[String], algorithm: HostKeyAlgorithm) -> bool {
    signature_names(algorithm)
        .iter()
        .any(|name| offered.iter().any(|offered| *offered == name.to_string()))
}

/// Decides over host keys, and hears what the server says before the login.
#[derive(Default)]
pub(super) struct Door {
    trusted: Vec<HostKey>,
    seen: Arc<Mutex<Option<HostKey>>>,
    banner: Arc<Mutex<String>>,
}

impl client::Handler for Door {
    type Error = Error;

    /// Called once the library has verified the signature of the exchange.
    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let key = host_key(key);
        let trusted = key.as_ref().is_some_and(|key| self.trusted.contains(key));
        *self.seen.lock() = key;
        Ok(trusted)
    }

    async fn auth_banner(&mut self, text: &str, _: &mut client::Session) -> Result<(), Error> {
        let mut banner = self.banner.lock();
        let room = LONGEST_BANNER.saturating_sub(banner.len());
        banner.extend(text.chars().take(room));
        Ok(())
    }
}

async fn authenticate(
    handle: &mut Handle<Door>,
    user: &str,
    mut key: UserKey,
) -> Result<(), Trouble> {
    let hash = match key.is_rsa() {
        true => Some(rsa_hash(handle).await),
        false => None,
    };
    let public = key.public().clone();
    let asked = handle.authenticate_publickey_with(user, public, hash, &mut key);
    match asked.await {
        Ok(AuthResult::Success) => Ok(()),
        Ok(AuthResult::Failure { .. }) if handle.is_closed() => {
            Err(Trouble::ClosedDuringLogin(user.to_owned()))
        }
        Ok(AuthResult::Failure {
            remaining_methods,
            partial_success: true,
        }) => Err(Trouble::MoreWanted {
            user: user.to_owned(),
            more: remaining_methods
                .iter()
                .map(<&'static str>::from)
                .collect::<Vec<_>>()
                .join(", "),
        }),
        Ok(AuthResult::Failure { .. }) => Err(Trouble::Denied {
            user: user.to_owned(),
            fingerprint: key.fingerprint(),
        }),
        Err(_) if handle.is_closed() => Err(Trouble::ClosedDuringLogin(user.to_owned())),
        Err(bad) => Err(bad.into()),
    }
}

/// The best that the server says it takes (RFC 8308); SHA-1 is not used even if it is all there is.
async fn rsa_hash(handle: &Handle<Door>) -> HashAlg {
    match handle.best_supported_rsa_hash().await {
        Ok(Some(Some(hash))) => hash,
        _ => HashAlg::Sha512,
    }
}

/// A shell's channel, and what it printed before it was granted.
async fn open(handle: &Handle<Door>, screen: &Screen) -> Result<(Channel<Msg>, Vec<u8>), Trouble> {
    let opened = handle.channel_open_session().await;
    let mut channel = opened.map_err(|error| Trouble::NoSession(said(&error.to_string())))?;
    let Size { cols, rows } = screen.size.unwrap_or(SIZE);
    let term = screen.term.as_deref().unwrap_or(TERM);
    let modes = [
        (Pty::IUTF8, 1),
        (Pty::TTY_OP_ISPEED, SPEED),
        (Pty::TTY_OP_OSPEED, SPEED),
    ];
    let (cols, rows) = (cols.into(), rows.into());
    let asked = channel.request_pty(true, term, cols, rows, 0, 0, &modes);
    asked.await.map_err(broken)?;
    let mut early = Vec::new();
    granted(&mut channel, Trouble::NoTerminal, &mut early).await?;
    channel.request_shell(true).await.map_err(broken)?;
    granted(&mut channel, Trouble::NoShell, &mut early).await?;
    Ok((channel, early))
}

async fn granted(
    channel: &mut Channel<Msg>,
    refused: Trouble,
    early: &mut Vec<u8>,
) -> Result<(), Trouble> {
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => return Ok(()),
            Some(ChannelMsg::Failure | ChannelMsg::Close) => return Err(refused),
            Some(ChannelMsg::Data { data }) if early.len() < LONGEST_EARLY => {
                early.extend_from_slice(&data);
            }
            Some(_) => {}
            None => return Err(Trouble::Broken("it was closed".to_owned())),
        }
    }
}

fn broken(error: Error) -> Trouble {
    Trouble::Broken(said(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_host_keys_are_known_by_the_names_that_servers_offer() {
        let offered = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let openssh = offered(&[
            "rsa-sha2-512",
            "rsa-sha2-256",
            "ecdsa-sha2-nistp256",
            "ssh-ed25519",
        ]);
        let has: Vec<_> = HostKeyAlgorithm::ALL
            .into_iter()
            .filter(|algorithm| offers(&openssh, *algorithm))
            .map(HostKeyAlgorithm::as_str)
            .collect();
        assert_eq!(has, ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"]);
        let old = offered(&["ssh-rsa", "ssh-dss"]);
        assert!(!offers(&old, HostKeyAlgorithm::Rsa), "SHA-1 proves nothing");
    }
}
