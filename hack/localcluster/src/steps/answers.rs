//! The cluster that exists answers, and its user may install the server: asked before anything is compiled.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::server::NAMESPACE;
use super::{Context, Found, Step};

/// How long the cluster has to answer.
const LIMIT: Duration = Duration::from_secs(20);
/// What `deploy/base` is made of: API group, resource, and whether it is in the server's namespace.
const PARTS: [(&str, &str, bool); 12] = [
    ("", "namespaces", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
    ("", "serviceaccounts", true),
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "roles", true),
    ("rbac.authorization.k8s.io", "rolebindings", true),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        false,
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", false),
    ("", "services", true),
    ("apps", "deployments", true),
];

pub(super) struct Answers;

#[async_trait]
impl Step for Answers {
    fn name(&self) -> &'static str {
        "asking the cluster"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let client = context.client().await?;
        let file = context.kubeconfig();
        let version = tokio::time::timeout(LIMIT, client.apiserver_version())
            .await
            .with_context(|| {
                let seconds = LIMIT.as_secs();
                format!("the cluster of {} does not answer within {seconds} s: is it up, and reached from here?", file.display())
            })?;
        let version = version.with_context(|| {
            format!(
                "the cluster of {} cannot be asked: is it up, and is this its kubeconfig?",
                file.display()
            )
        })?;
        eprintln!("The cluster is Kubernetes {}.", version.git_version);
        Ok(Found::Done)
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }
}

pub(super) struct Allowed;

#[async_trait]
impl Step for Allowed {
    fn name(&self) -> &'static str {
        "asking what this user may install"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let client = context.client().await?;
        let mut denied = Vec::new();
        for (group, resource, namespaced) in PARTS {
            for verb in ["create", "patch"] {
                let asked = attributes(verb, group, resource, namespaced);
                if !may(&client, asked).await? {
                    denied.push(format!("{verb} {}", name(group, resource)));
                }
            }
        }
        anyhow::ensure!(
            denied.is_empty(),
            "the user of {} may not {}: installing the server takes the rights of an administrator",
            context.kubeconfig().display(),
            denied.join(", ")
        );
        Ok(Found::Done)
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }
}

async fn may(client: &Client, asked: ResourceAttributes) -> anyhow::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.context("the cluster does not say what this user may do")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn attributes(verb: &str, group: &str, resource: &str, namespaced: bool) -> ResourceAttributes {
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: namespaced.then(|| NAMESPACE.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// As `kubectl auth can-i` names it.
fn name(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_named_as_kubectl_names_them() {
        assert_eq!(name("", "services"), "services");
        assert_eq!(name("apps", "deployments"), "deployments.apps");
        let asked = attributes("create", "apps", "deployments", true);
        assert_eq!(asked.namespace.as_deref(), Some(NAMESPACE));
        assert_eq!(
            attributes("create", "", "namespaces", false).namespace,
            None
        );
    }
}
