//! HTTP verbs over registries.
//!
//! Entry point: [`Group`], built from registries and from handlers of streaming subresources. A
//! request is taken apart by `query`, `accept` and `decode`, answered by `read`, `write`, `remove`
//! or `watch`, and shaped by `shape`, `list` and `respond`.
//! After `k8s.io/apiserver/pkg/endpoints/handlers`.

mod accept;
mod action;
mod decode;
mod gzip;
mod list;
mod list_options;
mod media;
mod query;
mod read;
mod remove;
mod respond;
mod route;
mod shape;
mod token;
mod watch;
mod write;
mod write_options;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use http::Response;

pub use action::Action;
pub use decode::{Decoded, parse_json, parse_yaml};
pub use query::Query;

use crate::{ApiError, Body, Call, Connect, Endpoints, Registry, call};
use route::Route;

/// One resource and the handlers of its streaming subresources.
struct Served {
    registry: Registry,
    connect: BTreeMap<&'static str, Arc<dyn Connect>>,
}

/// The resources of one group and version.
#[derive(Default)]
pub struct Group {
    served: BTreeMap<&'static str, Served>,
}

impl Group {
    /// No resource.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves a resource.
    #[must_use]
    pub fn resource(mut self, registry: Registry) -> Self {
        let plural = registry.resource().plural;
        let connect = BTreeMap::new();
        self.served.insert(plural, Served { registry, connect });
        self
    }

    /// Answers `resource/subresource` by a handler. The row says which verbs it gets.
    ///
    /// A handler for a resource that is not served is not reachable, which is logged.
    #[must_use]
    pub fn connect(
        mut self,
        resource: &str,
        subresource: &'static str,
        handler: Arc<dyn Connect>,
    ) -> Self {
        match self.served.get_mut(resource) {
            Some(served) => {
                served.connect.insert(subresource, handler);
            }
            None => tracing::error!(
                resource,
                subresource,
                "no such resource: its handler is unreachable"
            ),
        }
        self
    }

    async fn answer(&self, call: Call) -> Result<Response<Body>, ApiError> {
        let served = self.served.get(call.info.resource.as_str());
        let served = served.ok_or_else(route::unknown_path)?;
        let registry = &served.registry;
        match route::route(registry.resource(), &call.info)? {
            Route::Get { .. } => read::get(registry, call).await,
            Route::List => read::list(registry, call).await,
            Route::Watch => watch::watch(registry, call).await,
            Route::Create => write::create(registry, call).await,
            Route::Update { subresource } => write::update(registry, call, subresource).await,
            Route::Patch { subresource } => write::patch(registry, call, subresource).await,
            Route::Delete => remove::delete(registry, call).await,
            Route::DeleteCollection => remove::delete_collection(registry, call).await,
            Route::Connect(name) => match served.connect.get(name) {
                Some(handler) => handler.connect(call).await,
                None => Err(ApiError::internal(format!("no handler for {name}"))),
            },
        }
    }
}

#[async_trait]
impl Endpoints for Group {
    async fn handle(&self, call: Call) -> Response<Body> {
        let accept = call.request.headers().clone();
        match self.answer(call).await {
            Ok(response) => response,
            Err(error) => respond::failure(&error, &accept),
        }
    }
}

/// A body that is ready, in chunks.
fn body(bytes: impl Into<bytes::Bytes>) -> Body {
    call::full(bytes)
}

#[cfg(test)]
mod tests;
