//! kube-apiserver's audit policy.

/// Every request at Metadata level, once it is answered: tests compare users and audit ids with ours. A long-running
/// request (watch, upgrade) is also logged when its answer begins, since its end may be hours away.
pub const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";
