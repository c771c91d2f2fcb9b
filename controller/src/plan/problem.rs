//! What a Workspace asks for and cannot have: said in conditions, never dropped in silence.

/// How far a problem reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The workload is made without it.
    Ignored,
    /// The workload is not started: without it data could be lost, or the cluster would refuse it.
    Refused,
    /// The workload is not made before something else is there.
    Waiting,
}

/// Machine-readable cause; becomes the reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// KubeVirt's kinds are not served.
    KubeVirtNotInstalled,
    /// A field that this type of workspace does not support.
    NotSupported,
    /// A value that cannot work.
    InvalidValue,
}

impl Cause {
    /// The reason in a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KubeVirtNotInstalled => "KubeVirtNotInstalled",
            Self::NotSupported => "NotSupported",
            Self::InvalidValue => "InvalidValue",
        }
    }
}

/// One thing that is wrong, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How far it reaches.
    pub severity: Severity,
    /// Its kind.
    pub cause: Cause,
    /// A sentence without a full stop that begins with the field's path.
    pub message: String,
}

impl Problem {
    pub(crate) fn ignored(field: &str, why: &str) -> Self {
        Self::new(Severity::Ignored, Cause::NotSupported, field, why)
    }

    pub(crate) fn refused(field: &str, why: &str) -> Self {
        Self::new(Severity::Refused, Cause::NotSupported, field, why)
    }

    pub(crate) fn invalid(field: &str, why: &str) -> Self {
        Self::new(Severity::Refused, Cause::InvalidValue, field, why)
    }

    pub(crate) fn kubevirt_missing() -> Self {
        Self {
            severity: Severity::Waiting,
            cause: Cause::KubeVirtNotInstalled,
            message:
                "KubeVirt is not installed in this cluster; the machine is made as soon as it is"
                    .to_owned(),
        }
    }

    fn new(severity: Severity, cause: Cause, field: &str, why: &str) -> Self {
        Self {
            severity,
            cause,
            message: format!("{field}: {why}"),
        }
    }
}
