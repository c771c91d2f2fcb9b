//! When a control plane is ready, and what to say when it does not get there.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use crate::proc::ProcError;

/// How often readiness is asked for.
const EVERY: Duration = Duration::from_millis(50);

/// Why a control plane is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// A program ended.
    #[error(transparent)]
    Ended(#[from] ProcError),
    /// Time is over.
    #[error("{what} is not ready after {limit:?}: {last}; look into {log}")]
    Late {
        /// Which part.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
        /// What the last try said.
        last: String,
        /// Where the reason probably is.
        log: String,
    },
}

/// Waits until kube-apiserver says that it is ready. `alive` is asked before each try, so that a program which has
/// ended is reported at once, with its log.
pub async fn wait_until_ready(
    client: &Client,
    limit: Duration,
    log: &str,
    mut alive: impl FnMut() -> Result<(), ProcError>,
) -> Result<(), NotReady> {
    wait("kube-apiserver", limit, log, &mut alive, || async {
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .map_err(|e| e.to_string())?;
        client
            .request_text(request)
            .await
            .map(drop)
            .map_err(|e| e.to_string())
    })
    .await
}

/// Waits until kube-controller-manager works: it has made the ServiceAccount without which no pod is admitted.
pub async fn wait_for_controllers(
    client: &Client,
    limit: Duration,
    log: &str,
    mut alive: impl FnMut() -> Result<(), ProcError>,
) -> Result<(), NotReady> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    wait(
        "kube-controller-manager",
        limit,
        log,
        &mut alive,
        || async {
            accounts
                .get("default")
                .await
                .map(drop)
                .map_err(|e| e.to_string())
        },
    )
    .await
}

async fn wait<F: Future<Output = Result<(), String>>>(
    what: &'static str,
    limit: Duration,
    log: &str,
    alive: &mut impl FnMut() -> Result<(), ProcError>,
    probe: impl Fn() -> F,
) -> Result<(), NotReady> {
    let end = Instant::now() + limit;
    loop {
        alive()?;
        let last = match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(message)) => message,
            Err(_) => "no answer".to_owned(),
        };
        if Instant::now() >= end {
            return Err(NotReady::Late {
                what,
                limit,
                last,
                log: log.to_owned(),
            });
        }
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn tries_until_it_works() {
        let tries = Cell::new(0);
        let probe = || async {
            tries.set(tries.get() + 1);
            if tries.get() == 3 {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        };
        wait("x", Duration::from_secs(9), "x.log", &mut || Ok(()), probe)
            .await
            .unwrap();
        assert_eq!(tries.get(), 3);
    }

    #[tokio::test]
    async fn gives_up_in_time_naming_the_last_answer_and_the_log() {
        for (probe_hangs, want) in [(false, "connection refused"), (true, "no answer")] {
            let probe = || async move {
                if probe_hangs {
                    std::future::pending::<()>().await;
                }
                Err("connection refused".to_owned())
            };
            let error = wait(
                "x",
                Duration::from_millis(90),
                "/l/x.log",
                &mut || Ok(()),
                probe,
            )
            .await
            .unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("x is not ready after 90ms: {want}; look into /l/x.log")
            );
        }
    }

    #[tokio::test]
    async fn a_program_that_ended_is_reported_before_the_time_is_over() {
        let gone = || ProcError::Immortal {
            name: "etcd".into(),
            pid: 1,
        };
        let error = wait(
            "x",
            Duration::from_secs(9),
            "x.log",
            &mut || Err(gone()),
            std::future::pending,
        )
        .await;
        assert!(matches!(error, Err(NotReady::Ended(_))));
    }
}
