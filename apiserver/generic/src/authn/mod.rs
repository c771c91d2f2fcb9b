//! Who is calling: request header, client certificate, bearer token, anonymous, in this order.

use std::collections::BTreeMap;

/// An authenticated caller.
///
/// Mirrors `k8s.io/apiserver/pkg/authentication/user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// Name, as `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// UID, often empty.
    pub uid: String,
    /// Groups, in the order in which they arrived.
    pub groups: Vec<String>,
    /// Extra attributes; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}
