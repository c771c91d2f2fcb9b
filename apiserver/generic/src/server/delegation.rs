//! Authentication and authorization by kube-apiserver, as the flags say.

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Authorizer,
    authn::{Authentication, ConfigMapTrust, LookupError, Missing, TokenReviews, TrustStore},
    authz::{Delegating, SubjectAccessReviews},
    options::{AuthenticationConfig, AuthorizationConfig, ClientError, client},
};

/// Delegation cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DelegationError {
    /// No client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Trust cannot be looked up.
    #[error("{0} (or start with --authentication-tolerate-lookup-failure, and see /readyz)")]
    Lookup(#[from] LookupError),
    /// There are no random numbers for the key of the token cache.
    #[error("the system gives no random numbers")]
    Random,
}

/// Who is calling and what they may do.
pub struct Delegation {
    /// Who is calling.
    pub authentication: Authentication,
    /// What they may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// What is trusted; readiness asks it.
    pub trust: Arc<TrustStore>,
}

impl Delegation {
    /// Looks trust up and follows it, in `tasks`, until `stop`.
    ///
    /// # Errors
    /// When a client cannot be made, or the lookup fails and that is not tolerated.
    pub async fn start(
        authentication: AuthenticationConfig,
        authorization: AuthorizationConfig,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, DelegationError> {
        let AuthenticationConfig {
            trust,
            files,
            missing,
            tolerate_lookup_failure,
            kubeconfig,
            tokens,
        } = authentication;
        let store = Arc::new(TrustStore::new(trust));
        let asking = client(kubeconfig.as_deref()).await?;
        tasks.spawn(files.follow(store.clone(), stop.clone()));
        let nothing = Missing {
            client_ca: false,
            request_header: false,
        };
        if missing != nothing {
            let lookup = ConfigMapTrust::new(asking.clone(), store.clone(), missing);
            match lookup.look_up().await {
                Err(error) if !tolerate_lookup_failure => return Err(error.into()),
                Err(error) => tracing::warn!("{error}"),
                Ok(()) => {}
            }
            tasks.spawn(lookup.follow(stop.clone()));
        }
        let tokens = TokenReviews::new(asking, tokens).map_err(|_| DelegationError::Random)?;
        Ok(Self {
            authentication: Authentication::new(store.clone(), Some(tokens)),
            authorizer: authorizer(authorization).await?,
            trust: store,
        })
    }
}

async fn authorizer(config: AuthorizationConfig) -> Result<Arc<dyn Authorizer>, ClientError> {
    let AuthorizationConfig {
        kubeconfig,
        paths,
        reviews,
    } = config;
    let client = client(kubeconfig.as_deref()).await?;
    let reviews = SubjectAccessReviews::new(client, reviews);
    Ok(Arc::new(Delegating::new(paths, Arc::new(reviews))))
}
