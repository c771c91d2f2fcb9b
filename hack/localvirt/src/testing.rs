//! Objects for unit tests.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::api::{Instance, Machine, vm_resource, vmi_resource};

/// A machine `demo` in `ns`.
pub(crate) fn machine(spec: Value, status: Value) -> Machine {
    let mut object =
        DynamicObject::new("demo", &vm_resource()).data(json!({"spec": spec, "status": status}));
    object.metadata.namespace = Some("ns".into());
    object.metadata.uid = Some("0c0ffee0-0000-4000-8000-000000000001".into());
    object.metadata.generation = Some(1);
    Machine::read(&object).unwrap()
}

/// An instance `demo` in `ns`.
pub(crate) fn instance(spec: Value, status: Value) -> Instance {
    let mut object =
        DynamicObject::new("demo", &vmi_resource()).data(json!({"spec": spec, "status": status}));
    object.metadata.namespace = Some("ns".into());
    object.metadata.uid = Some("0c0ffee0-0000-4000-8000-000000000002".into());
    Instance::read(&object).unwrap()
}
