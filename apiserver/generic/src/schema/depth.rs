//! How deep documents may be nested.
//!
//! JSON readers give up at some depth, ours at 128. An object that was taken just below that limit
//! is deeper once it stands in its envelope, in a list: nobody could read the list any more. And
//! what recurses over documents must not use up its stack.

use serde_json::Value;

/// Most levels of an object; a Pod has about 15.
pub const DEEPEST: usize = 64;

/// Whether a value has more than `levels` levels of lists and maps. It looks no deeper than that.
pub fn deeper_than(value: &Value, levels: usize) -> bool {
    let inside = |value: &Value| match levels.checked_sub(1) {
        Some(left) => deeper_than(value, left),
        None => true,
    };
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(inside),
        Value::Object(fields) => levels == 0 || fields.values().any(inside),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn levels_are_counted_in_lists_and_maps() {
        for (value, levels) in [
            (json!(1), 0),
            (json!([]), 1),
            (json!({"a": 1}), 1),
            (json!([{"a": [1]}, 2]), 3),
        ] {
            assert!(!deeper_than(&value, levels), "{value}");
            if levels > 0 {
                assert!(deeper_than(&value, levels - 1), "{value}");
            }
        }
    }
}
