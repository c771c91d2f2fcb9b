//! An object in the shape that was asked for: whole, its metadata, or a row of a Table. Pure.

use serde_json::{Map, Value, json};

use super::{
    accept::{MetaVersion, Shape, not_acceptable},
    query::Query,
};
use crate::{ApiError, Object, Strategy};

/// What a Table's rows carry of their objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Include {
    /// Nothing.
    None,
    /// Metadata.
    #[default]
    Metadata,
    /// All.
    Object,
}

impl Include {
    /// Reads `includeObject`.
    pub(super) fn of(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

/// How objects are shown.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// Decides about cells.
    pub(super) strategy: &'a dyn Strategy,
    /// Shape of the answer.
    pub(super) shape: Shape,
    /// What rows carry.
    pub(super) include: Include,
    /// Unix seconds, for ages.
    pub(super) now: i64,
}

impl View<'_> {
    /// One object as a whole answer.
    pub(super) fn single(&self, object: &Object) -> Result<Value, ApiError> {
        match self.shape {
            Shape::Whole => Ok(json!(object)),
            Shape::Partial(version) => Ok(partial(object, version)),
            Shape::PartialList(_) => Err(not_acceptable()),
            Shape::Table(version) => Ok(self.table_of(object, version, true)),
        }
    }

    /// A Table with one row.
    pub(super) fn table_of(&self, object: &Object, version: MetaVersion, headers: bool) -> Value {
        let mut table = table(version);
        let revision = object.resource_version().unwrap_or_default();
        table.insert("metadata".to_owned(), json!({"resourceVersion": revision}));
        let columns = if headers { self.columns() } else { json!([]) };
        table.insert("columnDefinitions".to_owned(), columns);
        table.insert("rows".to_owned(), json!([self.row(object, version)]));
        Value::Object(table)
    }

    /// The Table's header: `Name`, then the resource's own columns.
    pub(super) fn columns(&self) -> Value {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name must be unique within a namespace.",
        });
        let own = self.strategy.resource().columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": "",
                "priority": column.priority, "description": column.description,
            })
        });
        std::iter::once(name).chain(own).collect()
    }

    /// A row.
    pub(super) fn row(&self, object: &Object, version: MetaVersion) -> Value {
        let mut cells = vec![json!(object.name())];
        cells.extend(self.strategy.cells(object, self.now));
        let mut row = json!({ "cells": cells });
        match self.include {
            Include::None => {}
            Include::Metadata => row["object"] = partial(object, version),
            Include::Object => row["object"] = json!(object),
        }
        row
    }
}

/// An empty Table.
pub(super) fn table(version: MetaVersion) -> Map<String, Value> {
    let mut table = Map::new();
    table.insert("kind".to_owned(), json!("Table"));
    table.insert("apiVersion".to_owned(), json!(version.api_version()));
    table
}

/// The metadata of an object.
pub(super) fn partial(object: &Object, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": version.api_version(),
        "metadata": object.fields().get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}
