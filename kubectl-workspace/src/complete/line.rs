//! A command line that is being typed: which command it is, which flags it has, and what may come next. It reads clap's
//! own description of the commands, so that nothing is said twice. Entry point: [`Line::read`].

use clap::{Arg, Args as _, Command, FromArgMatches as _};

use super::Candidate;
use crate::cli::ClusterFlags;

/// What may stand in place of the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One of these.
    Words(Vec<Candidate>),
    /// Files of this machine.
    Files,
    /// Nothing that could be guessed.
    Nothing,
    Contexts,
    Namespaces,
    Workspaces,
    Sessions,
    WorkspacesOrFiles,
}

/// A line.
#[derive(Debug)]
pub(super) struct Line {
    /// The last word.
    pub(super) typed: String,
    /// What stands in the last word before the part that is completed, as `USER@`.
    pub(super) before: String,
    pub(super) wanted: Wanted,
    /// How to reach the cluster.
    pub(super) flags: ClusterFlags,
}

impl Line {
    /// The last of `words` is being typed.
    pub(super) fn read(root: &Command, words: &[String]) -> Self {
        let mut root = root.clone();
        root.build();
        let (typed, done) = words
            .split_last()
            .map_or(("", &[][..]), |(last, done)| (last, done));
        let mut walk = Walk::new(&root);
        for word in done {
            walk.step(word);
        }
        let (before, wanted) = walk.wanted(typed);
        Self {
            typed: typed.to_owned(),
            before,
            wanted,
            flags: cluster_flags(&walk.flags),
        }
    }
}

struct Walk<'a> {
    command: &'a Command,
    /// Words that are no flags, of the command.
    positions: usize,
    /// The flag whose value comes next.
    open: Option<&'a Arg>,
    /// Flags with their values, as one word each.
    flags: Vec<String>,
    /// After `--`, or within the command that ssh is to run.
    verbatim: bool,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Command) -> Self {
        Self {
            command: root,
            positions: 0,
            open: None,
            flags: Vec::new(),
            verbatim: false,
        }
    }

    fn step(&mut self, word: &str) {
        if let Some(arg) = self.open.take() {
            if let Some(long) = arg.get_long() {
                self.flags.push(format!("--{long}={word}"));
            }
            return;
        }
        if self.verbatim {
            self.positions += 1;
        } else if word == "--" {
            self.verbatim = true;
        } else if word.starts_with('-') && word.len() > 1 {
            self.flag(word);
        } else if let (0, Some(sub)) = (self.positions, self.command.find_subcommand(word)) {
            self.command = sub;
        } else {
            self.positions += 1;
            // what follows the workspace of ssh is the command's own
            self.verbatim = self.command.get_name() == "ssh" && self.positions > 1;
        }
    }

    fn flag(&mut self, word: &str) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let (arg, value) = match name.strip_prefix("--") {
            Some(long) => (self.find(|arg| arg.get_long() == Some(long)), value),
            None => {
                let mut letters = name[1..].chars();
                let short = letters.next();
                let rest = Some(letters.as_str()).filter(|rest| !rest.is_empty());
                (self.find(|arg| arg.get_short() == short), value.or(rest))
            }
        };
        let Some(arg) = arg.filter(|arg| arg.get_action().takes_values()) else {
            return;
        };
        match (value, arg.get_long()) {
            (None, _) => self.open = Some(arg),
            (Some(value), Some(long)) => self.flags.push(format!("--{long}={value}")),
            (Some(_), None) => {}
        }
    }

    fn find(&self, is: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        self.command.get_arguments().find(|arg| is(arg))
    }

    /// What may stand there, and what stands before it in the same word.
    fn wanted(&self, typed: &str) -> (String, Wanted) {
        let none = String::new;
        if let Some(arg) = self.open {
            return (none(), value(arg));
        }
        if self.verbatim {
            return (
                none(),
                if self.command.get_name() == "ssh" {
                    Wanted::Files
                } else {
                    self.position().1
                },
            );
        }
        if let Some((name, _)) = typed.split_once('=').filter(|_| typed.starts_with("--")) {
            let arg = self.find(|arg| arg.get_long() == name.strip_prefix("--"));
            return (format!("{name}="), arg.map_or(Wanted::Nothing, value));
        }
        if typed.starts_with('-') {
            return (none(), Wanted::Words(self.flag_names()));
        }
        let (login, mut wanted) = self.position();
        if self.positions == 0 && self.command.has_subcommands() {
            let mut words = subcommands(self.command);
            if let Wanted::Words(more) = &mut wanted {
                words.append(more);
            }
            wanted = Wanted::Words(words);
        }
        let before = match typed.rsplit_once('@') {
            Some((user, _)) if login => format!("{user}@"),
            _ => none(),
        };
        (before, wanted)
    }

    /// Whether a user may stand before it, and what a word in this position is.
    fn position(&self) -> (bool, Wanted) {
        match (self.command.get_name(), self.positions) {
            ("ssh" | "ssh-config" | "known-hosts", 0) => (true, Wanted::Workspaces),
            ("cp", _) => (true, Wanted::WorkspacesOrFiles),
            ("kill", _) => (false, Wanted::Sessions),
            ("completion", 0) => (false, Wanted::Words(shells(self.command))),
            (
                "console" | "vnc" | "port-forward" | "start" | "stop" | "reboot" | "reset"
                | "userdata",
                0,
            ) => (false, Wanted::Workspaces),
            _ => (false, Wanted::Nothing),
        }
    }

    fn flag_names(&self) -> Vec<Candidate> {
        let shown = self
            .command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set());
        let about = |arg: &Arg| first_line(arg.get_help().map(ToString::to_string));
        shown
            .filter_map(|arg| Some(Candidate::new(format!("--{}", arg.get_long()?), about(arg))))
            .collect()
    }
}

fn first_line(text: Option<String>) -> String {
    let text = text.unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn subcommands(command: &Command) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let about = |sub: &Command| first_line(sub.get_about().map(ToString::to_string));
    shown
        .map(|sub| Candidate::new(sub.get_name(), about(sub)))
        .collect()
}

fn shells(command: &Command) -> Vec<Candidate> {
    command.get_positionals().flat_map(possible).collect()
}

fn possible(arg: &Arg) -> Vec<Candidate> {
    let values = arg.get_possible_values();
    let about = |help: Option<&clap::builder::StyledStr>| first_line(help.map(ToString::to_string));
    values
        .iter()
        .map(|value| Candidate::new(value.get_name(), about(value.get_help())))
        .collect()
}

/// What a flag's value may be.
fn value(arg: &Arg) -> Wanted {
    match arg.get_id().as_str() {
        "namespace" => Wanted::Namespaces,
        "context" => Wanted::Contexts,
        "workspace" => Wanted::Workspaces,
        "kubeconfig"
        | "certificate_authority"
        | "client_certificate"
        | "client_key"
        | "viewer"
        | "screenshot"
        | "identity" => Wanted::Files,
        _ => match possible(arg) {
            words if words.is_empty() => Wanted::Nothing,
            words => Wanted::Words(words),
        },
    }
}

/// Those of the flags that say how to reach the cluster.
fn cluster_flags(words: &[String]) -> ClusterFlags {
    let command = ClusterFlags::augment_args(Command::new("flags").no_binary_name(true));
    let is_ours = |word: &&String| {
        let name = word.trim_start_matches('-').split('=').next();
        command.get_arguments().any(|arg| arg.get_long() == name)
    };
    let words: Vec<_> = words.iter().filter(is_ours).collect();
    let matches = command.clone().try_get_matches_from(words);
    let flags = matches.and_then(|matches| ClusterFlags::from_arg_matches(&matches));
    flags.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn read(line: &str) -> Line {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Line::read(&Cli::command(), &words)
    }

    fn words(line: &str) -> Vec<String> {
        match read(line).wanted {
            Wanted::Words(words) => words.into_iter().map(|c| c.word).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_comes_next_depends_on_what_stands_before() {
        let cases = [
            ("console ", Wanted::Workspaces),
            ("console de", Wanted::Workspaces),
            ("console -n t1 de", Wanted::Workspaces),
            ("-n t1 console ", Wanted::Workspaces),
            ("console demo ", Wanted::Nothing),
            ("console -n ", Wanted::Namespaces),
            ("console --namespace=", Wanted::Namespaces),
            ("--context ", Wanted::Contexts),
            ("console --kubeconfig ", Wanted::Files),
            ("console --timeout ", Wanted::Nothing),
            ("ssh ", Wanted::Workspaces),
            ("ssh -l ann ", Wanted::Workspaces),
            ("ssh -lann ", Wanted::Workspaces),
            ("ssh -i ", Wanted::Files),
            ("ssh demo ls ", Wanted::Files),
            ("cp ", Wanted::WorkspacesOrFiles),
            ("cp file ", Wanted::WorkspacesOrFiles),
            ("sessions kill ", Wanted::Sessions),
            ("sessions kill --workspace ", Wanted::Workspaces),
            ("vnc demo --screenshot ", Wanted::Files),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line).wanted, expected, "{line:?}");
        }
    }

    #[test]
    fn commands_flags_and_values_come_from_the_command_line_itself() {
        let commands = words("");
        assert!(commands.contains(&"port-forward".into()));
        assert!(words("console --").contains(&"--takeover".into()));
        assert!(words("console --").contains(&"--namespace".into()));
        assert_eq!(words("completion "), ["bash", "zsh", "fish"]);
        assert_eq!(words("list -o "), ["wide", "name", "json"]);
        assert!(words("sessions ").contains(&"kill".into()));
    }

    #[test]
    fn the_flags_typed_so_far_say_where_to_ask() {
        let flags = read("--context=prod -n t1 ssh -p 22 --as ann ").flags;
        assert_eq!(flags.context.as_deref(), Some("prod"));
        assert_eq!(flags.namespace.as_deref(), Some("t1"));
        assert_eq!(flags.impersonate.as_deref(), Some("ann"));
    }

    #[test]
    fn a_user_before_the_workspace_stays() {
        assert_eq!(read("ssh ann@de").before, "ann@");
        assert_eq!(read("cp ann@de").before, "ann@");
        assert_eq!(read("console a@de").before, "");
        assert_eq!(read("console --namespace=t").before, "--namespace=");
    }
}
