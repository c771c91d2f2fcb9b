//! Open streams and RBAC: what is taken away ends them within seconds, over a real kube-apiserver.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use apiserver_generic::{
    Attributes, UserInfo,
    authz::{ReviewConfig, SubjectAccessReviews, authorize},
};
use kubeworkspaces_tests::{deployment::repository, replicas::USER};
use localcluster::harness::ControlPlane;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use workspaces_apiserver::streams::{
    close::CloseReason,
    metrics::StreamMetrics,
    recheck::{self, RecheckDeps, Rechecks, Times, Watched},
};

/// What the rules promise for a change of RBAC, and room for a machine that compiles meanwhile.
const SOON: Duration = Duration::from_secs(30);

struct Place {
    plane: ControlPlane,
    authorizer: Arc<SubjectAccessReviews>,
    rechecks: Rechecks,
    _stop: tokio_util::sync::DropGuard,
}

impl Place {
    /// Permissions are asked for once in a day, and when RBAC changes.
    async fn new() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        for file in [
            "namespace.yaml",
            "service-account.yaml",
            "rbac.yaml",
            "user-roles.yaml",
        ] {
            let path = repository().join("deploy/base").join(file);
            plane
                .kubectl(["apply", "--server-side", "-f", &path.to_string_lossy()])
                .await?;
        }
        let client = plane.client_as(USER, &["system:serviceaccounts"])?;
        let authorizer = Arc::new(SubjectAccessReviews::new(
            client.clone(),
            ReviewConfig::default(),
        ));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let deps = RecheckDeps {
            authorizer: authorizer.clone(),
            replicas: Arc::new(|| 1),
            metrics: StreamMetrics::register(&mut Default::default()),
            times: Times {
                every: Duration::from_secs(24 * 3600),
                ..Times::default()
            },
        };
        let rechecks = Rechecks::start(deps, &tasks, &stop);
        recheck::watch::start(&client, &rechecks, &tasks, &stop);
        Ok(Self {
            plane,
            authorizer,
            rechecks,
            _stop: stop.drop_guard(),
        })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        Ok(self.plane.kubectl(args).await?)
    }

    /// A stream of somebody who may open it, once RBAC has heard so.
    async fn open(&self, user: &str, groups: &[&str]) -> Result<Watched> {
        let user = UserInfo {
            name: user.into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..UserInfo::default()
        };
        let permissions = ["get", "create"].map(|verb| Attributes {
            verb: verb.into(),
            group: "kubeworkspaces.io".into(),
            version: "v1alpha1".into(),
            resource: "workspaces".into(),
            subresource: "console".into(),
            namespace: "default".into(),
            name: "demo".into(),
            ..Attributes::default()
        });
        let end = Instant::now() + SOON;
        for permission in &permissions {
            while authorize(&*self.authorizer, &user, permission.clone())
                .await
                .is_err()
            {
                ensure!(Instant::now() < end, "{user:?} never was allowed");
                sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(self.rechecks.watch(&user, permissions.into()))
    }
}

async fn revoked(watched: &mut Watched) -> Result<Duration> {
    let began = Instant::now();
    let reason = timeout(SOON, watched.revoked())
        .await
        .context("the stream lives on")?;
    ensure!(reason == CloseReason::Revoked, "{reason:?}");
    Ok(began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_takes_a_permission_away_ends_its_streams_and_no_others() -> Result<()> {
    let place = Place::new().await?;
    let bind = |kind, name, subject| {
        [
            "create",
            kind,
            name,
            "--clusterrole=kubeworkspaces-edit",
            subject,
        ]
    };
    place
        .kubectl(&bind("rolebinding", "jane", "--user=jane"))
        .await?;
    place
        .kubectl(&bind("clusterrolebinding", "devs", "--group=devs"))
        .await?;
    place
        .kubectl(&bind(
            "rolebinding",
            "robot",
            "--serviceaccount=default:robot",
        ))
        .await?;
    place
        .kubectl(&bind("rolebinding", "kate", "--user=kate"))
        .await?;
    let mut jane = place.open("jane", &[]).await?;
    let mut joe = place.open("joe", &["x", "devs"]).await?;
    let mut robot = place
        .open("system:serviceaccount:default:robot", &[])
        .await?;
    let mut kate = place.open("kate", &[]).await?;

    place.kubectl(&["delete", "rolebinding", "jane"]).await?;
    println!("a RoleBinding: {:?}", revoked(&mut jane).await?);
    place
        .kubectl(&["delete", "clusterrolebinding", "devs"])
        .await?;
    println!(
        "a ClusterRoleBinding of a group: {:?}",
        revoked(&mut joe).await?
    );
    let nobody =
        r#"{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"nobody"}]}"#;
    place
        .kubectl(&[
            "patch",
            "rolebinding",
            "robot",
            "--type=merge",
            "-p",
            nobody,
        ])
        .await?;
    println!(
        "a binding that names others now: {:?}",
        revoked(&mut robot).await?
    );

    let lives = timeout(Duration::from_secs(5), kate.revoked()).await;
    ensure!(lives.is_err(), "who was touched by nothing was ended");
    let reads = r#"[{"op":"replace","path":"/rules","value":[]}]"#;
    place
        .kubectl(&[
            "patch",
            "clusterrole",
            "kubeworkspaces-edit",
            "--type=json",
            "-p",
            reads,
        ])
        .await?;
    println!("a role with fewer rules: {:?}", revoked(&mut kate).await?);
    Ok(())
}
