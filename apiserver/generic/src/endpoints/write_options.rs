//! What a write asks for beside its body. Pure.

use http::{HeaderMap, header};
use serde_json::Value;

use super::{list_options::refuse, query::Query};
use crate::{
    ApiError, Call, Cause,
    registry::{DeleteOptions, FieldValidation, Propagation, Writer, invalid, unsupported},
};

/// Longest name of a field manager.
const MANAGER: usize = 128;

/// The writer of a request; `kind` is `CreateOptions` and the like.
pub(super) fn writer(call: &Call, query: &Query, kind: &str) -> Result<Writer, ApiError> {
    let mut causes = Vec::new();
    let dry_run = dry_run(query.all("dryRun"), &mut causes);
    let manager = query.text("fieldManager");
    check_manager(manager, &mut causes);
    let field_validation = field_validation(query.text("fieldValidation"), &mut causes);
    if kind == "PatchOptions" && query.switch("force").is_some() {
        let why = "may not be specified for non-apply patch";
        causes.push(crate::registry::forbidden("force", why));
    }
    refuse(kind, causes)?;
    Ok(Writer {
        user: call.authorized.user().clone(),
        field_manager: if manager.is_empty() {
            default_manager(call.request.headers())
        } else {
            manager.to_owned()
        },
        dry_run,
        field_validation,
        audit_id: Some(call.audit_id.clone()),
    })
}

pub(super) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) -> bool {
    let mut on = false;
    for value in values.filter(|value| !value.is_empty()) {
        on = true;
        if value != "All" {
            causes.push(unsupported("dryRun", value, &["All"]));
        }
    }
    on
}

fn check_manager(manager: &str, causes: &mut Vec<Cause>) {
    if manager.len() > MANAGER {
        causes.push(crate::registry::too_long("fieldManager", MANAGER));
    }
    if manager.chars().any(char::is_control) {
        let why = "should only contain printable characters";
        causes.push(invalid(
            "fieldManager",
            &Value::String(manager.to_owned()),
            why,
        ));
    }
}

fn field_validation(text: &str, causes: &mut Vec<Cause>) -> FieldValidation {
    match text {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let allowed = ["", "Ignore", "Strict", "Warn"];
            causes.push(unsupported("fieldValidation", other, &allowed));
            FieldValidation::Strict
        }
    }
}

/// The first part of the User-Agent.
fn default_manager(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|a| a.to_str().ok()).unwrap_or_default();
    let first = agent.split('/').next().unwrap_or_default();
    first.chars().take(MANAGER).collect()
}

/// The options of a deletion, from its body or else from the query, and whether it is a dry run.
pub(super) fn delete(
    query: &Query,
    body: Option<Value>,
) -> Result<(DeleteOptions, bool), ApiError> {
    let from_query = body.is_none();
    let body = body.unwrap_or_default();
    if let Some(kind) = body["kind"]
        .as_str()
        .filter(|k| !k.is_empty() && *k != "DeleteOptions")
    {
        let text = format!("decoded object cannot be converted to DeleteOptions: it is a {kind}");
        return Err(ApiError::bad_request(text));
    }
    let text = |key: &str| match from_query {
        true => Some(query.text(key).to_owned()).filter(|v| !v.is_empty()),
        false => body[key].as_str().map(str::to_owned),
    };
    let mut causes = Vec::new();
    let orphan = match from_query {
        true => query.switch("orphanDependents"),
        false => body["orphanDependents"].as_bool(),
    };
    let policy = text("propagationPolicy");
    if orphan.is_some() && policy.is_some() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(invalid(
            "propagationPolicy",
            &Value::from(policy.as_deref()),
            why,
        ));
    }
    let propagation = propagation(policy.as_deref(), orphan, &mut causes);
    let in_body = body["dryRun"].as_array().into_iter().flatten();
    let in_body = in_body.map(|v| v.as_str().unwrap_or("?"));
    let mut dry = dry_run(in_body, &mut causes);
    dry |= dry_run(query.all("dryRun"), &mut causes);
    refuse("DeleteOptions", causes)?;
    let precondition = |key: &str| body["preconditions"][key].as_str().map(str::to_owned);
    let options = DeleteOptions {
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation,
        orphan_dependents: orphan,
    };
    Ok((options, dry))
}

fn propagation(
    policy: Option<&str>,
    orphan: Option<bool>,
    causes: &mut Vec<Cause>,
) -> Option<Propagation> {
    match (policy, orphan) {
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (None, None) => None,
        (Some(other), _) => {
            let allowed = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(unsupported("propagationPolicy", other, &allowed));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn query(text: &str) -> Query {
        Query::of(&format!("/x?{text}").parse().unwrap())
    }

    #[test]
    fn deletions_read_body_or_query() {
        for (text, body, propagation, dry) in [
            ("", None, None, false),
            (
                "propagationPolicy=Foreground&dryRun=All",
                None,
                Some(Propagation::Foreground),
                true,
            ),
            (
                "orphanDependents=true",
                None,
                Some(Propagation::Orphan),
                false,
            ),
            (
                "propagationPolicy=Orphan",
                Some(json!({"propagationPolicy": "Background"})),
                Some(Propagation::Background),
                false,
            ),
            (
                "",
                Some(
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], "orphanDependents": false}),
                ),
                Some(Propagation::Background),
                true,
            ),
        ] {
            let (options, is_dry) = delete(&query(text), body.clone()).unwrap();
            assert_eq!(
                (options.propagation, is_dry),
                (propagation, dry),
                "{text} {body:?}"
            );
        }
        let body = json!({"preconditions": {"uid": "u", "resourceVersion": "3"}});
        let (options, _) = delete(&query(""), Some(body)).unwrap();
        assert_eq!(
            (options.uid.as_deref(), options.resource_version.as_deref()),
            (Some("u"), Some("3"))
        );
    }

    #[test]
    fn deletions_that_contradict_themselves_are_refused() {
        for (text, body) in [
            ("dryRun=Some", None),
            ("propagationPolicy=Sideways", None),
            (
                "",
                Some(json!({"orphanDependents": true, "propagationPolicy": "Orphan"})),
            ),
            ("", Some(json!({"kind": "Widget"}))),
        ] {
            assert!(
                delete(&query(text), body.clone()).is_err(),
                "{text} {body:?}"
            );
        }
    }

    #[test]
    fn the_user_agent_names_the_manager() {
        let mut headers = HeaderMap::new();
        assert_eq!(default_manager(&headers), "");
        headers.insert(header::USER_AGENT, "kubectl/v1.37 (linux)".parse().unwrap());
        assert_eq!(default_manager(&headers), "kubectl");
    }
}
