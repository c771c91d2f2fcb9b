//! The control plane for tests keeps what it promises.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows only functions with #[test] as tests, not their helpers"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::{Api, Client, ResourceExt as _};
use localcluster::harness::{ControlPlane, external_name_service};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(90);

fn config_map(name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    let owner_references = owner.map(|o| {
        vec![OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: o.name_any(),
            uid: o.uid().unwrap(),
            ..OwnerReference::default()
        }]
    });
    let metadata = ObjectMeta {
        name: Some(name.into()),
        owner_references,
        ..ObjectMeta::default()
    };
    ConfigMap {
        metadata,
        data: Some(BTreeMap::from([("a".into(), "b".into())])),
        ..ConfigMap::default()
    }
}

/// A namespace with a ConfigMap and another that it owns.
async fn owner_and_owned(client: &Client) -> (Api<ConfigMap>, String) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some("team".into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let owner = maps
        .create(&PostParams::default(), &config_map("owner", None))
        .await
        .unwrap();
    let owned = maps
        .create(&PostParams::default(), &config_map("owned", Some(&owner)))
        .await
        .unwrap();
    (maps, owned.uid().unwrap())
}

#[tokio::test]
async fn two_at_once_do_not_collide_collect_garbage_and_leave_nothing() {
    let (one, two) = tokio::join!(ControlPlane::start(), ControlPlane::start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let clients = [one.client().unwrap(), two.client().unwrap()];
    let [(first, owned), (second, _)] = [
        owner_and_owned(&clients[0]).await,
        owner_and_owned(&clients[1]).await,
    ];

    first.delete("owner", &Default::default()).await.unwrap();
    timeout(
        LIMIT,
        await_condition(first.clone(), "owned", is_deleted(&owned)),
    )
    .await
    .unwrap()
    .unwrap();
    assert!(
        second.get_opt("owned").await.unwrap().is_some(),
        "the other control plane is another one"
    );

    let namespaces: Api<Namespace> = Api::all(clients[0].clone());
    let uid = namespaces.get("team").await.unwrap().uid().unwrap();
    namespaces
        .delete("team", &Default::default())
        .await
        .unwrap();
    timeout(LIMIT, await_condition(namespaces, "team", is_deleted(&uid)))
        .await
        .unwrap()
        .unwrap();

    let dirs = [one.dir().to_owned(), two.dir().to_owned()];
    assert_eq!(
        processes_with(&dirs[0]).len(),
        3,
        "etcd, kube-apiserver, kube-controller-manager"
    );
    drop((one, two));
    for dir in dirs {
        assert_eq!(processes_with(&dir), Vec::<String>::new());
        assert!(!dir.exists(), "{}", dir.display());
    }
}

#[tokio::test]
async fn users_are_who_their_certificates_say_and_requests_are_audited() {
    let plane = ControlPlane::start().await.unwrap();
    let alice = plane.client_as("alice", &["red", "blue", "green"]).unwrap();
    let review: Api<SelfSubjectReview> = Api::all(alice.clone());
    let review = review
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("alice"));
    assert_eq!(
        user.groups.unwrap(),
        ["red", "blue", "green", "system:authenticated"]
    );

    let refused = Api::<Namespace>::all(alice)
        .list(&Default::default())
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(r#"User "alice" cannot list resource "namespaces""#),
        "{refused}"
    );
    let log = std::fs::read_to_string(plane.audit_log()).unwrap();
    assert!(
        log.lines()
            .any(|l| l.contains(r#""username":"alice""#) && l.contains(r#""code":403"#))
    );

    let kubectl = plane
        .kubectl_program()
        .with_kubeconfig(&plane.kubeconfig_as("bob", &["system:masters"]).unwrap());
    assert!(
        kubectl
            .run(["get", "namespaces", "-o", "name"])
            .await
            .unwrap()
            .contains("namespace/kube-system")
    );
}

#[tokio::test]
async fn a_restarted_apiserver_has_kept_everything() {
    let mut plane = ControlPlane::start().await.unwrap();
    external_name_service(
        &plane.client().unwrap(),
        "kubeworkspaces-system",
        "workspaces-apiserver",
    )
    .await
    .unwrap();
    plane.restart_apiserver().await.unwrap();
    let services = plane
        .kubectl(["get", "services", "-A", "-o", "name"])
        .await
        .unwrap();
    assert!(
        services.contains("service/workspaces-apiserver"),
        "{services}"
    );
}

/// Tells the test below that it is the process which is to be killed.
const VICTIM: &str = "LOCALCLUSTER_TEST_VICTIM";

#[tokio::test]
async fn a_killed_process_leaves_no_control_plane() {
    if let Ok(note) = std::env::var(VICTIM) {
        let plane = ControlPlane::start().await.unwrap();
        std::fs::write(note, plane.dir().to_str().unwrap()).unwrap();
        std::future::pending::<()>().await;
    }
    let note = tempfile::NamedTempFile::new().unwrap();
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_no_control_plane"])
        .env(VICTIM, note.path())
        .spawn()
        .unwrap();
    let dir = eventually("the victim's directory", || {
        assert!(
            victim.try_wait().unwrap().is_none(),
            "the victim ended by itself"
        );
        std::fs::read_to_string(note.path())
            .ok()
            .filter(|dir| !dir.is_empty())
    })
    .await;
    let dir = std::path::PathBuf::from(dir);
    assert_eq!(processes_with(&dir).len(), 3);
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("the end of all processes", || {
        processes_with(&dir).is_empty().then_some(())
    })
    .await;
    eventually("the end of the directory", || (!dir.exists()).then_some(())).await;
}

/// Waits until `condition` gives something.
async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + LIMIT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(tokio::time::Instant::now() < end, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The command lines of processes that mention `dir`, without the shell that watches over them.
fn processes_with(dir: &std::path::Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|e| std::fs::read_to_string(e.path().join("cmdline")).ok());
    lines
        .filter(|line| line.contains(dir) && line.contains("\0--"))
        .collect()
}
