//! What messages mean: the client's and the upstream's dialects, translated through [`Input`] and
//! [`Output`]. Pure: pieces of messages go in, meanings come out.

mod client;
mod exec;
mod port;
mod resize;
mod tunnel;
mod upstream;

pub use client::ClientWire;
pub use resize::SizeReader;
pub use upstream::UpstreamWire;

use bytes::Bytes;

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// What a client wants the upstream to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Typed bytes.
    Data(Bytes),
    /// A new size.
    Resize(Size),
    /// Nothing more will be typed.
    Eof,
}

/// What the upstream tells the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Printed bytes.
    Data(Bytes),
    /// Printed bytes of the second stream, for a command without a terminal.
    Errors(Bytes),
    /// Nothing more will be printed; what is typed still arrives.
    Eof,
    /// The command ended.
    Exit(Exit),
}

/// What a command in a pod has for input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdio {
    /// A terminal: output and errors are one, sizes change, the end of input is a key.
    #[default]
    Terminal,
    /// Pipes: output and errors apart, a real end of input, no sizes.
    Pipes,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// A signal killed it.
    Signal {
        /// The signal, as `TERM`.
        name: String,
        /// Whether a core was dumped.
        core_dumped: bool,
        /// What else is known, in the guest's words.
        message: String,
    },
    /// It could not be run or watched to its end; the kubelet's words.
    Failed(String),
}

/// Channel numbers of the Kubernetes remote command protocols
/// (`k8s.io/apimachinery/pkg/util/remotecommand/constants.go`).
mod channel {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const STATUS: u8 = 3;
    pub(super) const RESIZE: u8 = 4;
    /// v5 only; the next byte is the channel that ends.
    pub(super) const CLOSE: u8 = 255;
}
