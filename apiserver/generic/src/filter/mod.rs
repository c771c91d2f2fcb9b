//! Label and field selectors as filters: parsed strictly once, matched against every object.
//!
//! What authorization needs of them is in [`crate::selector`].

mod field;
mod label;

use std::sync::Arc;

pub use field::{FieldFault, FieldSelector};
pub use label::{LabelFault, LabelSelector};

use crate::{
    Object,
    cache::{Event, EventKind, Item},
};

/// What a list or watch is narrowed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `labelSelector`.
    pub labels: LabelSelector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
}

impl Selector {
    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Object) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    /// What a watcher with this selector is told about a change, if anything.
    pub fn view(&self, event: &Event) -> Option<View> {
        let was = event.previous.as_ref();
        let was = was.is_some_and(|item| self.matches(&item.object));
        let is = event.kind == EventKind::Put && self.matches(&event.item.object);
        match (was, is) {
            (false, true) => Some(View::Added(event.item.clone())),
            (true, true) => Some(View::Modified(event.item.clone())),
            (true, false) => Some(View::Deleted(match event.kind {
                EventKind::Deleted => event.item.clone(),
                EventKind::Put => event.departed()?.clone(),
            })),
            (false, false) => None,
        }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.labels, self.fields)
    }
}

/// A change as a watcher sees it.
#[derive(Clone, Debug)]
pub enum View {
    /// New to the watcher.
    Added(Arc<Item>),
    /// Changed, and still selected.
    Modified(Arc<Item>),
    /// Removed, or no longer selected: the last selected state.
    Deleted(Arc<Item>),
}
