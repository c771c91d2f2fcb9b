//! Tables of the API server (`meta.k8s.io/v1` Table), printed as kubectl prints them. Entry point: [`lines`].

use serde_json::Value;

/// Asks for a table, and takes the objects from a server that makes none.
pub const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Between two columns.
const GAP: usize = 3;

/// What is shown of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// All columns.
    pub wide: bool,
    /// A column of namespaces first.
    pub namespaces: bool,
}

/// The heading and the rows.
pub fn lines(table: &Value, shown: Shown) -> Vec<String> {
    let columns: Vec<(usize, &str)> = items(&table["columnDefinitions"])
        .enumerate()
        .filter(|(_, column)| shown.wide || column["priority"].as_i64().unwrap_or(0) == 0)
        .map(|(index, column)| (index, column["name"].as_str().unwrap_or_default()))
        .collect();
    let namespace = |cell: String| shown.namespaces.then_some(cell);
    let heading = columns.iter().map(|(_, name)| name.to_uppercase());
    let mut rows = vec![
        namespace("NAMESPACE".into())
            .into_iter()
            .chain(heading)
            .collect(),
    ];
    for row in items(&table["rows"]) {
        let cells = columns.iter().map(|(index, _)| cell(&row["cells"][*index]));
        let of = cell(&row["object"]["metadata"]["namespace"]);
        rows.push(namespace(of).into_iter().chain(cells).collect());
    }
    align(&rows)
}

/// The names of the objects in a table.
pub fn names(table: &Value) -> Vec<String> {
    let names = items(&table["rows"]).filter_map(|row| row["object"]["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What a terminal would take for a command is shown and not obeyed.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            c if c.is_ascii_control() => {
                shown.push('^');
                shown.push(char::from((c as u8) ^ 0x40));
            }
            c if c.is_control() => shown.push(char::REPLACEMENT_CHARACTER),
            c => shown.push(c),
        }
    }
    shown
}

fn align(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded = cells.map(|(cell, width)| format!("{cell:<0$}", width + GAP));
        padded.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Value {
        json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Status", "priority": 0}, {"name": "Node", "priority": 1}],
            "rows": [
                {"cells": ["demo", "Running", "n1"], "object": {"metadata": {"name": "demo", "namespace": "t1"}}},
                {"cells": ["a", null, "n2"], "object": {"metadata": {"name": "a", "namespace": "team-two"}}},
            ],
        })
    }

    #[test]
    fn columns_are_aligned_as_kubectl_does_it() {
        assert_eq!(
            lines(&table(), Shown::default()),
            ["NAME   STATUS", "demo   Running", "a"]
        );
        let all = Shown {
            wide: true,
            namespaces: true,
        };
        assert_eq!(
            lines(&table(), all),
            [
                "NAMESPACE   NAME   STATUS    NODE",
                "t1          demo   Running   n1",
                "team-two    a                n2",
            ]
        );
        assert_eq!(names(&table()), ["demo", "a"]);
    }

    #[test]
    fn a_cell_cannot_command_the_terminal() {
        assert_eq!(
            cell(&json!("a\u{1b}[2Jb\nc\u{7f}\u{9b}")),
            "a^[[2Jb\\nc^?\u{fffd}"
        );
        assert_eq!(cell(&json!(3)), "3");
    }
}
