//! `workspaces/screenshot`: the display as a PNG.
//!
//! KubeVirt takes it beside whoever looks at the display; `?moveCursor=true` asks it to move the
//! pointer first, which wakes a screen that has gone dark. Every failure of KubeVirt's is a 500 in
//! plain words.

use std::time::Duration;

use apiserver_generic::{ApiError, Body, Call, Connect, Reason, call::full, request};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use tokio::sync::Semaphore;

use super::{
    mode::instead,
    opening::Streams,
    resolve::{Target, Unresolved},
    target::Finder,
    upstream::{errors, kubevirt},
};

/// How long KubeVirt may take.
const LIMIT: Duration = Duration::from_secs(15);
/// The longest picture: 4K without any compression.
const LONGEST: usize = 32 << 20;
/// How many are taken at once: with the longest ones, 128 MiB of the server's memory.
const AT_ONCE: usize = 4;
/// What every PNG begins with (W3C PNG §5.2).
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

const WHAT: &str = "screenshot of the machine";

/// The handler of `workspaces/screenshot`.
pub struct Screenshot {
    client: Client,
    finder: Finder,
    room: Semaphore,
}

impl Screenshot {
    /// With what streams have.
    pub fn new(streams: &Streams) -> Self {
        let (client, finder) = streams.reach();
        let room = Semaphore::new(AT_ONCE);
        Self {
            client,
            finder,
            room,
        }
    }
}

#[async_trait]
impl Connect for Screenshot {
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError> {
        let query = call.request.uri().query().unwrap_or_default();
        let move_cursor = move_cursor(query)?;
        let _room = self.room.try_acquire().map_err(|_| busy())?;
        let finder = &self.finder;
        let workspace = finder
            .workspace(&call.info.namespace, &call.info.name)
            .await?;
        let found = finder.target(&workspace).await?;
        let machine = match &found.target {
            Target::Container(container) => {
                return Err(instead("has no display", &workspace, container));
            }
            Target::Machine(_) if !found.features.graphics => {
                return Err(Unresolved::NoDisplay.into_error(&workspace.name));
            }
            Target::Machine(machine) => machine,
        };
        let uri = kubevirt::screenshot(&workspace.namespace, &machine.name, move_cursor);
        let picture = tokio::time::timeout(LIMIT, take(&self.client, &uri))
            .await
            .unwrap_or_else(|_| Err(late()))?;
        finder.confirm(&workspace, &found.target).await?;
        let mut response = Response::new(full(picture));
        let png = HeaderValue::from_static("image/png");
        response.headers_mut().insert(header::CONTENT_TYPE, png);
        Ok(response)
    }
}

fn move_cursor(query: &str) -> Result<bool, ApiError> {
    match request::first(query, "moveCursor").as_deref() {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(_) => Err(ApiError::bad_request("moveCursor must be true or false")),
    }
}

async fn take(client: &Client, uri: &str) -> Result<Bytes, ApiError> {
    let request = Request::get(uri)
        .header(header::ACCEPT, "image/png, */*")
        .body(kube::client::Body::empty())
        .map_err(ApiError::internal)?;
    let response = client.send(request).await.map_err(|error| {
        ApiError::new(
            Reason::ServiceUnavailable,
            format!("the {WHAT} could not be asked for; try again"),
        )
        .retry_after(1)
        .because(error)
    })?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LONGEST).collect().await;
    let body = body
        .map_err(|error| ApiError::internal(format!("{WHAT}: {error}")))?
        .to_bytes();
    if head.status != StatusCode::OK {
        return Err(errors::translate(head.status.as_u16(), &body, WHAT));
    }
    let kind = head.headers.get(header::CONTENT_TYPE);
    check(kind.and_then(|kind| kind.to_str().ok()), &body)?;
    Ok(body)
}

/// Whatever a launcher sends, we serve nothing but pictures.
fn check(kind: Option<&str>, body: &[u8]) -> Result<(), ApiError> {
    let is_png = kind.is_some_and(|kind| kind.split(';').next().unwrap_or_default() == "image/png");
    match is_png && body.starts_with(SIGNATURE) {
        true => Ok(()),
        false => Err(ApiError::internal(format!(
            "{WHAT}: {} bytes of {kind:?} are no PNG",
            body.len()
        ))),
    }
}

fn busy() -> ApiError {
    ApiError::new(
        Reason::TooManyRequests,
        format!("this server takes {AT_ONCE} screenshots at once; try again"),
    )
    .retry_after(1)
}

fn late() -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        format!(
            "the {WHAT} was not taken within {} s; try again",
            LIMIT.as_secs()
        ),
    )
    .retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_are_served() {
        let png = b"\x89PNG\r\n\x1a\n....";
        assert!(check(Some("image/png"), png).is_ok());
        for (kind, body) in [
            (Some("text/html"), &png[..]),
            (None, png),
            (Some("image/png"), b"<html>"),
            (Some("image/png"), b""),
        ] {
            assert_eq!(
                check(kind, body).unwrap_err().reason.code(),
                500,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn the_cursor_moves_on_a_plain_yes() {
        for (query, expected) in [
            ("", Some(false)),
            ("moveCursor=true", Some(true)),
            ("a=b&moveCursor=false", Some(false)),
            ("moveCursor=maybe", None),
        ] {
            assert_eq!(move_cursor(query).ok(), expected, "{query}");
        }
    }
}
