//! Actions on a workspace, and its user-data: rows of subresources, and the kinds of their options.

use apiserver_generic::{
    Subresource, Verb,
    resource::{OptionsKind, Rest, Streaming},
};

use crate::{schema, v1alpha1};

const START: &str = "WorkspaceStartOptions";
const STOP: &str = "WorkspaceStopOptions";
const REBOOT: &str = "WorkspaceRebootOptions";
const RESET: &str = "WorkspaceResetOptions";

/// The rows.
pub(super) fn subresources() -> Vec<Subresource> {
    let row = |name, verbs: &'static [Verb], kind| Subresource {
        name,
        verbs,
        kind,
        rest: Rest::None,
        streaming: Streaming::Never,
    };
    let action = |name, kind| row(name, &[Verb::Create], kind);
    vec![
        action("start", START),
        action("stop", STOP),
        action("reboot", REBOOT),
        action("reset", RESET),
        row("userdata", &[Verb::Get], "Workspace"),
    ]
}

/// What the actions take.
pub(super) fn options() -> Vec<OptionsKind> {
    vec![
        OptionsKind {
            kind: START,
            schema: schema::of_options::<v1alpha1::WorkspaceStartOptions>(),
        },
        OptionsKind {
            kind: STOP,
            schema: schema::of_options::<v1alpha1::WorkspaceStopOptions>(),
        },
        OptionsKind {
            kind: REBOOT,
            schema: schema::of_options::<v1alpha1::WorkspaceRebootOptions>(),
        },
        OptionsKind {
            kind: RESET,
            schema: schema::of_options::<v1alpha1::WorkspaceResetOptions>(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_options_and_all_options_have_an_action() {
        let options = options();
        let actions = subresources();
        let actions = actions.iter().filter(|sub| sub.verbs == [Verb::Create]);
        let kinds: Vec<_> = actions.map(|sub| sub.kind).collect();
        let known: Vec<_> = options.iter().map(|options| options.kind).collect();
        assert_eq!(kinds, known);
        for options in &options {
            let fields = options.schema["properties"].as_object().unwrap();
            for field in ["apiVersion", "kind", "dryRun"] {
                assert!(fields.contains_key(field), "{} has {field}", options.kind);
            }
            assert!(!fields.contains_key("metadata"));
        }
        assert_eq!(options[0].schema["properties"]["paused"]["type"], "boolean");
    }
}
