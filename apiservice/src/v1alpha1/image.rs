//! Image: a catalog entry and the defaults of workspaces made from it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::WorkspaceType;
use crate::schema;

/// Image is a catalog entry: what a workspace can be made from, and its defaults.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Standard object metadata.
    #[schemars(schema_with = "schema::any_object")]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The entry.
    pub spec: ImageSpec,
    /// What is known about the entry.
    #[serde(default)]
    pub status: ImageStatus,
}

/// A catalog entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Reference of the container image or containerDisk.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Port that the workspace's application listens on.
    #[schemars(range(min = 1, max = 65535))]
    pub default_port: i32,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What it is, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `Desktop`, `IDE`, `Tool`, `Game` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Address of an icon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Homepage of the application.
    #[serde(
        default,
        rename = "homepageURL",
        skip_serializing_if = "Option::is_none"
    )]
    pub homepage_url: Option<String>,
    /// Source of the application.
    #[serde(default, rename = "sourceURL", skip_serializing_if = "Option::is_none")]
    pub source_url: Option<String>,
    /// Homepage of the image.
    #[serde(
        default,
        rename = "imageHomepageURL",
        skip_serializing_if = "Option::is_none"
    )]
    pub image_homepage_url: Option<String>,
    /// Further links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Path that the application is opened at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_path: Option<String>,
    /// Arguments of the main container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_args: Vec<String>,
    /// Environment of the main container; `{{namespace}}` and `{{name}}` are replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_env: Vec<EnvVar>,
    /// Whether the main container runs privileged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// User id of the main container.
    #[serde(
        default,
        rename = "defaultUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub default_uid: Option<i64>,
    /// Init containers; `{{namespace}}`, `{{name}}` and `{{uid}}` are replaced.
    #[schemars(schema_with = "containers")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_init_containers: Vec<Map<String, Value>>,
    /// Ports beside the default one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_ports: Vec<NamedPort>,
    /// Size of `/dev/shm`.
    #[schemars(schema_with = "schema::quantity_text")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_shared_memory: Option<String>,
    /// Home directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_homedir: Option<String>,
    /// Shell that `console` starts; else bash, else sh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_shell: Option<String>,
    /// Credentials of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_credentials: Option<Credentials>,
    /// The guest's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// The guest user's password. Readable by everybody who may read Images: prefer keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_password: Option<String>,
    /// Whether the guest understands cloud-init, so that user-data is generated for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_cloud_init: Option<bool>,
    /// User-data for the guest, used as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_user_data: Option<String>,
    /// Types of workspace that it is for; empty means container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_types: Vec<WorkspaceType>,
    /// A guest profile, as `windows11-amd64-v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_profile: Option<String>,
    /// Whether the guest's root disk survives stops, as a DataVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_root_disk: Option<bool>,
    /// Size of a persistent root disk (10Gi when not set).
    #[schemars(schema_with = "schema::quantity")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_root_disk_size: Option<Value>,
    /// Memory of the guest.
    #[schemars(schema_with = "schema::quantity")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Value>,
    /// Memory of the launcher pod, at least `memoryLimit`.
    #[schemars(schema_with = "schema::quantity")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_request: Option<Value>,
    /// Display device: virtio, vga, bochs, cirrus or ramfb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub video_device: Option<String>,
    /// Sound device: ac97 or ich9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound_device: Option<String>,
    /// Desktop streaming inside the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_desktop: Option<RemoteDesktop>,
    /// How the application is reached by HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_config: Option<ProxyConfig>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Text.
    pub title: String,
    /// Address.
    pub url: String,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

/// A named port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedPort {
    /// Name.
    pub name: String,
    /// Number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// `TCP` (default) or `UDP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// Credentials of an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Credentials {
    /// User.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// Desktop streaming inside the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteDesktop {
    /// Protocol, `selkies`.
    pub protocol: String,
    /// Port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// How the application is reached by HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfig {
    /// Whether the application registers a service worker that must be replaced by an empty one.
    #[serde(
        default,
        rename = "needsNoopSW",
        skip_serializing_if = "Option::is_none"
    )]
    pub needs_noop_sw: Option<bool>,
    /// Paths that are WebSockets, for information.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub websocket_paths: Vec<String>,
    /// Whether absolute paths in pages are rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite_host_absolute_paths: Option<bool>,
    /// Headers added to requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_request_headers: BTreeMap<String, String>,
    /// Whether a `<base>` element is put into pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject_base_tag: Option<bool>,
    /// `http` (default) or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Whether the application's certificate is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_skip_verify: Option<bool>,
    /// Deprecated: use `scheme` and `tlsSkipVerify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_insecure: Option<bool>,
    /// Whether the path prefix is kept in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_path_prefix: Option<bool>,
    /// Port of the audio stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_port: Option<i32>,
    /// Port of an agent in the guest; 0 means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_port: Option<i32>,
    /// Service port that the proxy uses instead of 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// What is known about a catalog entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<super::Condition>,
}

fn containers(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let list = schema::pod_spec()["properties"]["initContainers"].clone();
    schemars::Schema::try_from(list).unwrap_or_default()
}
