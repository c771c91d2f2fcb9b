//! Kubeconfigs and kubectl's flags, as one configuration. Follows client-go's `tools/clientcmd` (`loader.go`,
//! `client_config.go`): files that KUBECONFIG names and that are not there are skipped, the first value wins, flags win
//! over all. Entry point: [`load`].

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::{AuthInfo, Cluster, Context, ExecConfig, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::error::{ClusterError, chain};
use super::proxy;
use crate::cli::ClusterFlags;

/// What kubeconfig and flags say.
#[derive(Debug)]
pub(super) struct Chosen {
    /// For the client; without the credentials that change.
    pub(super) config: Config,
    /// Runs for credentials.
    pub(super) exec: Option<ExecConfig>,
    /// Holds a token; read again for each connection.
    pub(super) token_file: Option<PathBuf>,
    /// Name of the context, for commands that are run later.
    pub(super) context: Option<String>,
}

/// Reads files and environment.
pub(super) fn load(flags: &ClusterFlags) -> Result<Chosen, ClusterError> {
    let kubeconfig = read(flags)?;
    let context = flags
        .context
        .clone()
        .or_else(|| kubeconfig.current_context.clone());
    let (cluster, mut user, namespace) = choose(kubeconfig, context.as_deref(), flags)?;
    let mut exec = user.exec.take();
    if let Some(exec) = exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(
            (&cluster)
                .try_into()
                .map_err(|e: KubeconfigError| wrong(&e))?,
        );
    }
    let token_file = user.token_file.take().map(PathBuf::from);
    let mut config = assemble(&cluster, user, namespace)?;
    let proxy_url = cluster.proxy_url.as_deref().filter(|url| !url.is_empty());
    config.proxy_url = proxy::choose(&config.cluster_url, proxy_url, |name| {
        std::env::var(name).ok()
    })
    .map_err(ClusterError::Config)?;
    Ok(Chosen {
        config,
        exec,
        token_file,
        context,
    })
}

fn wrong(error: &dyn std::error::Error) -> ClusterError {
    ClusterError::Config(chain(error))
}

/// All files, merged.
fn read(flags: &ClusterFlags) -> Result<Kubeconfig, ClusterError> {
    if let Some(file) = &flags.kubeconfig {
        return read_file(file);
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut files: Vec<_> = std::env::split_paths(&listed)
        .filter(|file| !file.as_os_str().is_empty())
        .collect();
    if files.is_empty() {
        files.extend(std::env::home_dir().map(|home| home.join(".kube/config")));
    }
    merge(&files)
}

fn merge(files: &[PathBuf]) -> Result<Kubeconfig, ClusterError> {
    let mut merged = Kubeconfig::default();
    for file in files.iter().filter(|file| file.exists()) {
        merged = merged.merge(read_file(file)?).map_err(|e| wrong(&e))?;
    }
    Ok(merged)
}

fn read_file(file: &Path) -> Result<Kubeconfig, ClusterError> {
    let mut kubeconfig = Kubeconfig::read_from(file).map_err(|e| wrong(&e))?;
    kubeconfig.current_context = kubeconfig.current_context.filter(|name| !name.is_empty());
    Ok(kubeconfig)
}

/// Cluster, user and namespace of a context, with the flags over them. What a flag names must exist.
fn choose(
    kubeconfig: Kubeconfig,
    context: Option<&str>,
    flags: &ClusterFlags,
) -> Result<(Cluster, AuthInfo, Option<String>), ClusterError> {
    let Kubeconfig {
        clusters,
        auth_infos,
        contexts,
        ..
    } = kubeconfig;
    let missing = |what: &str, name: &str| {
        ClusterError::Config(format!("{what} {name:?} is not in the kubeconfig"))
    };
    let context = match context {
        None => Context::default(),
        Some(name) => contexts
            .into_iter()
            .find(|named| named.name == name)
            .and_then(|named| named.context)
            .ok_or_else(|| missing("context", name))?,
    };
    let name = flags.cluster.clone().unwrap_or(context.cluster);
    let found = clusters.into_iter().find(|named| named.name == name);
    let mut cluster = match found {
        Some(named) => named.cluster.unwrap_or_default(),
        None if name.is_empty() => Cluster::default(),
        None => return Err(missing("cluster", &name)),
    };
    let name = flags.user.clone().or(context.user).unwrap_or_default();
    let found = auth_infos.into_iter().find(|named| named.name == name);
    let mut user = match found {
        Some(named) => named.auth_info.unwrap_or_default(),
        None if flags.user.is_some() => return Err(missing("user", &name)),
        None => AuthInfo::default(),
    };
    override_server(&mut cluster, flags)?;
    override_identity(&mut user, flags)?;
    Ok((cluster, user, context.namespace.filter(|n| !n.is_empty())))
}

/// `client_config.go`, `getCluster`: an address on the command line takes the kubeconfig's TLS server name away, and
/// an authority on the command line all that the kubeconfig says of authorities.
fn override_server(cluster: &mut Cluster, flags: &ClusterFlags) -> Result<(), ClusterError> {
    if let Some(server) = &flags.server {
        cluster.server = Some(server.clone());
    }
    if flags.server.is_some() || flags.tls_server_name.is_some() {
        cluster.tls_server_name = flags.tls_server_name.clone();
    }
    if flags.insecure_skip_tls_verify {
        if flags.certificate_authority.is_some() {
            return Err(ClusterError::Config(
                "--certificate-authority and --insecure-skip-tls-verify exclude each other".into(),
            ));
        }
        cluster.insecure_skip_tls_verify = Some(true);
        (
            cluster.certificate_authority,
            cluster.certificate_authority_data,
        ) = (None, None);
    }
    if let Some(file) = &flags.certificate_authority {
        let path = readable("--certificate-authority", file)?;
        (
            cluster.certificate_authority,
            cluster.certificate_authority_data,
        ) = (Some(path), None);
        cluster.insecure_skip_tls_verify = None;
    }
    if cluster.server.as_deref().unwrap_or_default().is_empty() {
        return Err(ClusterError::Config(
            "there is no server in it: set KUBECONFIG or --kubeconfig, or choose a context with --context".into(),
        ));
    }
    Ok(())
}

fn override_identity(user: &mut AuthInfo, flags: &ClusterFlags) -> Result<(), ClusterError> {
    if let Some(token) = &flags.token {
        user.token = Some(token.clone().into());
        (user.token_file, user.exec, user.auth_provider) = (None, None, None);
    }
    if let Some(file) = &flags.client_certificate {
        let path = readable("--client-certificate", file)?;
        (user.client_certificate, user.client_certificate_data) = (Some(path), None);
    }
    if let Some(file) = &flags.client_key {
        let path = readable("--client-key", file)?;
        (user.client_key, user.client_key_data) = (Some(path), None);
    }
    if flags.impersonate.is_some() {
        user.impersonate = flags.impersonate.clone();
    }
    if !flags.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    if flags.impersonate_uid.is_some() {
        user.impersonate_uid = flags.impersonate_uid.clone();
    }
    let alone = user.impersonate.is_none()
        && (user.impersonate_groups.is_some() || user.impersonate_uid.is_some());
    if alone {
        return Err(ClusterError::Config(
            "--as-group and --as-uid need --as: kube-apiserver impersonates no group without a user".into(),
        ));
    }
    Ok(())
}

fn readable(flag: &str, file: &Path) -> Result<String, ClusterError> {
    let error =
        |why: &dyn std::fmt::Display| ClusterError::Config(format!("{flag} {file:?}: {why}"));
    std::fs::metadata(file).map_err(|e| error(&e))?;
    let text = file.to_str().ok_or_else(|| error(&"is not UTF-8"))?;
    Ok(text.to_owned())
}

fn assemble(
    cluster: &Cluster,
    user: AuthInfo,
    namespace: Option<String>,
) -> Result<Config, ClusterError> {
    let server = cluster.server.as_deref().unwrap_or_default();
    let url = server
        .parse()
        .map_err(|_| ClusterError::Config(format!("the server's address {server:?} is no URL")))?;
    let mut config = Config::new(url);
    config.root_cert = authorities(cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.tls_server_name = cluster.tls_server_name.clone().filter(|n| !n.is_empty());
    config.auth_info = user;
    config.default_namespace = namespace.unwrap_or_else(|| "default".to_owned());
    Ok(config)
}

/// The authorities to trust; `None` are the machine's own.
fn authorities(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, ClusterError> {
    let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let error = |why: &dyn std::fmt::Display| {
        ClusterError::Config(format!("the certificate authority cannot be read: {why}"))
    };
    let data = given(&cluster.certificate_authority_data);
    let pem = match (data, given(&cluster.certificate_authority)) {
        (Some(data), _) => STANDARD.decode(data).map_err(|e| error(&e))?,
        (None, Some(file)) => std::fs::read(&file).map_err(|e| error(&format!("{file}: {e}")))?,
        (None, None) => return Ok(None),
    };
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .map(|found| found.map(|certificate| certificate.to_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| error(&e))?;
    if certificates.is_empty() {
        return Err(error(&"there is no certificate in it"));
    }
    Ok(Some(certificates))
}

/// Names of the contexts, for completion.
pub(super) fn contexts(flags: &ClusterFlags) -> Result<Vec<String>, ClusterError> {
    let contexts = read(flags)?.contexts.into_iter();
    Ok(contexts.map(|named| named.name).collect())
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
