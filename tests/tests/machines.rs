//! Machines without a guest behind kubeworkspaces: the double that tests of streams stand on, itself put to the test.

use anyhow::{Result, ensure};
use kube::Client;
use kubeworkspaces_tests::{
    deployment::Deployment,
    machines::{ECHO, GREETING, Machines},
    stream::{End, Stream, open},
};
use localvirt::checker::Mode;

const NAMESPACE: &str = "default";
const PATH: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/demo/console";

/// A server, machines, and a workspace `demo` whose machine runs; the client is an ordinary user's.
async fn running() -> Result<(Deployment, Machines, Client)> {
    let deployment = Deployment::start().await?;
    let machines = Machines::start(deployment.plane()).await?;
    deployment.apply(&workspace()).await?;
    machines.running(NAMESPACE, "demo").await?;
    let binding = [
        "create",
        "rolebinding",
        "jane",
        "--clusterrole=edit",
        "--user=jane",
    ];
    deployment.kubectl(&binding).await?;
    let jane = deployment.plane().client_as("jane", &[])?;
    let may = [
        "auth",
        "can-i",
        "create",
        "workspaces.kubeworkspaces.io/console",
        "--as=jane",
    ];
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while deployment.kubectl(&may).await.is_err() {
        ensure!(std::time::Instant::now() < end, "the role never came");
    }
    Ok((deployment, machines, jane))
}

fn workspace() -> String {
    format!(
        "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata: {{name: demo}}\nspec:\n  type: vm\n  template:\n    \
         spec:\n      containers:\n      - name: main\n        image: {ECHO}\n        resources: {{limits: {{cpu: '1', memory: \
         128Mi}}}}\n"
    )
}

async fn console(client: &Client) -> Result<Stream> {
    let mut stream = open(client, PATH, &["plain.kubevirt.io"]).await?.stream()?;
    stream.expect(GREETING, 10).await?;
    Ok(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspaces_console_reaches_a_machine_without_a_guest_and_never_two_hold_it() -> Result<()>
{
    let (_deployment, machines, jane) = running().await?;
    for _ in 0..5 {
        let mut stream = console(&jane).await?;
        stream.write("hello").await?;
        stream.expect("hello", 10).await?;
        stream.close().await?;
    }
    let tally = machines.checker().tally(NAMESPACE, Mode::Console);
    assert_eq!((tally.accepted, tally.violations), (5, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_is_cut_with_the_cause_when_its_machine_moves_or_dies() -> Result<()> {
    let (_deployment, machines, jane) = running().await?;
    let mut stream = console(&jane).await?;
    machines.migrate(NAMESPACE, "demo").await?;
    let End::Closed(code, _) = stream.end(10).await? else {
        anyhow::bail!("cut without a word");
    };
    assert_eq!(code, 4005, "migrated");
    let mut stream = console(&jane).await?;
    machines.end_guest(NAMESPACE, "demo").await?;
    let End::Closed(code, _) = stream.end(10).await? else {
        anyhow::bail!("cut without a word");
    };
    assert_eq!(code, 4006, "guest gone");
    Ok(())
}
