//! Deleting: namespaces finish, and children go with their workspace.

use std::time::Duration;

use anyhow::Result;
use kubeworkspaces_tests::{
    deployment::{Deployment, repository},
    fixtures::workspace,
};

/// Asks kubectl again until the output is as wanted.
async fn until(
    deployment: &Deployment,
    args: &[&str],
    wanted: impl Fn(&str) -> bool,
) -> Result<String> {
    let end = std::time::Instant::now() + Duration::from_secs(90);
    loop {
        let output = deployment.kubectl(args).await?;
        if wanted(&output) {
            return Ok(output);
        }
        anyhow::ensure!(
            std::time::Instant::now() < end,
            "kubectl {args:?} still says: {output}\n{}",
            deployment.tail()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_workspaces_in_it_can_be_deleted() -> Result<()> {
    let deployment = Deployment::start().await?;
    deployment.kubectl(&["create", "namespace", "team"]).await?;
    for (name, kind) in [("a", "vm"), ("b", "scratch"), ("c", "container")] {
        let manifest =
            workspace(name, kind).replace("metadata:\n", "metadata:\n  namespace: team\n");
        deployment.apply(&manifest).await?;
    }
    until(
        &deployment,
        &["get", "deploy,sts", "-n", "team", "-o", "name"],
        |o| o.lines().count() == 2,
    )
    .await?;
    deployment
        .kubectl(&["delete", "namespace", "team", "--timeout=90s"])
        .await?;
    let gone = deployment
        .kubectl(&["get", "storedworkspaces", "-A", "-o", "name"])
        .await?;
    assert!(
        !gone
            .lines()
            .any(|line| ["/a", "/b", "/c"].iter().any(|n| line.ends_with(n))),
        "{gone}"
    );
    let error = deployment
        .apply(&workspace("late", "vm").replace("metadata:\n", "metadata:\n  namespace: team\n"))
        .await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("namespaces \"team\" not found")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn children_are_made_and_collected_with_their_workspace() -> Result<()> {
    let deployment = Deployment::start().await?;
    let crds = repository().join("hack/localvirt/crds");
    deployment
        .kubectl(&["apply", "--server-side", "-f", &crds.to_string_lossy()])
        .await?;
    deployment.apply(IMAGE).await?;
    deployment.apply(&workspace("machine", "vm")).await?;
    let names = [
        "get",
        "virtualmachines.kubevirt.io,services,secrets",
        "-o",
        "name",
    ];
    let made = until(&deployment, &names, |o| {
        o.contains("virtualmachine") && o.contains("cloudinit")
    })
    .await?;
    assert!(made.contains("service/machine"), "{made}");
    let machine = deployment
        .kubectl(&["get", "vm", "machine", "-o", "json"])
        .await?;
    let machine: serde_json::Value = serde_json::from_str(&machine)?;
    assert_eq!(machine["spec"]["runStrategy"], "Always");
    assert!(
        !machine.to_string().contains("hunter2"),
        "the password is in the Secret only"
    );

    deployment
        .kubectl(&[
            "annotate",
            "ws",
            "machine",
            "kubeworkspaces.io/stopped=true",
        ])
        .await?;
    until(
        &deployment,
        &["get", "vm", "machine", "-o", "jsonpath={.spec.runStrategy}"],
        |o| o == "Halted",
    )
    .await?;
    deployment
        .kubectl(&["annotate", "ws", "machine", "kubeworkspaces.io/stopped-"])
        .await?;
    until(
        &deployment,
        &["get", "vm", "machine", "-o", "jsonpath={.spec.runStrategy}"],
        |o| o == "Always",
    )
    .await?;

    deployment.kubectl(&["delete", "ws", "machine"]).await?;
    until(&deployment, &names, |o| !o.contains("machine")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_owns_is_never_taken() -> Result<()> {
    let deployment = Deployment::start().await?;
    deployment
        .kubectl(&[
            "create",
            "deployment",
            "mine",
            "--image=example.test/other:1",
        ])
        .await?;
    deployment.apply(&workspace("mine", "scratch")).await?;
    let reason = [
        "get",
        "ws",
        "mine",
        "-o",
        "jsonpath={.status.conditions[?(@.type=='Ready')].reason}",
    ];
    until(&deployment, &reason, |o| o == "NameConflict").await?;
    let image = [
        "get",
        "deploy",
        "mine",
        "-o",
        "jsonpath={.spec.template.spec.containers[0].image}",
    ];
    assert_eq!(deployment.kubectl(&image).await?, "example.test/other:1");
    Ok(())
}

const IMAGE: &str = "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Image\nmetadata: {name: test}\nspec:\n  \
    image: example.test/image:1\n  defaultPort: 22\n  workspaceTypes: [vm]\n  defaultCloudInit: true\n  \
    defaultUser: user\n  defaultPassword: hunter2\n";
