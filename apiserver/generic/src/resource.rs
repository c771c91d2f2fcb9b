//! What a served resource is: one row of data, and a strategy that decides about its objects.
//!
//! Discovery, OpenAPI, RBAC manifests and the authorization tests follow from the row.
//! The strategy mirrors `k8s.io/apiserver/pkg/registry/rest/create.go` and its siblings.

use serde_json::Value;

use crate::{Cause, Object};

/// Namespaced or cluster-wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects live in a namespace.
    Namespaced,
    /// Objects belong to the cluster.
    Cluster,
}

/// A verb of the API, as RBAC spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// All verbs of an ordinary stored resource.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// As RBAC and discovery spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

/// A subresource: `workspaces/console`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The path segment.
    pub name: &'static str,
    /// What discovery lists; also what the endpoints accept.
    pub verbs: &'static [Verb],
    /// Kind that it answers with.
    pub kind: &'static str,
    /// What follows the name: nothing, one segment (`portforward/{port}`), or a path (`proxy/{path}`).
    pub rest: Rest,
    /// Which of its requests last, so that limits of time and length do not apply.
    pub streaming: Streaming,
}

/// Which requests of a subresource last as long as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// None: each is answered like any other.
    Never,
    /// Those that upgrade.
    Upgrades,
    /// All: what is asked and answered is somebody else's, as with `pods/proxy`.
    Always,
}

/// What may follow a subresource's name in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    None,
    /// Exactly one segment.
    Segment,
    /// Any path.
    Path,
}

/// The options that an action of a resource takes in its body: a kind that is never stored.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionsKind {
    /// `WorkspaceStartOptions`; subresources that are posted to name it as their kind.
    pub kind: &'static str,
    /// Structural schema.
    pub schema: Value,
}

/// One row of the resource table: everything about a resource that is data.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group.
    pub group: &'static str,
    /// Served version.
    pub version: &'static str,
    /// Kind, `Workspace`.
    pub kind: &'static str,
    /// Plural, `workspaces`.
    pub plural: &'static str,
    /// Singular, `workspace`.
    pub singular: &'static str,
    /// Short names, `ws`.
    pub short_names: &'static [&'static str],
    /// Categories, `all`.
    pub categories: &'static [&'static str],
    /// Scope.
    pub scope: Scope,
    /// Verbs of the resource itself.
    pub verbs: &'static [Verb],
    /// Its subresources, `status` included.
    pub subresources: Vec<Subresource>,
    /// The kinds of options that its actions take.
    pub options: Vec<OptionsKind>,
    /// OpenAPI v3 schema of the object (structural: no `$ref`), used for OpenAPI, pruning and
    /// unknown-field detection.
    pub schema: Value,
    /// Columns of the Table form, beside `Name`.
    pub columns: Vec<Column>,
}

impl Resource {
    /// `kubeworkspaces.io/v1alpha1`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The options of that kind.
    pub fn options(&self, kind: &str) -> Option<&OptionsKind> {
        self.options.iter().find(|o| o.kind == kind)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// A column of the Table form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Header, `Status`.
    pub name: &'static str,
    /// `string`, `integer`, `date`.
    pub kind: &'static str,
    /// Shown in `explain`-like help.
    pub description: &'static str,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
}

/// Decides about the objects of a resource. Pure: no I/O, time and ids come as arguments.
pub trait Strategy: Send + Sync + 'static {
    /// The row.
    fn resource(&self) -> &Resource;

    /// Fills in defaults, on create and on update, after decoding and before validation.
    fn default(&self, object: &mut Object);

    /// Drops what a creator may not set (status). `metadata` is handled by the registry.
    fn prepare_for_create(&self, object: &mut Object);

    /// Carries over what an updater may not change (status on the main resource, spec on `/status`).
    fn prepare_for_update(&self, new: &mut Object, old: &Object, subresource: Option<&str>);

    /// Problems of a new object.
    fn validate(&self, object: &Object) -> Vec<Cause>;

    /// Problems of a change.
    fn validate_update(&self, new: &Object, old: &Object, subresource: Option<&str>) -> Vec<Cause>;

    /// Fields that a field selector may name, beside `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> &[&'static str] {
        &[]
    }

    /// Cells of the Table row, one for each of `resource().columns`; `now` is Unix seconds.
    fn cells(&self, object: &Object, now: i64) -> Vec<Value>;
}
