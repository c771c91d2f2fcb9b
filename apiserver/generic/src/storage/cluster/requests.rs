//! The HTTP requests to the backend. Pure.

use http::{HeaderValue, Method, Request, header};
use serde_json::{Value, json};

use super::kind::StoredKind;
use crate::{
    Scope,
    registry::subdomain_fault,
    storage::{At, Key, ListQuery, Revision, StorageError, WriteContext},
};

/// How long one watch lasts before it is begun anew, in seconds.
const WATCH: u32 = 570;
/// In managedFields of the envelopes.
const MANAGER: &str = "fieldManager=aggregated-storage";

/// Builds requests for one stored kind.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    kind: StoredKind,
}

impl Requests {
    pub(super) fn new(kind: StoredKind) -> Self {
        Self { kind }
    }

    pub(super) fn kind(&self) -> &StoredKind {
        &self.kind
    }

    fn collection(&self, namespace: Option<&str>) -> Result<String, StorageError> {
        let StoredKind {
            group,
            version,
            plural,
            ..
        } = &self.kind;
        Ok(match (namespace, self.kind.scope) {
            (Some(namespace), Scope::Namespaced) => {
                let namespace = segment(namespace)?;
                format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
            }
            _ => format!("/apis/{group}/{version}/{plural}"),
        })
    }

    fn object(&self, key: &Key) -> Result<String, StorageError> {
        let collection = self.collection(key.namespace.as_deref())?;
        Ok(format!("{collection}/{}", segment(&key.name)?))
    }

    pub(super) fn get(&self, key: &Key) -> Result<Request<Vec<u8>>, StorageError> {
        build(Method::GET, &self.object(key)?, None, None)
    }

    pub(super) fn list(
        &self,
        query: &ListQuery,
        chunk: usize,
        next: Option<&str>,
    ) -> Result<Request<Vec<u8>>, StorageError> {
        let mut uri = self.collection(query.namespace.as_deref())?;
        uri += &format!("?limit={}", query.limit.unwrap_or(chunk).clamp(1, chunk));
        if let Some(token) = next {
            let token =
                percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
            uri += &format!("&continue={token}");
        } else if let At::Exact(revision) = query.at {
            uri += &format!("&resourceVersion={revision}&resourceVersionMatch=Exact");
        }
        build(Method::GET, &uri, None, None)
    }

    pub(super) fn watch(&self, from: Revision) -> Result<Request<Vec<u8>>, StorageError> {
        let collection = self.collection(None)?;
        let uri = format!(
            "{collection}?watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={WATCH}"
        );
        build(Method::GET, &uri, None, None)
    }

    pub(super) fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        document: &Value,
    ) -> Result<Request<Vec<u8>>, StorageError> {
        // A name that cannot be an envelope's is refused here as it would be in a path.
        segment(&key.name)?;
        let uri = format!("{}?{MANAGER}", self.collection(key.namespace.as_deref())?);
        build(Method::POST, &uri, Some(context), Some((JSON, document)))
    }

    /// A creation that is only tried, and refused if anything of it would be dropped.
    pub(super) fn try_create(
        &self,
        key: &Key,
        document: &Value,
    ) -> Result<Request<Vec<u8>>, StorageError> {
        let collection = self.collection(key.namespace.as_deref())?;
        let uri = format!("{collection}?{MANAGER}&dryRun=All&fieldValidation=Strict");
        build(Method::POST, &uri, None, Some((JSON, document)))
    }

    pub(super) fn replace(
        &self,
        context: &WriteContext,
        key: &Key,
        document: &Value,
    ) -> Result<Request<Vec<u8>>, StorageError> {
        let uri = format!("{}?{MANAGER}", self.object(key)?);
        build(Method::PUT, &uri, Some(context), Some((JSON, document)))
    }

    pub(super) fn merge(&self, key: &Key, patch: &Value) -> Result<Request<Vec<u8>>, StorageError> {
        let uri = format!("{}?{MANAGER}", self.object(key)?);
        build(Method::PATCH, &uri, None, Some((MERGE, patch)))
    }

    pub(super) fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<Request<Vec<u8>>, StorageError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"resourceVersion": expected.to_string()},
        });
        let uri = self.object(key)?;
        build(Method::DELETE, &uri, Some(context), Some((JSON, &options)))
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const MERGE: HeaderValue = HeaderValue::from_static("application/merge-patch+json");

/// Names come from URLs: what is no DNS subdomain cannot exist, and must not shape a path.
fn segment(name: &str) -> Result<&str, StorageError> {
    match subdomain_fault(name) {
        None => Ok(name),
        Some(_) => Err(StorageError::NotFound),
    }
}

fn build(
    method: Method,
    uri: &str,
    context: Option<&WriteContext>,
    body: Option<(HeaderValue, &Value)>,
) -> Result<Request<Vec<u8>>, StorageError> {
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::ACCEPT, JSON);
    if let Some(id) = context.and_then(|c| c.audit_id.as_deref())
        && let Ok(id) = HeaderValue::from_str(id)
    {
        request = request.header("Audit-ID", id);
    }
    let mut bytes = Vec::new();
    if let Some((kind, document)) = body {
        request = request.header(header::CONTENT_TYPE, kind);
        bytes = document.to_string().into_bytes();
    }
    request
        .body(bytes)
        .map_err(|error| StorageError::Failed(format!("cannot ask for {uri}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(scope: Scope) -> Requests {
        Requests::new(StoredKind {
            group: "storage.example.com".into(),
            version: "v1".into(),
            plural: "storedwidgets".into(),
            kind: "StoredWidget".into(),
            scope,
        })
    }

    fn query(at: At) -> ListQuery {
        ListQuery {
            namespace: Some("ns".into()),
            at,
            limit: None,
            after: None,
        }
    }

    #[test]
    fn uris() {
        let (ns, cluster) = (requests(Scope::Namespaced), requests(Scope::Cluster));
        let base = "/apis/storage.example.com/v1";
        let key = Key::namespaced("ns", "a.b");
        for (request, uri) in [
            (
                ns.get(&key),
                format!("{base}/namespaces/ns/storedwidgets/a.b"),
            ),
            (
                cluster.get(&Key::cluster("a")),
                format!("{base}/storedwidgets/a"),
            ),
            (
                ns.try_create(&key, &json!({})),
                format!(
                    "{base}/namespaces/ns/storedwidgets?{MANAGER}&dryRun=All&fieldValidation=Strict"
                ),
            ),
            (
                ns.list(&query(At::Latest), 500, None),
                format!("{base}/namespaces/ns/storedwidgets?limit=500"),
            ),
            (
                ns.list(&query(At::Exact(Revision(7))), 500, None),
                format!(
                    "{base}/namespaces/ns/storedwidgets?limit=500&resourceVersion=7&resourceVersionMatch=Exact"
                ),
            ),
            (
                ns.list(&query(At::Exact(Revision(7))), 500, Some("a=/")),
                format!("{base}/namespaces/ns/storedwidgets?limit=500&continue=a%3D%2F"),
            ),
        ] {
            assert_eq!(request.unwrap().uri().to_string(), uri);
        }
    }

    #[test]
    fn names_cannot_shape_a_path() {
        let ns = requests(Scope::Namespaced);
        for name in ["..", "a/b", "a?x", "a%2fb", ""] {
            assert_eq!(
                ns.get(&Key::namespaced("ns", name)).err(),
                Some(StorageError::NotFound),
                "{name}"
            );
            assert_eq!(
                ns.get(&Key::namespaced(name, "a")).err(),
                Some(StorageError::NotFound),
                "{name}"
            );
        }
    }

    #[test]
    fn writes_carry_the_audit_id() {
        let context = WriteContext {
            audit_id: Some("id-1".into()),
        };
        let request = requests(Scope::Namespaced)
            .delete(&context, &Key::namespaced("ns", "a"), Revision(3))
            .unwrap();
        assert_eq!(request.headers()["Audit-ID"], "id-1");
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["preconditions"]["resourceVersion"], "3");
    }
}
