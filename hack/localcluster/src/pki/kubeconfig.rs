//! Kubeconfigs with everything embedded, so that the file alone is enough anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Issued;

/// A kubeconfig for `https://{server}`, trusting `ca` (PEM), calling as `user` with `client`.
pub fn kubeconfig(server: &str, ca: &str, user: &str, client: &Issued) -> String {
    let (ca, cert, key) = (
        STANDARD.encode(ca),
        STANDARD.encode(&client.cert),
        STANDARD.encode(&client.key),
    );
    let user = serde_json::Value::from(user); // a JSON string is a YAML string, whatever is in it
    format!(
        "apiVersion: v1
kind: Config
current-context: kubeworkspaces
clusters:
- name: kubeworkspaces
  cluster:
    server: https://{server}
    certificate-authority-data: {ca}
contexts:
- name: kubeworkspaces
  context:
    cluster: kubeworkspaces
    user: {user}
users:
- name: {user}
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_back_with_any_user_name() {
        let client = Issued {
            cert: "CERT".into(),
            key: "KEY".into(),
        };
        for user in ["alice", "system:node:n1", "a: \"b\" #c"] {
            let text = kubeconfig("127.0.0.1:6443", "CA", user, &client);
            let parsed = kube::config::Kubeconfig::from_yaml(&text).unwrap();
            assert_eq!(parsed.auth_infos[0].name, user);
            assert_eq!(
                parsed.contexts[0].context.as_ref().unwrap().user.as_deref(),
                Some(user)
            );
            let cluster = parsed.clusters[0].cluster.as_ref().unwrap();
            assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        }
    }
}
