//! The controller against a real control plane, with the rights and under the policies that it is
//! deployed with. Workspaces and Images live in a memory backend behind the real registries.
//!
//! There is no node: where a pod matters, the test writes what a kubelet would.

mod ends;
mod leader;
mod machines;
mod pods;
mod scene;

use anyhow::{Context as _, Result};
use scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_become_what_they_ask_for() -> Result<()> {
    let scene = Scene::open().await?;
    pods::container_and_scratch(&scene)
        .await
        .context("container and scratch")?;
    pods::status_of_a_pod(&scene)
        .await
        .context("status of a pod")?;
    pods::nothing_foreign_is_touched(&scene)
        .await
        .context("conflicts")?;
    machines::kubevirt_late_and_gone(&scene)
        .await
        .context("KubeVirt")?;
    ends::deleted_means_left_alone(&scene)
        .await
        .context("deletion")?;
    ends::a_finalizer_holds_it(&scene)
        .await
        .context("finalizer")?;
    ends::what_happened_is_told(&scene)
        .await
        .context("events")?;
    pods::the_catalog_shapes_containers_too(&scene)
        .await
        .context("catalog")?;
    leader::one_leader(&scene)
        .await
        .context("leader election")?;
    scene.close().await
}
