//! A list in the shape that was asked for, written item by item: what is in memory is one chunk.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::{
    accept::{Format, MetaVersion, Shape, Wanted, not_acceptable},
    gzip::Chunks,
    respond,
    shape::{Include, View, partial, table},
};
use crate::{ApiError, Body, Registry, cache::Item};

/// About how much is written at once.
const CHUNK: usize = 32 << 10;

/// Writes one object in the shape that was asked for.
type WriteItem = Box<dyn Fn(&Item, &mut Vec<u8>) + Send>;

/// A list to be sent.
pub(super) struct List {
    /// The objects.
    pub(super) items: Vec<Arc<Item>>,
    /// `metadata` of the list.
    pub(super) metadata: Value,
    /// What rows carry, if it becomes a Table.
    pub(super) include: Include,
}

impl List {
    /// As an answer.
    pub(super) fn respond(
        self,
        registry: &Registry,
        wanted: Wanted,
        request: &HeaderMap,
    ) -> Result<Response<Body>, ApiError> {
        let chunks = self.chunks(registry, wanted.shape)?;
        if wanted.format == Format::Json {
            return Ok(respond::chunks(chunks, request));
        }
        // For people: the document is built as a whole.
        let bytes: Vec<u8> = chunks.flat_map(|chunk| chunk.to_vec()).collect();
        let document = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        respond::document(StatusCode::OK, &document, wanted, request)
    }

    fn chunks(self, registry: &Registry, shape: Shape) -> Result<Chunks, ApiError> {
        let row = registry.resource();
        let writer: WriteItem = match shape {
            Shape::Whole => Box::new(|item, out| out.extend_from_slice(&item.json)),
            Shape::PartialList(version) => {
                Box::new(move |item, out| write(&partial(&item.object, version), out))
            }
            Shape::Table(version) => rows(registry.clone(), self.include, version),
            Shape::Partial(_) => return Err(not_acceptable()),
        };
        let mut head = match shape {
            Shape::Table(version) => Value::Object(table(version)),
            Shape::PartialList(version) => {
                json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version()})
            }
            _ => json!({"kind": format!("{}List", row.kind), "apiVersion": row.api_version()}),
        };
        head["metadata"] = self.metadata;
        let mut field = "items";
        if let Shape::Table(_) = shape {
            field = "rows";
            head["columnDefinitions"] = view(registry, shape, self.include).columns();
        }
        let mut head = head.to_string();
        head.pop();
        head += &format!(",\"{field}\":[");
        Ok(Box::new(Writing {
            buffer: head.into_bytes(),
            items: self.items.into_iter(),
            write: writer,
            state: State::First,
        }))
    }
}

fn rows(registry: Registry, include: Include, version: MetaVersion) -> WriteItem {
    let now = registry.environment().now().as_second();
    Box::new(move |item, out| {
        let view = View {
            strategy: registry.strategy(),
            shape: Shape::Table(version),
            include,
            now,
        };
        write(&view.row(&item.object, version), out);
    })
}

/// How a registry's objects are shown now.
pub(super) fn view(registry: &Registry, shape: Shape, include: Include) -> View<'_> {
    View {
        strategy: registry.strategy(),
        shape,
        include,
        now: registry.environment().now().as_second(),
    }
}

fn write(value: &Value, out: &mut Vec<u8>) {
    // Writing JSON into a vector does not fail.
    let _ = serde_json::to_writer(out, value);
}

enum State {
    First,
    Further,
    Ended,
}

/// Writes a list in chunks.
struct Writing {
    buffer: Vec<u8>,
    items: std::vec::IntoIter<Arc<Item>>,
    write: WriteItem,
    state: State,
}

impl Iterator for Writing {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            match (&self.state, self.items.next()) {
                (State::Ended, _) => return None,
                (_, None) => {
                    self.state = State::Ended;
                    self.buffer.extend_from_slice(b"]}\n");
                    return Some(std::mem::take(&mut self.buffer).into());
                }
                (state, Some(item)) => {
                    if matches!(state, State::Further) {
                        self.buffer.push(b',');
                    }
                    self.state = State::Further;
                    (self.write)(&item, &mut self.buffer);
                }
            }
            if self.buffer.len() >= CHUNK {
                return Some(std::mem::take(&mut self.buffer).into());
            }
        }
    }
}
