//! Field and label selectors as requirements, in the shape that a SubjectAccessReview carries.
//!
//! Entry points: [`parse_fields`] and [`parse_labels`]. They follow `k8s.io/apimachinery/pkg/fields`
//! and `…/labels`. A selector that does not parse yields no requirement at all: the review then
//! asks about the whole collection, which is the broader question, and the endpoint answers 400.

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed.
    NotIn,
    /// The key exists.
    Exists,
    /// The key does not exist.
    DoesNotExist,
}

impl Operator {
    /// As a SubjectAccessReview spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Field path or label key.
    pub key: String,
    /// Comparison.
    pub operator: Operator,
    /// Values, empty for existence.
    pub values: Vec<String>,
}

/// Both selectors of a request for a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selectors {
    /// From `fieldSelector`.
    pub fields: Vec<Requirement>,
    /// From `labelSelector`.
    pub labels: Vec<Requirement>,
}

/// The name that `metadata.name=…` asks for, if it can be a path segment.
pub fn exact_name(fields: &[Requirement]) -> Option<String> {
    let name = fields.iter().find_map(|r| match r.values.as_slice() {
        [one] if r.key == "metadata.name" && r.operator == Operator::In => Some(one),
        _ => None,
    })?;
    let segment = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    segment.then(|| name.clone())
}

/// `a=b,c!=d`, with `\` before `,`, `=` and `\` in values.
pub fn parse_fields(text: &str) -> Vec<Requirement> {
    split_unescaped(text)
        .iter()
        .filter(|term| !term.is_empty())
        .map(|term| field_term(term))
        .collect::<Option<Vec<_>>>()
        .unwrap_or_default()
}

/// Splits at commas that are not escaped; `\\`, `\,` and `\=` stay escaped.
pub(crate) fn split_unescaped(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = terms.last_mut() {
            last.push(c);
        }
    }
    terms
}

fn field_term(term: &str) -> Option<Requirement> {
    let at = term.find(['=', '!'])?;
    let (key, rest) = term.split_at(at);
    let (operator, value) = if let Some(value) = rest.strip_prefix("!=") {
        (Operator::NotIn, value)
    } else if let Some(value) = rest.strip_prefix("==") {
        (Operator::In, value)
    } else {
        (Operator::In, rest.strip_prefix('=')?)
    };
    Some(Requirement {
        key: key.to_owned(),
        operator,
        values: vec![unescape(value)?],
    })
}

/// A value as it was before it was escaped; `None` if it was not escaped well.
pub(crate) fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                c @ ('\\' | ',' | '=') => out.push(c),
                _ => return None,
            },
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Comparisons by size (`<`, `>`) are left out, which asks
/// a broader question.
pub fn parse_labels(text: &str) -> Vec<Requirement> {
    split_outside_parentheses(text)
        .into_iter()
        .map(str::trim)
        .filter(|term| !term.is_empty() && !term.contains(['<', '>']))
        .map(label_term)
        .collect::<Option<Vec<_>>>()
        .unwrap_or_default()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    })
    .collect()
}

fn label_term(term: &str) -> Option<Requirement> {
    let one = |key: &str, operator, values: Vec<String>| {
        let key = key.trim();
        let valid = !key.is_empty() && !key.contains([' ', '(', ')', '!', '=', ',']);
        valid.then(|| Requirement {
            key: key.to_owned(),
            operator,
            values,
        })
    };
    let value = |text: &str| vec![text.trim().to_owned()];
    if let Some((key, v)) = term.split_once("!=") {
        return one(key, Operator::NotIn, value(v));
    }
    if let Some((key, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return one(key, Operator::In, value(v));
    }
    if let Some(key) = term.strip_prefix('!') {
        return one(key, Operator::DoesNotExist, Vec::new());
    }
    let Some((key, rest)) = term.split_once(char::is_whitespace) else {
        return one(term, Operator::Exists, Vec::new());
    };
    let (operator, set) = match rest.trim().split_once('(')? {
        (word, set) if word.trim() == "in" => (Operator::In, set),
        (word, set) if word.trim() == "notin" => (Operator::NotIn, set),
        _ => return None,
    };
    let values = set.strip_suffix(')')?.split(',').flat_map(value).collect();
    one(key, operator, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[Requirement]) -> String {
        let term =
            |r: &Requirement| format!("{} {} {}", r.key, r.operator.as_str(), r.values.join("|"));
        list.iter().map(term).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn field_selectors_become_requirements() {
        for (text, expected) in [
            ("", ""),
            ("a=b", "a In b"),
            ("a==b,c!=d", "a In b; c NotIn d"),
            (r"a=x\,y\=z\\", r"a In x,y=z\"),
            ("a=", "a In "),
            ("nonsense", ""),
            (r"a=b\x", ""),
            ("a=b=c", ""),
        ] {
            assert_eq!(words(&parse_fields(text)), expected, "{text}");
        }
    }

    #[test]
    fn label_selectors_become_requirements() {
        for (text, expected) in [
            ("", ""),
            ("a=b", "a In b"),
            ("a == b , c!=d", "a In b; c NotIn d"),
            ("x in (a, b),y notin (c)", "x In a|b; y NotIn c"),
            ("k,!n", "k Exists ; n DoesNotExist "),
            ("a>1,b=c", "b In c"),
            ("x in a", ""),
            ("x on (a)", ""),
            ("(", ""),
        ] {
            assert_eq!(words(&parse_labels(text)), expected, "{text}");
        }
    }
}
