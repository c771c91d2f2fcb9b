//! Taking an object in: types of metadata, unknown fields, defaults. Pure.

use serde_json::Value;

use super::writer::{FieldValidation, Submission};
use crate::{ApiError, Object, Strategy, schema};

/// What is wrong with a submission.
pub(super) enum Refusal {
    /// The text is no object of this kind.
    Undecodable(String),
    /// Strict decoding was asked for, and found something.
    Strict(String),
}

impl Refusal {
    /// 400, as for the body of a create or an update.
    pub(super) fn of_body(self, strategy: &dyn Strategy) -> ApiError {
        let row = strategy.resource();
        let (Self::Undecodable(why) | Self::Strict(why)) = self;
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            row.kind, row.version, row.kind
        ))
    }

    /// 422, as for what a patch led to.
    pub(super) fn of_patch(self, document: &Object) -> ApiError {
        let (Self::Undecodable(why) | Self::Strict(why)) = self;
        super::patch::invalid(&document.clone().into_value(), &why)
    }
}

/// The object with unknown fields dropped and defaults filled in, and the warnings that this led to.
pub(super) fn accept(
    strategy: &dyn Strategy,
    submission: Submission,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), Refusal> {
    let Submission {
        mut object,
        mut faults,
    } = submission;
    let too_deep = |value: &Value| schema::deeper_than(value, schema::DEEPEST - 1);
    if object.fields().values().any(too_deep) {
        let why = format!("it is nested more than {} levels deep", schema::DEEPEST);
        return Err(Refusal::Undecodable(why));
    }
    schema::check_metadata(&mut object).map_err(Refusal::Undecodable)?;
    let unknown = schema::prune(&mut object, &strategy.resource().schema);
    faults.extend(
        unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\"")),
    );
    let warnings = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn => faults,
        FieldValidation::Strict if faults.is_empty() => Vec::new(),
        FieldValidation::Strict => {
            let text = format!("strict decoding error: {}", faults.join(", "));
            return Err(Refusal::Strict(text));
        }
    };
    strategy.default(&mut object);
    Ok((object, warnings))
}
