//! Actions: subresources that are posted to, with an optional body of options, as `pods/eviction`.
//!
//! Entry point: [`Action::read`], for handlers ([`crate::Connect`]) that decide themselves what is
//! done. Options are decoded as objects are: JSON or YAML, unknown and duplicate fields by
//! `fieldValidation`, `dryRun` in the query or in the body. They are a kind of their own
//! ([`OptionsKind`]) in discovery and in OpenAPI.

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{
    accept::Wanted,
    decode::{self, Decoded},
    list_options::refuse,
    media,
    read::{self, Parts},
    respond, write_options,
};
use crate::{
    ApiError, Authorized, Body, Call, Object, Resource,
    audit::Record,
    registry::{FieldValidation, Writer},
    resource::OptionsKind,
    schema,
    storage::Key,
};

/// An action that was asked for.
pub struct Action {
    /// On which object.
    pub key: Key,
    /// That the caller may.
    pub authorized: Authorized,
    /// Who asks; `dry_run` means that nothing is to be done.
    pub writer: Writer,
    /// The options, which the schema of their kind allows.
    pub options: Map<String, Value>,
    /// The request's audit.
    pub audit: Record,
    kind: OptionsKind,
    warnings: Vec<String>,
    wanted: Wanted,
    headers: HeaderMap,
}

impl Action {
    /// Reads the request, whose options are of this kind.
    ///
    /// # Errors
    /// 400 for a body that is none, or under `fieldValidation=Strict` has unknown or duplicate
    /// fields; 415 for one in another language; 422 for parameters that are not allowed.
    pub async fn read(call: Call, row: &Resource, kind: &OptionsKind) -> Result<Self, ApiError> {
        let parts = Parts::of(&call)?;
        let mut writer = write_options::writer(&call, &parts.query, "CreateOptions")?;
        let bytes = decode::read(call.request.into_body()).await?;
        let (mut options, warnings) = match bytes.is_empty() {
            true => (Map::new(), Vec::new()),
            false => {
                let language = media::language(&parts.headers)?;
                let decoded = decode::document(&bytes, language);
                let decoded = decoded.map_err(|why| cannot(kind, &why))?;
                options(decoded, row, kind, writer.field_validation)?
            }
        };
        writer.dry_run |= dry_run(options.remove("dryRun"), kind)?;
        Ok(Self {
            key: read::key(&call.info),
            authorized: call.authorized,
            writer,
            options,
            audit: call.audit,
            kind: kind.clone(),
            warnings,
            wanted: parts.wanted,
            headers: parts.headers,
        })
    }

    /// Whether a switch of the options is on.
    pub fn switch(&self, field: &str) -> bool {
        self.options.get(field) == Some(&Value::Bool(true))
    }

    /// Tells that it is done (or would be), in a sentence, with the object that it was done to.
    ///
    /// # Errors
    /// When the answer cannot be encoded.
    pub fn done(
        &self,
        row: &Resource,
        object: &Object,
        message: &str,
    ) -> Result<Response<Body>, ApiError> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200,
            "message": message,
            "details": {
                "name": object.name(), "group": row.group, "kind": row.plural,
                "uid": object.uid().unwrap_or_default(),
            },
        });
        let mut response = respond::document(StatusCode::OK, &status, self.wanted, &self.headers)?;
        respond::warn(&mut response, &self.warnings);
        Ok(response)
    }

    /// The kind of its options.
    pub fn kind(&self) -> &'static str {
        self.kind.kind
    }
}

fn cannot(kind: &OptionsKind, why: &str) -> ApiError {
    ApiError::bad_request(format!("{} cannot be read: {why}", kind.kind))
}

/// The fields that the kind has, and warnings about the others.
fn options(
    decoded: Decoded,
    row: &Resource,
    kind: &OptionsKind,
    validation: FieldValidation,
) -> Result<(Map<String, Value>, Vec<String>), ApiError> {
    let Decoded { value, duplicates } = decoded;
    let Ok(mut object) = Object::from_value(value) else {
        return Err(cannot(kind, "the body is not an object"));
    };
    check_type(&object, row, kind)?;
    let duplicate = duplicates
        .iter()
        .map(|p| format!("duplicate field \"{p}\""));
    let mut faults: Vec<String> = duplicate.collect();
    let unknown = schema::prune(&mut object, &kind.schema);
    faults.extend(unknown.iter().map(|p| format!("unknown field \"{p}\"")));
    if validation == FieldValidation::Strict && !faults.is_empty() {
        let why = format!("strict decoding error: {}", faults.join(", "));
        return Err(cannot(kind, &why));
    }
    let mut value = object.into_value();
    schema::drop_nulls(&mut value, &kind.schema);
    if let Some(first) = schema::validate(&kind.schema, &value, "").first() {
        return Err(cannot(kind, &first.message));
    }
    let warnings = match validation {
        FieldValidation::Warn => faults,
        _ => Vec::new(),
    };
    match value {
        Value::Object(fields) => Ok((fields, warnings)),
        _ => Ok((Map::new(), warnings)),
    }
}

/// A body without type is of the kind that the URL names.
fn check_type(object: &Object, row: &Resource, kind: &OptionsKind) -> Result<(), ApiError> {
    for (field, expected) in [
        ("apiVersion", row.api_version()),
        ("kind", kind.kind.to_owned()),
    ] {
        match object.fields().get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(given)) if given.is_empty() || *given == expected => {}
            Some(given) => {
                return Err(cannot(
                    kind,
                    &format!("{field} is {given}, and must be {expected:?}"),
                ));
            }
        }
    }
    Ok(())
}

/// `dryRun` of the body, which means the same as in the query.
fn dry_run(given: Option<Value>, kind: &OptionsKind) -> Result<bool, ApiError> {
    let given = given.unwrap_or_default();
    let values = given.as_array().into_iter().flatten();
    let values = values.map(|value| value.as_str().unwrap_or_default());
    let mut causes = Vec::new();
    let dry = write_options::dry_run(values, &mut causes);
    refuse(kind.kind, causes)?;
    Ok(dry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Strategy as _, test_widgets::Widgets};

    fn kind() -> OptionsKind {
        OptionsKind {
            kind: "WidgetSpinOptions",
            schema: json!({"type": "object", "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "fast": {"type": "boolean"},
                "dryRun": {"type": "array", "items": {"type": "string"}},
            }}),
        }
    }

    fn read(
        body: &str,
        validation: FieldValidation,
    ) -> Result<(Map<String, Value>, Vec<String>), String> {
        let widgets = Widgets::new();
        let decoded = decode::parse_json(body.as_bytes())?;
        options(decoded, widgets.resource(), &kind(), validation).map_err(|e| e.message)
    }

    #[test]
    fn options_are_read_as_strictly_as_the_caller_asks() {
        let odd = r#"{"fast": true, "fast": true, "slow": 1}"#;
        let (options, warnings) = read(odd, FieldValidation::Warn).unwrap();
        assert_eq!(Value::Object(options), json!({"fast": true}));
        assert_eq!(
            warnings,
            ["duplicate field \"fast\"", "unknown field \"slow\""]
        );
        let (_, warnings) = read(odd, FieldValidation::Ignore).unwrap();
        assert!(warnings.is_empty());
        let strict = read(odd, FieldValidation::Strict).unwrap_err();
        assert_eq!(
            strict,
            "WidgetSpinOptions cannot be read: strict decoding error: duplicate field \"fast\", unknown field \"slow\""
        );
    }

    #[test]
    fn what_is_no_options_is_refused() {
        for (body, words) in [
            ("[]", "not an object"),
            (r#"{"fast": "yes"}"#, "must be of type boolean"),
            (r#"{"dryRun": "All"}"#, "must be of type array"),
            (r#"{"kind": "Widget"}"#, "must be \"WidgetSpinOptions\""),
            (r#"{"kind": 5}"#, "kind is 5"),
            (r#"{"apiVersion": "v1"}"#, "apiVersion is \"v1\""),
        ] {
            let error = read(body, FieldValidation::Ignore).unwrap_err();
            assert!(error.contains(words), "{body}: {error}");
        }
        for body in [
            "{}",
            r#"{"fast": null}"#,
            r#"{"kind": "", "apiVersion": null}"#,
            r#"{"kind": "WidgetSpinOptions", "apiVersion": "example.com/v1"}"#,
        ] {
            assert!(read(body, FieldValidation::Strict).is_ok(), "{body}");
        }
    }

    #[test]
    fn a_dry_run_is_all_or_an_error() {
        for (given, expected) in [
            (None, Ok(false)),
            (Some(json!([])), Ok(false)),
            (Some(json!(["All"])), Ok(true)),
            (Some(json!(["Some"])), Err(422)),
        ] {
            let dry = dry_run(given.clone(), &kind()).map_err(|e| e.reason.code().as_u16());
            assert_eq!(dry, expected, "{given:?}");
        }
    }
}
