//! Straight to a server's own port, around kube-apiserver.

use crate::deployment::{Deployment, NAMESPACE, SERVICE};

/// A request straight to the first server's port, with a client certificate or without; gives the
/// code and the JSON body. The server's certificate is verified against its own authority.
pub async fn direct(
    deployment: &Deployment,
    identity: Option<(&std::path::Path, &std::path::Path)>,
    request: http::request::Builder,
) -> anyhow::Result<(http::StatusCode, serde_json::Value)> {
    direct_to(deployment, 0, identity, request).await
}

/// The same to another server.
///
/// # Errors
/// When no answer comes.
pub async fn direct_to(
    deployment: &Deployment,
    server: usize,
    identity: Option<(&std::path::Path, &std::path::Path)>,
    request: http::request::Builder,
) -> anyhow::Result<(http::StatusCode, serde_json::Value)> {
    let (code, text) = self::text(deployment, server, identity, request).await?;
    Ok((
        code,
        serde_json::from_str(&text).unwrap_or(serde_json::Value::Null),
    ))
}

/// The same with the body as it is.
///
/// # Errors
/// When no answer comes, or one that is not text.
pub async fn text(
    deployment: &Deployment,
    server: usize,
    identity: Option<(&std::path::Path, &std::path::Path)>,
    request: http::request::Builder,
) -> anyhow::Result<(http::StatusCode, String)> {
    use http_body_util::BodyExt as _;
    let stream = connect(deployment, server, identity).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = request
        .header("Host", "workspaces")
        .body(http_body_util::Empty::<bytes::Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let code = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    Ok((code, String::from_utf8(body.to_vec())?))
}

/// A request straight to a server's port whose certificate may be anything; gives code and text.
pub async fn unverified(
    deployment: &Deployment,
    server: usize,
    request: http::request::Builder,
) -> anyhow::Result<(u16, String)> {
    let port = deployment.server(server).port;
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config)?;
    let response = client
        .send(request.body(kube::client::Body::empty())?)
        .await?;
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await?;
    Ok((code, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

/// A TLS connection straight to a server.
pub async fn connect(
    deployment: &Deployment,
    server: usize,
    identity: Option<(&std::path::Path, &std::path::Path)>,
) -> anyhow::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let bundle = authority(deployment).await?;
    connect_to(&bundle, deployment.server(server).port, identity).await
}

/// The same to a port of this machine, for who knows the server's authority.
///
/// # Errors
/// When nobody listens there, or another than the server.
pub async fn connect_to(
    bundle: &[u8],
    port: u16,
    identity: Option<(&std::path::Path, &std::path::Path)>,
) -> anyhow::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    connect_speaking(&[], bundle, port, identity).await
}

/// The same with these protocols offered (ALPN).
///
/// # Errors
/// As [`connect_to`].
pub async fn connect_speaking(
    protocols: &[&[u8]],
    bundle: &[u8],
    port: u16,
    identity: Option<(&std::path::Path, &std::path::Path)>,
) -> anyhow::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate?)?;
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(format!("{SERVICE}.{NAMESPACE}.svc"))?;
    Ok(
        tokio_rustls::TlsConnector::from(std::sync::Arc::new(config))
            .connect(name, tcp)
            .await?,
    )
}

/// What the APIService's `caBundle` says.
///
/// # Errors
/// When there is none.
pub async fn authority(deployment: &Deployment) -> anyhow::Result<Vec<u8>> {
    use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
    let api: kube::Api<APIService> = kube::Api::all(deployment.client()?);
    let service = api.get(crate::deployment::APISERVICE).await?;
    let bundle = service.spec.and_then(|spec| spec.ca_bundle);
    Ok(bundle
        .ok_or_else(|| anyhow::anyhow!("the APIService has no caBundle"))?
        .0)
}
