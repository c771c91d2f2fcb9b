//! Leader election.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use controller::{Candidate, Times};
use tokio_util::sync::CancellationToken;

use crate::scene::{Scene, USER, eventually};

/// Two candidates: one works; when it ends the other takes over, and never both at once.
pub(crate) async fn one_leader(scene: &Scene) -> Result<()> {
    let client = scene.plane.client_as(USER, &["system:serviceaccounts"])?;
    let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let candidate = |identity: &str, stop: &CancellationToken| {
        let candidate = Candidate {
            namespace: "kubeworkspaces-system".to_owned(),
            lease: "workspaces-controller".to_owned(),
            identity: identity.to_owned(),
            times: Times::default(),
        };
        let (at_work, most) = (at_work.clone(), most.clone());
        controller::spawn_when_leader(client.clone(), candidate, stop.clone(), move |token| {
            let (at_work, most) = (at_work.clone(), most.clone());
            async move {
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                token.cancelled().await;
                at_work.fetch_sub(1, Ordering::SeqCst);
            }
        })
    };
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let (a, b) = (candidate("a", &stop_a), candidate("b", &stop_b));
    let working = |n: usize| {
        let at_work = at_work.clone();
        move || {
            let at_work = at_work.clone();
            async move {
                ensure!(at_work.load(Ordering::SeqCst) == n, "not {n} at work");
                Ok(())
            }
        }
    };
    eventually("one leads", working(1)).await?;
    let lease = scene
        .plane
        .kubectl([
            "get",
            "lease",
            "-n",
            "kubeworkspaces-system",
            "workspaces-controller",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])
        .await?;
    let (first, ended, second, rest) = match lease.as_str() {
        "a" => (stop_a, a, stop_b, b),
        _ => (stop_b, b, stop_a, a),
    };
    first.cancel();
    ended.await?;
    let begun = std::time::Instant::now();
    eventually("the other leads", working(1)).await?;
    ensure!(
        begun.elapsed() < Duration::from_secs(12),
        "the Lease was not given back"
    );
    second.cancel();
    rest.await?;
    ensure!(most.load(Ordering::SeqCst) == 1, "two led at once");
    Ok(())
}
