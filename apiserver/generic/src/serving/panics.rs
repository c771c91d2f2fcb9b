//! A panic while a request is answered ends that request, not the server.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;
use http::Response;

use crate::{ApiError, Body};

/// Runs `answer`; a panic in it becomes a 500 Status, and its message goes to the log.
pub async fn contain(answer: impl Future<Output = Response<Body>>) -> Response<Body> {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            tracing::error!(panic = message(panic.as_ref()), "a request caused a panic");
            let mut error = ApiError::internal("panic");
            error.message = "This request caused the server to panic. \
                             Its log has the details; please report them."
                .to_owned();
            error.to_response()
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_500() {
        let response = contain(async { panic!("boom {}", 1) }).await;
        assert_eq!(response.status(), 500);
    }
}
