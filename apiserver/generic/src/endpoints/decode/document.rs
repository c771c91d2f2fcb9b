//! JSON and YAML as values, with the paths of keys that are given twice; the last one wins.
//!
//! serde_json's own `Value` drops the first of two equal keys without a word.

use std::fmt;

use serde::{
    Deserialize,
    de::{self, Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Most duplicates that are named, as in `sigs.k8s.io/json`: a body made of them would else cost
/// time by the square of its length.
const MOST: usize = 100;

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// What it says.
    pub value: Value,
    /// Paths of keys that it gives twice, as `spec.list[0].name`.
    pub duplicates: Vec<String>,
}

impl Decoded {
    fn plain(value: impl Into<Value>) -> Self {
        Self {
            value: value.into(),
            duplicates: Vec::new(),
        }
    }
}

/// Reads JSON.
///
/// # Errors
/// What is wrong, and where.
pub fn parse_json(bytes: &[u8]) -> Result<Decoded, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Reads YAML.
///
/// # Errors
/// What is wrong, and where.
pub fn parse_yaml(bytes: &[u8]) -> Result<Decoded, String> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
    };
    serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| error.to_string())
}

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Decoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Decoded, E> {
        Ok(Decoded::plain(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Decoded, E> {
        Ok(Decoded::plain(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Decoded, E> {
        Ok(Decoded::plain(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Decoded, E> {
        let number = Number::from_f64(value);
        let number = number.ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Decoded::plain(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Decoded, E> {
        Ok(Decoded::plain(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Decoded, E> {
        Ok(Decoded::plain(value))
    }

    fn visit_unit<E>(self) -> Result<Decoded, E> {
        Ok(Decoded::plain(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Decoded, E> {
        Ok(Decoded::plain(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Decoded, D::Error> {
        Decoded::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Decoded, A::Error> {
        let (mut values, mut duplicates) = (Vec::new(), Vec::new());
        while let Some(item) = items.next_element::<Decoded>()? {
            let index = format!("[{}]", values.len());
            collect(&mut duplicates, &index, &item.duplicates);
            values.push(item.value);
        }
        Ok(Decoded {
            value: Value::Array(values),
            duplicates,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Decoded, A::Error> {
        let (mut fields, mut duplicates) = (Map::new(), Vec::new());
        while let Some((key, item)) = entries.next_entry::<String, Decoded>()? {
            collect(&mut duplicates, &key, &item.duplicates);
            let repeated = fields.insert(key.clone(), item.value).is_some();
            if repeated && duplicates.len() < MOST && !duplicates.contains(&key) {
                duplicates.push(key);
            }
        }
        Ok(Decoded {
            value: Value::Object(fields),
            duplicates,
        })
    }
}

fn collect(duplicates: &mut Vec<String>, parent: &str, found: &[String]) {
    let room = MOST.saturating_sub(duplicates.len());
    duplicates.extend(found.iter().take(room).map(|path| join(parent, path)));
}

fn join(parent: &str, path: &str) -> String {
    if path.starts_with('[') {
        format!("{parent}{path}")
    } else {
        format!("{parent}.{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_seen_in_json_and_yaml() {
        let expected = ["spec.list[0].a", "spec.type"];
        let text =
            br#"{"spec": {"type": "a", "list": [{"a": 1, "a": 2}], "type": "b", "type": "c"}}"#;
        let decoded = parse_json(text).unwrap();
        assert_eq!(decoded.duplicates, expected);
        assert_eq!(
            decoded.value,
            json!({"spec": {"type": "c", "list": [{"a": 2}]}})
        );
        let text = b"spec:\n  type: a\n  list:\n  - a: 1\n    a: 2\n  type: b\n  type: c\n";
        assert_eq!(parse_yaml(text).unwrap(), decoded);
    }

    #[test]
    fn a_body_full_of_duplicates_names_a_hundred() {
        let twice = |i: u32| format!("\"k{i}\":0,\"k{i}\":0");
        let fields: Vec<String> = (0..1_000).map(twice).collect();
        let flat = format!("{{{}}}", fields.join(","));
        let deep = format!("{{\"list\": [{flat}, {flat}]}}");
        for text in [flat, deep] {
            assert_eq!(parse_json(text.as_bytes()).unwrap().duplicates.len(), MOST);
        }
    }

    #[test]
    fn nesting_without_end_is_refused_before_the_stack_is_used_up() {
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert!(parse_json(&deep).is_err());
        assert!(parse_yaml(&deep).is_err());
        for depth in [100, 500, 1_000, 1_900] {
            let deep = [b"[".repeat(depth), b"]".repeat(depth)].concat();
            let _ = parse_yaml(&deep);
            let _ = parse_json(&deep);
        }
    }

    #[test]
    fn values_arrive_as_written() {
        let text = br#"{"a": null, "b": true, "c": -1, "d": 18446744073709551615, "e": 1.5, "f": "x", "g": [], "h": {}}"#;
        let expected: Value = serde_json::from_slice(text).unwrap();
        assert_eq!(parse_json(text).unwrap().value, expected);
        let yaml = b"a: ~\nb: true\nc: -1\nd: 18446744073709551615\ne: 1.5\nf: x\ng: []\nh: {}\n";
        assert_eq!(parse_yaml(yaml).unwrap().value, expected);
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        assert!(parse_json(b"{\"a\": ").unwrap_err().contains("line 1"));
        assert!(parse_json(b"{} x").is_err());
        assert!(parse_yaml(b"a: [").is_err());
    }
}
