//! Label selectors: `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`
//! (`k8s.io/apimachinery/pkg/labels/selector.go`).

use crate::Object;

/// Why a label selector was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse requirement: {0}")]
pub struct LabelFault(String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

/// All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<(String, Test)>,
    text: String,
}

impl LabelSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// [`LabelFault`]: a 400 with its text.
    pub fn parse(text: &str) -> Result<Self, LabelFault> {
        let mut parser = Parser {
            tokens: tokens(text),
            at: 0,
        };
        let mut requirements = Vec::new();
        while !parser.done() {
            requirements.push(parser.requirement()?);
            if parser.done() {
                break;
            }
            parser.expect(",")?;
            if parser.done() {
                return Err(LabelFault(
                    "found '', expected: identifier after ','".into(),
                ));
            }
        }
        Ok(Self {
            requirements,
            text: text.to_owned(),
        })
    }

    /// Whether there is no requirement.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements
            .iter()
            .all(|(key, test)| test.holds(object.label(key)))
    }
}

impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
            Self::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
            Self::Greater(bound) => number().is_some_and(|n| n > *bound),
            Self::Less(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// Words, and the symbols `( ) , ! = == != > <`.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !c.is_whitespace() && !"(),!=<>".contains(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if c.is_whitespace() {
            continue;
        }
        let mut symbol = c.to_string();
        if "!=".contains(c) && chars.next_if_eq(&'=').is_some() {
            symbol.push('=');
        }
        tokens.push(symbol);
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
}

impl Parser {
    fn done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    fn expect(&mut self, symbol: &str) -> Result<(), LabelFault> {
        let found = self.take();
        if found == symbol {
            return Ok(());
        }
        Err(LabelFault(format!("found '{found}', expected: '{symbol}'")))
    }

    fn requirement(&mut self) -> Result<(String, Test), LabelFault> {
        if self.peek() == "!" {
            self.at += 1;
            return Ok((self.key()?, Test::Missing));
        }
        let key = self.key()?;
        let test = match self.peek() {
            "" | "," => return Ok((key, Test::Exists)),
            operator => operator.to_owned(),
        };
        self.at += 1;
        let test = match test.as_str() {
            "=" | "==" => Test::In(vec![self.value()?]),
            "!=" => Test::NotIn(vec![self.value()?]),
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            ">" => Test::Greater(self.number(&key)?),
            "<" => Test::Less(self.number(&key)?),
            other => {
                return Err(LabelFault(format!(
                    "found '{other}', expected: in, notin, =, ==, !=, gt, lt"
                )));
            }
        };
        Ok((key, test))
    }

    fn key(&mut self) -> Result<String, LabelFault> {
        let key = self.take();
        match crate::registry::label_key_faults(&key).join("; ") {
            why if why.is_empty() => Ok(key),
            why => Err(LabelFault(format!(
                "<nil>: Invalid value: \"{key}\": {why}"
            ))),
        }
    }

    /// A value after `=`: may be empty.
    fn value(&mut self) -> Result<String, LabelFault> {
        let value = match self.peek() {
            "" | "," => String::new(),
            _ => self.take(),
        };
        check_value(value)
    }

    fn values(&mut self) -> Result<Vec<String>, LabelFault> {
        self.expect("(")?;
        let mut values = Vec::new();
        loop {
            let value = match self.peek() {
                "," | ")" => String::new(),
                _ => self.take(),
            };
            values.push(check_value(value)?);
            match self.take().as_str() {
                "," => {}
                ")" => return Ok(values),
                other => {
                    return Err(LabelFault(format!("found '{other}', expected: ',' or ')'")));
                }
            }
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, LabelFault> {
        let value = self.take();
        value.parse().map_err(|_| {
            LabelFault(format!(
                "values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            ))
        })
    }
}

fn check_value(value: String) -> Result<String, LabelFault> {
    match crate::registry::label_value_faults(&value).join("; ") {
        why if why.is_empty() => Ok(value),
        why => Err(LabelFault(format!(
            "values[0]: Invalid value: \"{value}\": {why}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str, labels: serde_json::Value) -> bool {
        let object = Object::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        LabelSelector::parse(selector).unwrap().matches(&object)
    }

    #[test]
    fn every_operator() {
        for (selector, labels, expected) in [
            ("", json!({}), true),
            ("a=b", json!({"a": "b"}), true),
            ("a==b", json!({"a": "c"}), false),
            ("a=", json!({"a": ""}), true),
            ("a!=b", json!({}), true),
            ("a!=b", json!({"a": "b"}), false),
            ("a in (b, c)", json!({"a": "c"}), true),
            ("a in (b,c)", json!({}), false),
            ("a notin (b,c)", json!({}), true),
            ("a notin (b)", json!({"a": "b"}), false),
            ("a", json!({"a": "x"}), true),
            ("!a", json!({"a": "x"}), false),
            ("!a", json!({}), true),
            ("n>3,n<9", json!({"n": "5"}), true),
            ("n>3", json!({"n": "x"}), false),
            (
                "example.com/a=b , c",
                json!({"example.com/a": "b", "c": "d"}),
                true,
            ),
            ("in in (in)", json!({"in": "in"}), true),
        ] {
            assert_eq!(
                matches(selector, labels.clone()),
                expected,
                "{selector} {labels}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for selector in [
            "=", "a=b,", "a in b", "a in (b", "a b", "a>x", "a=b c", "a=ä", "!", "-a",
        ] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }
}
