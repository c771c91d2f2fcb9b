//! A request taken apart by its URL, by kube-apiserver's own rules
//! (`k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`).

/// What the URL and the method say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether it is about a resource.
    pub is_resource: bool,
    /// The URL's path.
    pub path: String,
    /// `get`, `list`, …; the lower-case method for non-resource requests.
    pub verb: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, else empty.
    pub namespace: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource, else empty.
    pub subresource: String,
    /// Object name, else empty.
    pub name: String,
    /// What follows the subresource in the path, decoded segment by segment.
    pub rest: Vec<String>,
}
