//! Sessions over a real control plane: claims of two replicas, with the rights and under the policies
//! that the server is deployed with, and what people see of them with kubectl.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use apiservice::v1alpha1::SessionMode;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use kubeworkspaces_tests::{
    deployment::{Deployment, NAMESPACE},
    fixtures::workspace,
    kubectls::Kubectls,
    replicas::{PATIENCE, Replica, wish},
};
use localcluster::harness::{ControlPlane, Kubectl};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::{Instant, sleep, timeout},
};
use workspaces_apiserver::{
    sessions::{Held, Meter, Reach, Timing, record::Wish},
    streams::close::CloseReason,
};

const NO_WORKSPACE: &str = "00000000-0000-0000-0000-000000000001";

fn console(user: &str) -> Wish {
    wish("t1", NO_WORKSPACE, user, SessionMode::Console)
}

async fn prepare(plane: &ControlPlane) -> Result<()> {
    for namespace in [NAMESPACE, "t1"] {
        plane.kubectl(["create", "namespace", namespace]).await?;
    }
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base");
    for file in ["generated/crds.yaml", "policies.yaml", "rbac.yaml"] {
        let path = format!("{base}/{file}");
        plane.kubectl(["apply", "-f", &path]).await?;
    }
    plane
        .kubectl([
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ])
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_over_two_replicas_of_a_real_control_plane() -> Result<()> {
    let plane = ControlPlane::start().await?;
    prepare(&plane).await?;
    let one = Replica::start(&plane, "pod-1", "a").await?;
    let two = Replica::start(&plane, "pod-2", "a").await?;

    let held = one.sessions.claim(&console("jane")).await?;
    let refused = two.sessions.claim(&console("joe")).await.err();
    let refused = refused.context("two holders")?;
    ensure!(refused.message.contains("jane"), "{}", refused.message);
    held.release().await;

    let mut held = two.sessions.claim(&console("joe")).await?;
    let sessions = one.sessions.clone();
    let taking =
        tokio::spawn(async move { sessions.take_over(&console("jim"), Reach::Anybodys).await });
    let told = timeout(PATIENCE, held.told()).await?;
    ensure!(told == CloseReason::TakenOver, "{told:?}");
    held.release().await;
    let taken = timeout(PATIENCE, taking).await???;

    // A container that is killed and started in place: nobody has released anything.
    std::mem::forget(taken);
    one.stop();
    let restarted = Replica::start(&plane, "pod-1", "b").await?;
    let began = Instant::now();
    let held = restarted.claim_soon(|| console("joe")).await?;
    ensure!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    held.release().await;

    restarted.end().await?;
    two.end().await?;
    one.end().await?;
    let leases: Api<Lease> = Api::namespaced(plane.client()?, NAMESPACE);
    let left = leases.list(&ListParams::default()).await?.items;
    ensure!(left.is_empty(), "Leases stay behind: {left:?}");
    Ok(())
}

struct Fixed;

impl Meter for Fixed {
    fn received(&self) -> u64 {
        10
    }
    fn sent(&self) -> u64 {
        2048
    }
    fn idle(&self) -> Duration {
        Duration::from_secs(7)
    }
}

/// A server, a workspace, and a replica of the test's own that carries streams to it.
struct Place {
    deployment: Deployment,
    replica: Replica,
    uid: String,
}

impl Place {
    async fn new() -> Result<Self> {
        let deployment = Deployment::start().await?;
        deployment.apply(&workspace("demo", "vm")).await?;
        let uid = ["get", "ws", "demo", "-o", "jsonpath={.metadata.uid}"];
        let uid = deployment.kubectl(&uid).await?;
        let timing = Timing {
            shared_after: Duration::from_millis(100),
            ..Timing::default()
        };
        let replica = Replica::start_with(deployment.plane(), "pod-9", "a", timing).await?;
        Ok(Self {
            deployment,
            replica,
            uid,
        })
    }

    fn wish(&self, user: &str, mode: SessionMode) -> Wish {
        wish("default", &self.uid, user, mode)
    }

    async fn hold(&self, user: &str) -> Result<Held> {
        let wish = || self.wish(user, SessionMode::Console);
        self.replica.claim_soon(wish).await
    }

    /// kubectl of a user with one of the shipped roles in the namespace.
    async fn person(&self, kubectl: &Kubectl, role: &str) -> Result<Kubectl> {
        let (plane, user) = (self.deployment.plane(), format!("{role}-user"));
        let binding = [
            "create",
            "rolebinding",
            &user,
            &format!("--clusterrole={role}"),
            &format!("--user={user}"),
        ];
        // The next kubectl finds it there.
        let _ = self.deployment.kubectl(&binding).await;
        let person = kubectl.with_kubeconfig(&plane.kubeconfig_as(&user, &[])?);
        until(|| async { person.run(["get", "ws"]).await.is_ok().then_some(()) }).await?;
        Ok(person)
    }
}

async fn until<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        ensure!(Instant::now() < end, "it did not come about in a minute");
        sleep(Duration::from_millis(100)).await;
    }
}

fn header(table: &str) -> Vec<&str> {
    let first = table.lines().next().unwrap_or_default();
    first.split_whitespace().collect()
}

async fn refusal(kubectl: &Kubectl, args: &[&str]) -> Result<String> {
    match kubectl.run(args).await {
        Ok(output) => bail!("{args:?} was not refused: {output}"),
        Err(error) => Ok(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x_07_view_sees_no_sessions_edit_sees_them_and_admin_ends_them() -> Result<()> {
    let place = Place::new().await?;
    let forward = Wish {
        port: Some(8080),
        ..place.wish("jane", SessionMode::Portforward)
    };
    for (version, kubectl) in Kubectls::of(&place.deployment).await?.all() {
        println!("with kubectl {version}");
        let mut held = place.hold("jane").await?;
        let mut joined = place.replica.sessions.join(&forward, Arc::new(Fixed));
        let viewer = place.person(&kubectl, "view").await?;
        let refused = refusal(&viewer, &["get", "wss"]).await?;
        ensure!(
            refused.contains("cannot list resource \"workspacesessions\""),
            "{refused}"
        );

        let editor = place.person(&kubectl, "edit").await?;
        let table = until(|| async {
            let table = editor.run(["get", "wss"]).await.ok()?;
            table.contains("demo.portforward.").then_some(table)
        })
        .await?;
        ensure!(
            header(&table)
                == [
                    "NAME",
                    "WORKSPACE",
                    "MODE",
                    "PORT",
                    "USER",
                    "CLIENT",
                    "ACTIVE",
                    "RECEIVED",
                    "SENT",
                    "AGE"
                ],
            "{table}"
        );
        for cell in [
            "demo.console",
            "8080",
            "jane",
            "192.0.2.7",
            "2.0Ki",
            "<none>",
        ] {
            ensure!(table.contains(cell), "{cell}: {table}");
        }
        let wide = editor.run(["get", "wss", "-o", "wide"]).await?;
        ensure!(
            header(&wide).ends_with(&["STREAMS", "GROUPS", "REPLICA", "AUDIT-ID"]),
            "{wide}"
        );
        ensure!(
            wide.contains("pod-9-a") && wide.contains("audit-1"),
            "{wide}"
        );
        for verb in ["delete", "label"] {
            let args: &[&str] = match verb {
                "delete" => &["delete", "wss", "demo.console"],
                _ => &["label", "wss", "demo.console", "a=b"],
            };
            let refused = refusal(&editor, args).await?;
            ensure!(
                refused.contains("Forbidden") || refused.contains("forbidden"),
                "{refused}"
            );
        }

        let admin = place.person(&kubectl, "admin").await?;
        ensure!(
            admin
                .run(["label", "wss", "demo.console", "team=blue"])
                .await?
                .contains("labeled")
        );
        let chosen = admin
            .run(["get", "wss", "-l", "team=blue", "-o", "name"])
            .await?;
        ensure!(
            chosen.trim() == "workspacesession.kubeworkspaces.io/demo.console",
            "{chosen}"
        );
        admin
            .run(["delete", "wss", "demo.console", "--wait=false"])
            .await?;
        ensure!(timeout(PATIENCE, held.told()).await? == CloseReason::EndedByAdmin);
        let stamp = [
            "get",
            "wss",
            "demo.console",
            "-o",
            "jsonpath={.metadata.deletionTimestamp}",
        ];
        ensure!(
            !admin.run(stamp).await?.is_empty(),
            "taken until its stream has ended"
        );
        let refused = place
            .replica
            .sessions
            .claim(&place.wish("joe", SessionMode::Console))
            .await;
        let refused = refused
            .err()
            .context("the name was free before the stream had ended")?;
        ensure!(
            refused.message.contains("being ended"),
            "{}",
            refused.message
        );
        held.release().await;
        place.hold("joe").await?.release().await;

        admin
            .run(["delete", "wss", "--all", "--wait=false"])
            .await?;
        ensure!(timeout(PATIENCE, joined.told()).await? == CloseReason::EndedByAdmin);
        joined.release().await;
        ensure!(admin.run(["get", "wss", "-o", "name"]).await?.is_empty());
        for role in ["view", "edit", "admin"] {
            let user = format!("{role}-user");
            place
                .deployment
                .kubectl(&["delete", "rolebinding", &user])
                .await?;
        }
    }
    place.replica.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_makes_or_changes_a_session_but_the_server() -> Result<()> {
    let place = Place::new().await?;
    let held = place.hold("jane").await?;
    let deployment = &place.deployment;
    let kubectl = deployment.plane().kubectl_program();
    let yaml = deployment
        .kubectl(&["get", "wss", "demo.console", "-o", "yaml"])
        .await?;
    let file = deployment.plane().dir().join("session.yaml");
    std::fs::write(&file, yaml.replace("user: jane", "user: mallory"))?;
    let file = file.to_string_lossy().into_owned();
    for (args, expected) in [
        (
            vec!["replace", "-f", &file],
            "update is not supported on resources of kind \"workspacesessions.kubeworkspaces.io\"",
        ),
        (
            vec!["create", "-f", &file],
            "create is not supported on resources of kind \"workspacesessions.kubeworkspaces.io\"",
        ),
        (
            vec![
                "patch",
                "wss",
                "demo.console",
                "--type=merge",
                "-p",
                r#"{"spec":{"user":"mallory"}}"#,
            ],
            "spec: Forbidden: the server writes it; of a session only labels and annotations can be changed",
        ),
        (
            vec![
                "patch",
                "wss",
                "demo.console",
                "--type=merge",
                "-p",
                r#"{"status":{"inUse":false}}"#,
            ],
            "status: Forbidden",
        ),
        (
            vec![
                "patch",
                "wss",
                "demo.console",
                "--type=json",
                "-p",
                r#"[{"op":"remove","path":"/spec"}]"#,
            ],
            "spec: Forbidden",
        ),
    ] {
        let refused = refusal(kubectl, &args).await?;
        ensure!(refused.contains(expected), "{args:?}: {refused}");
    }
    // Taking the finalizer away is how a name would be freed under a stream that lives.
    let patch = r#"{"metadata":{"finalizers":null,"ownerReferences":null}}"#;
    deployment
        .kubectl(&["patch", "wss", "demo.console", "--type=merge", "-p", patch])
        .await?;
    let kept = deployment
        .kubectl(&["get", "wss", "demo.console", "-o", "json"])
        .await?;
    let kept: serde_json::Value = serde_json::from_str(&kept)?;
    ensure!(
        kept["metadata"]["finalizers"][0] == "kubeworkspaces.io/stream",
        "{kept}"
    );
    ensure!(
        kept["metadata"]["ownerReferences"][0]["name"] == "demo",
        "{kept}"
    );
    ensure!(kept["spec"]["user"] == "jane", "{kept}");
    held.release().await;
    place.replica.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_wss_w_shows_who_comes_and_goes() -> Result<()> {
    let place = Place::new().await?;
    let kubectl = place.deployment.plane().kubectl_program();
    let mut watch = kubectl
        .command(["get", "wss", "-w", "--no-headers", "--output-watch-events"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("stdout")?).lines();
    let mut next = async || -> Result<String> {
        let line = timeout(PATIENCE, lines.next_line()).await??;
        line.context("the watch ended")
    };
    let mut held = place.hold("jane").await?;
    let line = next().await?;
    ensure!(line.starts_with("ADDED") && line.contains("jane"), "{line}");
    let sessions = place.replica.sessions.clone();
    let joe = place.wish("joe", SessionMode::Console);
    let taking = tokio::spawn(async move { sessions.take_over(&joe, Reach::Anybodys).await });
    ensure!(timeout(PATIENCE, held.told()).await? == CloseReason::TakenOver);
    held.release().await;
    timeout(PATIENCE, taking).await???.release().await;
    let mut seen = Vec::new();
    while !seen
        .last()
        .is_some_and(|line: &String| line.starts_with("DELETED"))
    {
        seen.push(next().await?);
    }
    ensure!(
        seen.iter()
            .any(|l| l.starts_with("MODIFIED") && l.contains("joe")),
        "{seen:?}"
    );
    watch.kill().await?;
    place.replica.end().await
}

/// The garbage collector deletes a deleted workspace's sessions, which ends their streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_with_their_workspace() -> Result<()> {
    let place = Place::new().await?;
    let mut held = place.hold("jane").await?;
    place
        .deployment
        .kubectl(&["delete", "ws", "demo", "--wait=false"])
        .await?;
    ensure!(timeout(PATIENCE, held.told()).await? == CloseReason::EndedByAdmin);
    held.release().await;
    until(|| async {
        let left = place
            .deployment
            .kubectl(&["get", "wss,ws", "-o", "name"])
            .await
            .ok()?;
        left.is_empty().then_some(())
    })
    .await?;
    place.replica.end().await
}
