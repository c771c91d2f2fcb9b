//! The view of a VirtualMachine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, ObjectError, malformed};

/// When a machine should run, `spec.runStrategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStrategy {
    /// Always there; recreated whenever it ends.
    Always,
    /// Never there.
    Halted,
    /// Started and stopped by requests only.
    Manual,
    /// Recreated after a failure, left alone after a clean end.
    RerunOnFailure,
    /// Started once; never again after any end.
    Once,
    /// Waits for a migration into it, which localvirt never sends: treated like `Halted`.
    WaitAsReceiver,
}

/// A request that `start`, `stop` and `restart` leave in `status.stateChangeRequests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// `Start` or `Stop`.
    pub action: String,
    /// The instance to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `paused: "true"` for a paused start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// The back-off after instances that failed before they ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartFailure {
    /// How many in a row.
    #[serde(default)]
    pub consecutive_fail_count: u32,
    /// The last one, so that it is counted once.
    #[serde(default, rename = "lastFailedVMIUID")]
    pub last_failed_vmi_uid: String,
    /// Not before this time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_timestamp: Option<String>,
}

/// `status`, the fields that localvirt keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmStatus {
    /// An instance object exists.
    #[serde(default)]
    pub created: bool,
    /// The instance is Ready.
    #[serde(default)]
    pub ready: bool,
    /// One word for people.
    #[serde(default)]
    pub printable_status: String,
    /// Own conditions and copies of the instance's.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Pending requests, oldest first.
    #[serde(default)]
    pub state_change_requests: Vec<StateChange>,
    /// Back-off, if instances fail to start.
    #[serde(default)]
    pub start_failure: Option<StartFailure>,
    /// The strategy acted on last.
    #[serde(default)]
    pub run_strategy: Option<RunStrategy>,
    /// The generation acted on last.
    #[serde(default)]
    pub observed_generation: i64,
    /// The generation seen.
    #[serde(default)]
    pub desired_generation: i64,
}

#[derive(Debug, Deserialize)]
struct Spec {
    #[serde(rename = "runStrategy")]
    run_strategy: Option<RunStrategy>,
    running: Option<bool>,
    template: Template,
}

#[derive(Debug, Deserialize)]
struct Template {
    #[serde(default)]
    metadata: Option<ObjectMeta>,
    spec: Value,
}

/// A VirtualMachine as localvirt reads it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `runStrategy`, or what `running` means; `None` if neither or both are set, which KubeVirt refuses.
    pub strategy: Option<RunStrategy>,
    /// Whether `running` is the field in use.
    pub uses_running: bool,
    /// Labels and annotations for the instance.
    pub template_meta: ObjectMeta,
    /// The instance's spec, as written.
    pub template_spec: Value,
    /// Its status.
    pub status: VmStatus,
}

impl Machine {
    /// Reads the view.
    ///
    /// # Errors
    /// When the object does not have the shape of its schema.
    pub fn read(object: &DynamicObject) -> Result<Self, ObjectError> {
        let fail = |e| malformed("VirtualMachine", object, e);
        let spec = Spec::deserialize(&object.data["spec"]).map_err(fail)?;
        let status = Option::<VmStatus>::deserialize(&object.data["status"]).map_err(fail)?;
        let strategy = match (spec.run_strategy, spec.running) {
            (Some(strategy), None) => Some(strategy),
            (None, Some(true)) => Some(RunStrategy::Always),
            (None, Some(false)) => Some(RunStrategy::Halted),
            (None, None) | (Some(_), Some(_)) => None,
        };
        Ok(Self {
            meta: object.metadata.clone(),
            strategy,
            uses_running: spec.running.is_some(),
            template_meta: spec.template.metadata.unwrap_or_default(),
            template_spec: spec.template.spec,
            status: status.unwrap_or_default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Whether it is on its way out.
    pub fn is_deleted(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Whether the oldest request is a start.
    pub fn wants_start(&self) -> bool {
        matches!(self.status.state_change_requests.first(), Some(r) if r.action == "Start")
    }

    /// Whether that start asks for paused vCPUs.
    pub fn wants_paused_start(&self) -> bool {
        self.wants_start()
            && self
                .status
                .state_change_requests
                .first()
                .and_then(|r| r.data.as_ref())
                .is_some_and(|data| data["paused"] == "true")
    }

    /// Whether the oldest request stops this very instance.
    pub fn wants_stop_of(&self, vmi_uid: &str) -> bool {
        matches!(self.status.state_change_requests.first(),
            Some(r) if r.action == "Stop" && r.uid.as_deref() == Some(vmi_uid))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::vm_resource;

    fn strategy(spec: Value) -> Option<RunStrategy> {
        let object = DynamicObject::new("vm", &vm_resource()).data(json!({ "spec": spec }));
        Machine::read(&object).unwrap().strategy
    }

    #[test]
    fn running_and_run_strategy_mean_the_same_and_exclude_each_other() {
        let template = json!({"spec": {}});
        let cases = [
            (
                json!({"running": true, "template": template}),
                Some(RunStrategy::Always),
            ),
            (
                json!({"running": false, "template": template}),
                Some(RunStrategy::Halted),
            ),
            (
                json!({"runStrategy": "Once", "template": template}),
                Some(RunStrategy::Once),
            ),
            (
                json!({"runStrategy": "Once", "running": true, "template": template}),
                None,
            ),
            (json!({"template": template}), None),
        ];
        for (spec, want) in cases {
            assert_eq!(strategy(spec.clone()), want, "{spec}");
        }
    }

    #[test]
    fn an_object_of_another_shape_is_an_error_that_names_it() {
        let object =
            DynamicObject::new("odd", &vm_resource()).data(json!({"spec": {"template": 7}}));
        let error = Machine::read(&object).unwrap_err().to_string();
        assert!(error.contains("VirtualMachine /odd"), "{error}");
    }
}
