//! How much is logged, in klog's levels.

use clap::Args;

/// Flags of logging.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Logging")]
pub struct LoggingOptions {
    /// Level of the log: 0 to 2 what operators need, 3 to 5 for debugging, more for everything
    #[arg(
        short = 'v',
        long = "v",
        value_name = "LEVEL",
        default_value_t = 0,
        overrides_with = "v"
    )]
    pub v: u8,
}

impl LoggingOptions {
    /// The level as a filter for `tracing`. Libraries stay one level quieter.
    pub fn filter(&self) -> &'static str {
        match self.v {
            0..=2 => "info,kube=warn,hyper=warn,rustls=warn",
            3..=5 => "debug,kube=info,hyper=info,h2=info,rustls=info,tower=info",
            _ => "trace,h2=debug",
        }
    }
}
