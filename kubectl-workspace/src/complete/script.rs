//! The scripts that make a shell ask this program. Entry point: [`script`].

use crate::cli::Shell;

/// The script for a shell.
pub fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("completion.bash"),
        Shell::Zsh => include_str!("completion.zsh"),
        Shell::Fish => include_str!("completion.fish"),
    }
}
