//! `workspaces/ssh`: the guest's SSH server, met by us.
//!
//! In terminal mode this server is the SSH client: the first message brings user and key
//! ([`hello`], read by [`first`]), [`guest`] logs in, [`shell`] carries the terminal, [`messages`]
//! tells the client how it ended. In tunnel mode the client is its own SSH client, and all that
//! happens here is the check of the host key ([`hostkeys`]).
//!
//! **Architecture Invariant:** a private key is in [`hello::Hello`] and [`key::UserKey`] and nowhere
//! else; neither prints it, clones it or outlives the login ([`secret`]).

mod cut;
pub mod first;
pub mod guest;
pub mod hello;
pub mod hostkeys;
mod json;
pub mod key;
pub mod messages;
pub mod secret;
pub mod shell;
pub mod trouble;
