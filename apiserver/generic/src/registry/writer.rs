//! On whose behalf a write happens, what it submits, and what comes of it.

use std::sync::Arc;

use crate::{Object, UserInfo, storage::WriteContext};

/// What happens to fields that the schema does not know, and to keys given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped, silently.
    Ignore,
    /// They are dropped, with a warning each.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// The caller of a write.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// Who it is.
    pub user: UserInfo,
    /// Field manager: the caller's, else the first part of its User-Agent.
    pub field_manager: String,
    /// Whether everything happens but the storing.
    pub dry_run: bool,
    /// What happens to unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Id of the request, for the backend's audit log.
    pub audit_id: Option<Arc<str>>,
}

impl Writer {
    /// The server itself, as `manager` (a controller's name).
    pub fn server(manager: &str) -> Self {
        let user = UserInfo {
            name: "system:apiserver".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..UserInfo::default()
        };
        Self {
            user,
            field_manager: manager.to_owned(),
            field_validation: FieldValidation::Strict,
            ..Self::default()
        }
    }

    pub(super) fn context(&self) -> WriteContext {
        WriteContext {
            audit_id: self.audit_id.clone(),
        }
    }
}

/// An object as a caller sent it.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// The object.
    pub object: Object,
    /// What strict decoding found wrong with the text, as `duplicate field "spec.type"`.
    pub faults: Vec<String>,
}

impl From<Object> for Submission {
    fn from(object: Object) -> Self {
        Self {
            object,
            faults: Vec::new(),
        }
    }
}

/// What a write led to.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The object as it is now.
    pub object: Object,
    /// For the `Warning` header.
    pub warnings: Vec<String>,
}
