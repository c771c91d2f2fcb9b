//! Completion: the words that may stand where a command line is being typed, in the form of cobra's `__complete`, which
//! kubectl reads from plugins (`kubectl/pkg/cmd/plugin/plugin_completion.go`): a candidate and its description in each
//! line, and a last line that says what the shell may add. Entry points: [`answer`], [`script`].

mod cluster;
mod line;
mod script;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::say;
use line::{Line, Wanted};

pub use script::script;

/// The name by which kubectl calls this program for completions.
pub const COMPLETER: &str = "kubectl_complete-workspace";
/// The command by which the scripts call it.
pub const COMPLETE: &str = "__complete";

/// cobra's `ShellCompDirectiveNoSpace` and `ShellCompDirectiveNoFileComp`.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// A word that may stand there, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    word: String,
    about: String,
}

impl Candidate {
    fn new(word: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            about: about.into(),
        }
    }
}

/// Prints what may stand in place of the last word. What cannot be found out is left out: a completion must not
/// complain.
///
/// # Errors
/// When nobody reads it.
pub async fn answer(words: &[String]) -> std::io::Result<()> {
    let line = Line::read(&Cli::command(), words);
    let (candidates, directive) = candidates(&line).await;
    let mut text = String::new();
    for Candidate { word, about } in candidates {
        text.push_str(&word);
        if !about.is_empty() {
            text.push('\t');
            text.push_str(&about);
        }
        text.push('\n');
    }
    text.push_str(&format!(":{directive}"));
    say::out(&text)
}

async fn candidates(line: &Line) -> (Vec<Candidate>, u8) {
    let (found, directive) = match &line.wanted {
        Wanted::Words(words) => (words.clone(), NO_FILES),
        Wanted::Files => (Vec::new(), 0),
        Wanted::Nothing => (Vec::new(), NO_FILES),
        Wanted::Contexts => (cluster::contexts(&line.flags), NO_FILES),
        Wanted::Namespaces => (cluster::namespaces(&line.flags).await, NO_FILES),
        Wanted::Workspaces => (cluster::workspaces(&line.flags).await, NO_FILES),
        Wanted::Sessions => (cluster::sessions(&line.flags).await, NO_FILES),
        Wanted::WorkspacesOrFiles => {
            let mut found = cluster::workspaces(&line.flags).await;
            for candidate in &mut found {
                candidate.word.push(':');
            }
            (found, NO_SPACE)
        }
    };
    let begun = |candidate: Candidate| Candidate {
        word: format!("{}{}", line.before, candidate.word),
        ..candidate
    };
    let fits = |candidate: &Candidate| candidate.word.starts_with(&line.typed);
    (
        found.into_iter().map(begun).filter(fits).collect(),
        directive,
    )
}
