//! A whole node comes up, runs pods that reach each other over both address families, and leaves nothing behind.
//!
//! Needs root, and the programs in `KUBEBUILDER_ASSETS` or the cache; without either the test says so and is skipped.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper that fails fails its test"
)]

mod cluster;

use std::time::Duration;

use cluster::Cluster;
use localcluster::controlplane::ServiceRanges;
use localcluster::harness::Snapshot;
use localcluster::node::{self, footprint, images, namespaces::Namespaces};

/// A server on both families, a client, and a dual-stack Service between them.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: images.kubeworkspaces.test/busybox:1
    command: [sh, -c, "echo started; mkdir /tmp/www; echo hello >/tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www"]
    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
    securityContext: {runAsNonRoot: true, runAsUser: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: images.kubeworkspaces.test/busybox:1
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"]
    volumeMounts: [{name: image, mountPath: /image}]
  volumes: [{name: image, image: {reference: images.kubeworkspaces.test/pause:1, pullPolicy: IfNotPresent}}]
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec:
  selector: {app: server}
  ipFamilyPolicy: RequireDualStack
  ports: [{port: 80}]
"#;

#[test]
fn a_node_runs_pods_and_leaves_nothing_behind() {
    if let Some(reason) = cluster::skip_reason() {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(dir.path());
    let own = footprint::name(cluster.state().root());
    let before = Snapshot::take(dir.path(), &own).unwrap();
    let up = cluster.up();

    pods_run(&cluster);
    services_answer(&cluster);
    the_machine_is_reached_and_nothing_beyond(&cluster);
    assert_eq!(cluster.up(), up, "a second start must change nothing");
    nothing_of_the_machine_changed(&before, &cluster);
    a_program_that_ended_is_started_again(&cluster, &up);
    a_killed_start_is_undone(&cluster);

    cluster.down();
    let left = before.until_same(dir.path(), &own, Duration::from_secs(10));
    assert_eq!(left.unwrap(), Vec::<String>::new());
    assert!(!cluster.state().node().exists());
}

fn pods_run(cluster: &Cluster) {
    cluster.apply(PODS);
    cluster.kubectl("wait --for=condition=Ready pod/server pod/client --timeout=60s");
    assert_eq!(cluster.kubectl("logs server"), "started\n");
    assert_eq!(
        cluster.kubectl("exec client -- ls /image/bin"),
        "busybox\nsleep\n"
    );
    let terminal = cluster.on_terminal("exec -it client -- sh -c 'tty; exit 7'");
    assert!(terminal.contains("/dev/pts/"), "{terminal}");
    assert_eq!(cluster.fails("exec client -- sh -c 'exit 7'"), 7);
    assert_eq!(
        cluster.kubectl("exec client -- cat /proc/sys/vm/overcommit_memory"),
        std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap()
    );
}

fn services_answer(cluster: &Cluster) {
    let addresses = cluster.kubectl("get service server -o jsonpath={.spec.clusterIPs[*]}");
    let addresses: Vec<_> = addresses.split(' ').collect();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    let pods = cluster.kubectl("get pod server -o jsonpath={.status.podIPs[*].ip}");
    for address in addresses.into_iter().chain(pods.split(' ')) {
        let ask = format!(
            "exec client -- sh -c \"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {address} 80 | tail -n 1\""
        );
        assert_eq!(cluster.kubectl(&ask), "hello\n", "{address}");
    }
    assert_eq!(cluster.port_forward("server", 80), "hello");
}

/// A server on the machine's end of the link is reached from the node (kube-apiserver calls one with `hack/up --dev`)
/// and from pods; nothing has a route to anywhere else.
fn the_machine_is_reached_and_nothing_beyond(cluster: &Cluster) {
    let (address, server) = cluster.serve_on_link("machine\n", 2);
    let ask = format!("nc {} {}", address.ip(), address.port());
    assert_eq!(
        cluster.inside(&format!("busybox {ask}")),
        Ok("machine\n".to_owned())
    );
    assert_eq!(
        cluster.kubectl(&format!("exec client -- {ask}")),
        "machine\n"
    );
    server.join().unwrap();
    for outside in ["192.0.2.77", "2001:db8::77"] {
        let route = cluster.inside(&format!("ip route get {outside}"));
        assert!(
            route
                .as_ref()
                .is_err_and(|error| error.contains("unreachable")),
            "{route:?}"
        );
    }
}

/// While it runs the machine has more: a link with two addresses, control groups. What it had is as it was, and no
/// route leads to pods or Services.
fn nothing_of_the_machine_changed(before: &Snapshot, cluster: &Cluster) {
    let link = cluster.link();
    let now = Snapshot::take(cluster.state().root(), &link).unwrap();
    let difference = before.difference(&now);
    assert!(
        difference.iter().all(|line| line.starts_with("+ ")),
        "{difference:#?}"
    );
    let ServiceRanges { v4, v6 } = ServiceRanges::default();
    let ranges = node::network::POD_RANGES.map(str::to_owned);
    for range in ranges.into_iter().chain([v4, v6]) {
        let prefix = range.split('/').next().unwrap();
        let routed = |line: &String| line.starts_with("+ route") && line.contains(prefix);
        assert!(!difference.iter().any(routed), "{difference:#?}");
    }
    for kind in ["+ sysctl", "+ nftables", "+ mount", "+ loop"] {
        assert!(
            !difference
                .iter()
                .any(|line| line.starts_with(kind) && !line.contains(&link)),
            "{difference:#?}"
        );
    }
}

/// One program that ended, and is really gone, comes back alone; pods do not notice.
fn a_program_that_ended_is_started_again(cluster: &Cluster, up: &cluster::Running) {
    for program in ["kubelet", "containerd"] {
        cluster.stop(program);
        cluster.inside_until_not(&format!("busybox pidof {program}"), Duration::from_secs(10));
    }
    let again = cluster.up();
    assert_eq!(again.init, up.init);
    assert_eq!(again.different(up), ["containerd", "kubelet"]);
    let restarts = "get pods -o jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    assert_eq!(cluster.kubectl(restarts), "0 0");
    cluster.kubectl_until("exec client -- true", Duration::from_secs(30));
}

/// `hack/up` may be killed before it has recorded what it started, and everything may have ended without it.
fn a_killed_start_is_undone(cluster: &Cluster) {
    let (state, up) = (cluster.state(), cluster.up());
    std::fs::remove_dir_all(state.run()).unwrap();
    state.create().unwrap();
    assert_eq!(
        Namespaces::find(state.root()).unwrap().unwrap().pid(),
        up.init
    );
    Namespaces::find(state.root())
        .unwrap()
        .unwrap()
        .kill(&state.log("node"))
        .unwrap();
    assert_eq!(node::status(state).unwrap(), None);
    let again = cluster.up();
    assert_eq!(node::status(state).unwrap(), Some(again.init));
    assert_ne!(again.init, up.init);
    cluster.kubectl_until("get serviceaccount default", Duration::from_secs(60));
    cluster.apply(PODS);
    cluster.kubectl("wait --for=condition=Ready pod/server --timeout=60s");
    assert!(images::BUSYBOX.starts_with(images::REGISTRY));
}
