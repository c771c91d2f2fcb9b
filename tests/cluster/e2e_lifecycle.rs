//! Deleting what really runs: children go with their workspace, and namespaces finish.

use anyhow::Result;
use kubeworkspaces_tests::guests::Place;

#[tokio::test(flavor = "multi_thread")]
async fn a_workspaces_children_are_collected_and_its_namespace_can_go() -> Result<()> {
    let place = Place::new("lifecycle").await?;
    place.machine("demo").await?;
    place.container("box").await?;
    let children = ["get", "vm,vmi,sts,svc,pods", "-o", "name"];
    let before = place.kubectl(&children).await?;
    for kind in [
        "virtualmachine.kubevirt.io/demo",
        "virtualmachineinstance.kubevirt.io/demo",
        "statefulset.apps/box",
        "service/demo",
        "service/box",
    ] {
        assert!(before.contains(kind), "{kind} is missing: {before}");
    }
    let address = place
        .kubectl(&["get", "ws", "demo", "-o", "jsonpath={.status.address}"])
        .await?;
    let pod = [
        "get",
        "pods",
        "-l",
        "kubevirt.io=virt-launcher",
        "-o",
        "jsonpath={.items[0].status.podIP}",
    ];
    assert_eq!(
        address,
        place.kubectl(&pod).await?,
        "the address is the launcher pod's"
    );

    place.kubectl(&["delete", "ws", "demo"]).await?;
    place
        .until(&children, 60, |names| !names.contains("demo"))
        .await?;
    assert!(
        place
            .kubectl(&children)
            .await?
            .contains("statefulset.apps/box"),
        "the other workspace is untouched"
    );
    place
        .cluster
        .kubectl(["delete", "namespace", &place.namespace, "--timeout=90s"])
        .await?;
    Ok(())
}
