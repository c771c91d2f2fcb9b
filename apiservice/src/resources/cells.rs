//! Cells that several tables share.

use apiserver_generic::{Object, resource::Column};
use serde_json::{Value, json};

/// The `Age` column, last in every table.
pub(super) const AGE: Column = Column {
    name: "Age",
    kind: "string",
    description: "Time since the object was created.",
    priority: 0,
};

/// A column of strings that is always shown.
pub(super) const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        description,
        priority: 0,
    }
}

/// A column of strings that only `-o wide` shows.
pub(super) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        description,
        priority: 1,
    }
}

/// The string at a pointer, or nothing.
pub(super) fn string(object: &Object, pointer: &str) -> Value {
    json!(object.str_at(pointer).unwrap_or_default())
}

/// How long ago the object was created, as kubectl writes it.
pub(super) fn age(object: &Object, now: i64) -> Value {
    since(
        object
            .metadata()
            .and_then(|m| m.get("creationTimestamp")?.as_str()),
        now,
    )
}

/// How long ago a time was, as kubectl writes it.
pub(super) fn since(time: Option<&str>, now: i64) -> Value {
    let Some(then) = time.and_then(|t| t.parse::<jiff::Timestamp>().ok()) else {
        return json!("<unknown>");
    };
    json!(human_duration(now - then.as_second()))
}

/// Two units at most, fewer as it grows (`k8s.io/apimachinery/pkg/util/duration.HumanDuration`).
fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds, YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

fn two(seconds: i64, large: i64, large_name: &str, small: i64, small_name: &str) -> String {
    match seconds % large / small {
        0 => format!("{}{large_name}", seconds / large),
        rest => format!("{}{large_name}{rest}{small_name}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_writes_them() {
        let table = [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (252_288_000, "8y"),
        ];
        for (seconds, expected) in table {
            assert_eq!(human_duration(seconds), expected);
        }
    }
}
