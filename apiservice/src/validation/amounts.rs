//! Amounts: every quantity can be read and is none below zero, and requests are within their limits.

use apiserver_generic::{Cause, Object, schema::with_format};
use serde_json::{Map, Value};

use super::{cause, invalid_value};
use crate::quantity::Quantity;

/// Names of resources that need no domain before them.
const PLAIN: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const PAGES: &str = "hugepages-";

/// Every quantity of an object that is none, or is below zero.
pub(super) fn quantities(row: &Value, object: &Object) -> Vec<Cause> {
    let value = object.clone().into_value();
    let found = with_format(row, &value, "quantity");
    found
        .into_iter()
        .filter_map(|(path, value)| quantity(&path, value))
        .collect()
}

fn quantity(path: &str, value: &Value) -> Option<Cause> {
    if value.is_null() {
        return None;
    }
    match Quantity::read(value) {
        None => {
            let why = "must be a quantity, as 2, 500m or 4Gi";
            Some(invalid_value(path, value, why))
        }
        Some(read) if read.is_negative() => {
            let why = "must be greater than or equal to 0";
            Some(invalid_value(path, value, why))
        }
        Some(_) => None,
    }
}

/// The names of a container's resources, and requests above their limits.
pub(super) fn resources(container: &Value, path: &str) -> Vec<Cause> {
    let side = |side: &str| container["resources"][side].as_object();
    let mut causes = Vec::new();
    for (name, map) in [("limits", side("limits")), ("requests", side("requests"))] {
        for resource in map.into_iter().flat_map(Map::keys) {
            causes.extend(resource_name(
                &format!("{path}.resources.{name}[{resource}]"),
                resource,
            ));
        }
    }
    let limits = side("limits");
    for (name, request) in side("requests").into_iter().flatten() {
        let limit = limits.and_then(|limits| limits.get(name));
        let (Some(asked), Some(limit)) = (Quantity::read(request), limit.and_then(Quantity::read))
        else {
            continue;
        };
        if limit.is_less(&asked) {
            let why = format!(
                "must be less than or equal to {name} limit of {}",
                limit.text()
            );
            let field = format!("{path}.resources.requests[{name}]");
            causes.push(invalid_value(&field, request, &why));
        }
    }
    causes
}

/// `cpu`, `hugepages-2Mi`, `example.com/gpu`.
fn resource_name(field: &str, name: &str) -> Option<Cause> {
    let known = PLAIN.contains(&name) || name.starts_with(PAGES);
    let qualified = name.split_once('/').is_some_and(|(domain, rest)| {
        !domain.is_empty() && !rest.is_empty() && !rest.contains('/')
    });
    (!known && !qualified).then(|| {
        cause(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {name:?}: must be a standard resource for containers, or have a domain, as example.com/gpu"),
        )
    })
}

/// Sizes with which nothing could be made.
pub(super) fn above_zero(object: &Object, field: &str) -> Option<Cause> {
    let value = object.pointer(&format!("/{}", field.replace('.', "/")))?;
    let read = Quantity::read(value)?;
    read.is_zero()
        .then(|| invalid_value(field, value, "must be greater than 0"))
}
