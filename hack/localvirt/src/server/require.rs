//! What must hold before something is done, in KubeVirt's order and words (`pkg/virt-api/rest/subresource.go`).

use super::reply::{Failure, Kind};
use crate::api::{Instance, Phase};

/// Before a console.
///
/// # Errors
/// Without a serial device or a running guest. A paused guest has a console.
pub fn console(vmi: &Instance) -> Result<(), Failure> {
    if !vmi.has_serial {
        return Err(Failure::BadRequest(
            "No serial consoles are present.".into(),
        ));
    }
    if vmi.phase == Phase::Failed {
        return Err(Failure::instance_conflict(
            vmi.name(),
            "VMI is in failed status",
        ));
    }
    running_or_400(vmi)
}

/// Before a display or a picture of it.
///
/// # Errors
/// Without a graphics device or a running guest.
pub fn vnc(vmi: &Instance) -> Result<(), Failure> {
    if !vmi.has_graphics {
        return Err(Failure::BadRequest(
            "No graphics devices are present.".into(),
        ));
    }
    running_or_400(vmi)
}

fn running_or_400(vmi: &Instance) -> Result<(), Failure> {
    if vmi.phase == Phase::Running {
        Ok(())
    } else {
        Err(Failure::BadRequest("VMI is not running".into()))
    }
}

/// Before a port: the address to dial. The phase is not looked at.
///
/// # Errors
/// When the guest is paused or has no interface.
pub fn port(vmi: &Instance) -> Result<&str, Failure> {
    if vmi.condition("Paused").is_some() {
        return Err(Failure::instance_conflict(vmi.name(), "VMI is paused"));
    }
    let none = || Failure::BadRequest("no network interfaces are present".into());
    vmi.first_address.as_deref().ok_or_else(none)
}

/// Before `pause`.
///
/// # Errors
/// When the guest does not run, is paused, or has a liveness probe, which would end a guest that stands still.
pub fn pause(vmi: &Instance) -> Result<(), Failure> {
    running_or_409(vmi)?;
    if vmi.spec["livenessProbe"].is_object() {
        return Err(Failure::Forbidden {
            kind: Kind::Instance,
            name: vmi.name().to_owned(),
            text: "Pausing VMIs with LivenessProbe is currently not supported".into(),
        });
    }
    match vmi.condition("Paused") {
        Some(_) => Err(Failure::instance_conflict(
            vmi.name(),
            "VMI is already paused",
        )),
        None => Ok(()),
    }
}

/// Before `unpause`.
///
/// # Errors
/// When the guest does not run, or is not paused.
pub fn unpause(vmi: &Instance) -> Result<(), Failure> {
    running_or_409(vmi)?;
    match vmi.condition("Paused") {
        Some(_) => Ok(()),
        None => Err(Failure::instance_conflict(vmi.name(), "VMI is not paused")),
    }
}

/// Before `reset`.
///
/// # Errors
/// When there is no guest.
pub fn reset(vmi: &Instance) -> Result<(), Failure> {
    if matches!(vmi.phase, Phase::Running | Phase::Scheduled) {
        return Ok(());
    }
    let phase = vmi.phase.as_str();
    Err(Failure::BadRequest(format!(
        "Failed to reset non-running VMI with phase {phase}: VMI is not running"
    )))
}

/// Before `softreboot`.
///
/// # Errors
/// When the guest does not run, is paused, or has neither an agent nor ACPI.
pub fn soft_reboot(vmi: &Instance) -> Result<(), Failure> {
    running_or_409(vmi)?;
    let conflict = |text| Err(Failure::instance_conflict(vmi.name(), text));
    if vmi
        .condition("Paused")
        .is_some_and(crate::api::Condition::is_true)
    {
        return conflict("VMI is paused");
    }
    let acpi = &vmi.spec["domain"]["features"]["acpi"];
    let acpi = acpi.is_object() && acpi["enabled"] != serde_json::json!(false);
    if vmi.condition("AgentConnected").is_none() && !acpi {
        return conflict("VMI neither have the agent connected nor the ACPI feature enabled");
    }
    Ok(())
}

/// Before the guest's agent is asked.
///
/// # Errors
/// When the guest does not run, or has no agent that is connected.
pub fn agent(vmi: &Instance) -> Result<(), Failure> {
    let conflict = |text| Failure::instance_conflict(vmi.name(), text);
    if vmi.phase != Phase::Running {
        return Err(conflict("VMI is not running"));
    }
    match vmi.condition("AgentConnected") {
        Some(_) => Ok(()),
        None => Err(conflict("VMI does not have guest agent connected")),
    }
}

fn running_or_409(vmi: &Instance) -> Result<(), Failure> {
    if vmi.phase == Phase::Running {
        Ok(())
    } else {
        Err(Failure::instance_conflict(vmi.name(), "VM is not running"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::instance;

    fn vmi(devices: Value, status: Value) -> Instance {
        let domain = json!({"devices": devices, "features": {"acpi": {}}});
        instance(json!({ "domain": domain }), status)
    }

    fn paused() -> Value {
        json!({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]})
    }

    #[test]
    fn streams_are_refused_with_kubevirts_words() {
        let running = json!({"phase": "Running"});
        type Check = fn(&Instance) -> Result<(), Failure>;
        type Case = (Check, Value, Value, Option<(u16, &'static str)>);
        let cases: [Case; 9] = [
            (console, json!({}), running.clone(), None),
            (console, json!({}), paused(), None),
            (
                console,
                json!({"autoattachSerialConsole": false}),
                running.clone(),
                Some((400, "No serial consoles are present.")),
            ),
            (
                console,
                json!({}),
                json!({"phase": "Failed"}),
                Some((409, "VMI is in failed status")),
            ),
            (
                console,
                json!({}),
                json!({"phase": "Scheduled"}),
                Some((400, "VMI is not running")),
            ),
            (vnc, json!({}), running.clone(), None),
            (
                vnc,
                json!({"autoattachGraphicsDevice": false}),
                running.clone(),
                Some((400, "No graphics devices are present.")),
            ),
            (
                vnc,
                json!({}),
                json!({"phase": "Failed"}),
                Some((400, "VMI is not running")),
            ),
            (vnc, json!({}), json!({}), Some((400, "VMI is not running"))),
        ];
        for (check, devices, status, want) in cases {
            let got = check(&vmi(devices.clone(), status.clone()));
            match (got, want) {
                (Ok(()), None) => {}
                (Err(failure), Some((code, text))) => {
                    assert_eq!(failure.code().as_u16(), code, "{devices} {status}");
                    assert!(failure.to_string().ends_with(text), "{failure}");
                }
                (got, want) => panic!("{devices} {status}: {got:?} instead of {want:?}"),
            }
        }
    }

    #[test]
    fn a_port_needs_an_interface_and_an_unpaused_guest_but_no_running_one() {
        let with_address = json!({"phase": "Pending", "interfaces": [{"ipAddress": "10.1.0.9"}]});
        assert_eq!(port(&vmi(json!({}), with_address)), Ok("10.1.0.9"));
        assert_eq!(
            port(&vmi(json!({}), json!({}))).unwrap_err().to_string(),
            "no network interfaces are present"
        );
        assert_eq!(port(&vmi(json!({}), paused())).unwrap_err().code(), 409);
    }

    #[test]
    fn pausing_and_unpausing_take_turns() {
        let running = vmi(json!({}), json!({"phase": "Running"}));
        let paused = vmi(json!({}), paused());
        let off = vmi(json!({}), json!({"phase": "Succeeded"}));
        assert!(
            pause(&running).is_ok() && unpause(&paused).is_ok() && soft_reboot(&running).is_ok()
        );
        for failure in [
            pause(&paused),
            unpause(&running),
            pause(&off),
            unpause(&off),
            soft_reboot(&paused),
        ] {
            assert_eq!(failure.unwrap_err().code(), 409);
        }
        assert_eq!(reset(&off).unwrap_err().code(), 400);
    }

    #[test]
    fn a_guest_with_a_liveness_probe_is_never_paused() {
        let spec = json!({"domain": {}, "livenessProbe": {"tcpSocket": {"port": 22}}});
        let failure = pause(&instance(spec, json!({"phase": "Running"}))).unwrap_err();
        assert_eq!(failure.code(), 403);
        assert_eq!(
            failure.to_string(),
            "virtualmachineinstance.kubevirt.io \"demo\" is forbidden: Pausing VMIs with LivenessProbe is currently not supported"
        );
    }

    #[test]
    fn an_agent_is_asked_only_where_there_is_one() {
        let text = |status: Value| agent(&vmi(json!({}), status)).map_err(|f| f.to_string());
        let agent = json!({"phase": "Running", "conditions": [{"type": "AgentConnected", "status": "True"}]});
        assert_eq!(text(agent), Ok(()));
        let absent = text(json!({"phase": "Running"})).unwrap_err();
        assert!(
            absent.ends_with("VMI does not have guest agent connected"),
            "{absent}"
        );
        let off = text(json!({"phase": "Scheduled"})).unwrap_err();
        assert!(off.ends_with("VMI is not running"), "{off}");
    }
}
