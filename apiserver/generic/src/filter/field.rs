//! Field selectors: `metadata.name=w1,metadata.namespace!=t1`
//! (`k8s.io/apimachinery/pkg/fields/selector.go`).

use crate::{
    Object,
    selector::{split_unescaped, unescape},
};

/// Why a field selector was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// No operator.
    #[error("invalid selector: '{0}'; can't understand '{1}'")]
    Syntax(String, String),
    /// A field that cannot be selected by.
    #[error("field label not supported: {0}")]
    Unsupported(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

/// All terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

/// Selectable on every resource.
const COMMON: [&str; 2] = ["metadata.name", "metadata.namespace"];

impl FieldSelector {
    /// Parses a selector; `extra` are the resource's own selectable fields.
    ///
    /// # Errors
    /// [`FieldFault`]: a 400 with its text.
    pub fn parse(text: &str, extra: &[&str]) -> Result<Self, FieldFault> {
        let mut terms = Vec::new();
        let parts = split_unescaped(text);
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let term = parse_term(&part)
                .ok_or_else(|| FieldFault::Syntax(text.to_owned(), part.clone()))?;
            let known =
                COMMON.contains(&term.field.as_str()) || extra.contains(&term.field.as_str());
            if !known {
                return Err(FieldFault::Unsupported(term.field));
            }
            terms.push(term);
        }
        Ok(Self(terms))
    }

    /// The same selector, for objects of this name only: a request that was authorized for one name
    /// gets no other.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.0.push(Term {
            field: COMMON[0].to_owned(),
            value: name.to_owned(),
            equal: true,
        });
        self
    }

    /// Whether there is no term.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object matches. A field that is absent counts as empty.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|term| {
            let pointer = format!("/{}", term.field.replace('.', "/"));
            let value = object.str_at(&pointer).unwrap_or_default();
            (value == term.value) == term.equal
        })
    }

    /// The value that a field must equal, if there is such a term.
    pub fn required(&self, field: &str) -> Option<&str> {
        let term = self.0.iter().find(|t| t.equal && t.field == field)?;
        Some(&term.value)
    }
}

impl std::fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, term) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", term.field, term.value)?;
        }
        Ok(())
    }
}

fn parse_term(part: &str) -> Option<Term> {
    let at = part.find('=')?;
    let (left, right) = (&part[..at], &part[at + 1..]);
    let (field, equal) = match left.strip_suffix('!') {
        Some(field) => (field, false),
        None => (left, true),
    };
    let right = if equal {
        right.strip_prefix('=').unwrap_or(right)
    } else {
        right
    };
    Some(Term {
        field: field.to_owned(),
        value: unescape(right)?,
        equal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str) -> bool {
        let object = json!({"metadata": {"name": "w1", "namespace": "t1"}, "spec": {"type": "vm"}});
        let object = Object::from_value(object).unwrap();
        FieldSelector::parse(selector, &["spec.type", "status.phase"])
            .unwrap()
            .matches(&object)
    }

    #[test]
    fn terms_are_all_required() {
        for (selector, expected) in [
            ("", true),
            ("metadata.name=w1", true),
            ("metadata.name==w1,metadata.namespace=t1", true),
            ("metadata.name!=w1", false),
            ("metadata.name=w1,metadata.namespace=t2", false),
            ("spec.type=vm,status.phase=", true),
            ("status.phase!=Running", true),
        ] {
            assert_eq!(matches(selector), expected, "{selector}");
        }
    }

    #[test]
    fn what_cannot_be_selected_by_is_named() {
        let fault = FieldSelector::parse("spec.nodeName=x", &[]).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "field label not supported: spec.nodeName"
        );
        assert!(FieldSelector::parse("metadata.name", &[]).is_err());
        assert!(FieldSelector::parse("metadata.name=a\\x", &[]).is_err());
    }

    #[test]
    fn a_required_name_is_found() {
        let selector = FieldSelector::parse("metadata.name=w1,metadata.namespace!=x", &[]).unwrap();
        assert_eq!(selector.required("metadata.name"), Some("w1"));
        assert_eq!(selector.required("metadata.namespace"), None);
        assert_eq!(
            selector.to_string(),
            "metadata.name=w1,metadata.namespace!=x"
        );
    }
}
