//! CPU and memory of a machine, from the main container's resources and the catalog entry.
//!
//! - Cores: the CPU limit (else the request, else one) rounded up.
//! - Guest memory: the entry's `memoryLimit`, else the memory limit, else the request, else 2Gi.
//! - The launcher pod's memory is that, or the entry's `memoryRequest` where it is more.

use apiservice::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::catalog::Settings;
use super::problem::Problem;

const DEFAULT_GIBIBYTES: u16 = 2;
/// No guest boots with less; it is what `memory: 2048` (bytes, meant as megabytes) runs into.
const LEAST_MEMORY: i128 = 16 << 20;
const FIELD: &str = "spec.template.spec.containers[0].resources";

/// What `domain` gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resources {
    pub(crate) cores: i64,
    pub(crate) guest: String,
    /// `domain.resources`.
    pub(crate) pod: Value,
}

/// Decides about CPU and memory; problems come beside a result that could be applied.
pub(crate) fn decide(container: &Value, settings: &Settings) -> (Resources, Vec<Problem>) {
    let mut asked = Asked::read(container);
    let memory = memory(&mut asked, settings);
    let cores = cores(&mut asked);
    let mut requests = Map::new();
    let mut limits = Map::new();
    put(&mut requests, "cpu", asked.requests_cpu.as_ref());
    put(&mut limits, "cpu", asked.limits_cpu.as_ref());
    put(&mut requests, "memory", Some(&memory.request));
    put(&mut limits, "memory", Some(&memory.limit));
    let resources = Resources {
        cores,
        guest: memory.guest.text().to_owned(),
        pod: json!({"requests": requests, "limits": limits}),
    };
    (resources, asked.problems)
}

/// Resources of the container that were understood, and the problems with those that were not.
struct Asked {
    requests_cpu: Option<Quantity>,
    limits_cpu: Option<Quantity>,
    requests_memory: Option<Quantity>,
    limits_memory: Option<Quantity>,
    problems: Vec<Problem>,
}

impl Asked {
    fn read(container: &Value) -> Self {
        let mut problems = Vec::new();
        let mut side = |side: &str| {
            let map = container["resources"][side].as_object();
            for name in map.into_iter().flat_map(Map::keys) {
                report_unsupported(side, name, &mut problems);
            }
            let mut one = |name: &str| {
                let value = map?.get(name)?;
                let field = format!("{FIELD}.{side}.{name}");
                let read = Quantity::read(value);
                if read.is_none() {
                    problems.push(Problem::invalid(&field, &format!("{value} is no quantity")));
                }
                read
            };
            (one("cpu"), one("memory"))
        };
        let (requests_cpu, requests_memory) = side("requests");
        let (limits_cpu, limits_memory) = side("limits");
        let mut asked = Self {
            requests_cpu,
            limits_cpu,
            requests_memory,
            limits_memory,
            problems,
        };
        asked.check_order();
        asked
    }

    /// KubeVirt refuses a request above its limit.
    fn check_order(&mut self) {
        for (name, request, limit) in [
            ("cpu", &self.requests_cpu, &self.limits_cpu),
            ("memory", &self.requests_memory, &self.limits_memory),
        ] {
            if let (Some(request), Some(limit)) = (request, limit)
                && limit.is_less(request)
            {
                let why = format!(
                    "the request {} is above the limit {}",
                    request.text(),
                    limit.text()
                );
                self.problems
                    .push(Problem::invalid(&format!("{FIELD}.requests.{name}"), &why));
            }
        }
    }
}

fn report_unsupported(side: &str, name: &str, problems: &mut Vec<Problem>) {
    let field = format!("{FIELD}.{side}[{name}]");
    match name {
        "cpu" | "memory" => {}
        // Said once, at the limits, where Kubernetes requires such resources to stand.
        _ if side == "requests" => {}
        gpu if gpu.ends_with("/gpu") => {
            problems.push(Problem::refused(
                &field,
                "GPUs are not supported for type vm",
            ));
        }
        _ => problems.push(Problem::ignored(&field, "not supported for type vm")),
    }
}

fn cores(asked: &mut Asked) -> i64 {
    let count = asked.limits_cpu.as_ref().or(asked.requests_cpu.as_ref());
    let whole = count.map_or(1, Quantity::ceil).max(1);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

struct Memory {
    guest: Quantity,
    request: Quantity,
    limit: Quantity,
}

fn memory(asked: &mut Asked, settings: &Settings) -> Memory {
    let catalog = |name: &str, value: &Option<Value>, problems: &mut Vec<Problem>| {
        let value = value.as_ref()?;
        let read = Quantity::read(value);
        if read.is_none() {
            let why = format!("{value} is no quantity; correct the catalog entry");
            problems.push(Problem::invalid(&format!("Image spec.{name}"), &why));
        }
        read
    };
    let limit = catalog("memoryLimit", &settings.memory_limit, &mut asked.problems);
    let request = catalog(
        "memoryRequest",
        &settings.memory_request,
        &mut asked.problems,
    );
    let memory = match limit {
        Some(guest) => from_catalog(guest, request, &mut asked.problems),
        None => from_container(asked),
    };
    if memory.guest.ceil() < LEAST_MEMORY {
        let why = format!(
            "{} is {} bytes of memory, with which no guest boots; write a unit, as in 2048Mi",
            memory.guest.text(),
            memory.guest.ceil()
        );
        asked
            .problems
            .push(Problem::invalid(&format!("{FIELD}.limits.memory"), &why));
    }
    memory
}

fn from_catalog(guest: Quantity, request: Option<Quantity>, problems: &mut Vec<Problem>) -> Memory {
    let pod = match request {
        Some(request) if request.is_less(&guest) => {
            let why = format!(
                "{} is less than the guest's memory {}, which is used in its place",
                request.text(),
                guest.text()
            );
            problems.push(Problem::ignored("Image spec.memoryRequest", &why));
            guest.clone()
        }
        Some(request) => request,
        None => guest.clone(),
    };
    Memory {
        guest,
        request: pod.clone(),
        limit: pod,
    }
}

fn from_container(asked: &Asked) -> Memory {
    let given = asked
        .limits_memory
        .as_ref()
        .or(asked.requests_memory.as_ref());
    let guest = given
        .cloned()
        .unwrap_or_else(|| Quantity::gibibytes(DEFAULT_GIBIBYTES));
    Memory {
        request: asked
            .requests_memory
            .clone()
            .unwrap_or_else(|| guest.clone()),
        limit: guest.clone(),
        guest,
    }
}

fn put(map: &mut Map<String, Value>, key: &str, quantity: Option<&Quantity>) {
    if let Some(quantity) = quantity {
        map.insert(key.to_owned(), json!(quantity.text()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(resources: Value, image: Value) -> (Resources, Vec<String>) {
        let settings: Settings = serde_json::from_value(image).unwrap();
        let (out, problems) = decide(&json!({"resources": resources}), &settings);
        (out, problems.into_iter().map(|p| p.message).collect())
    }

    #[test]
    fn cores_are_the_limit_rounded_up() {
        for (resources, cores) in [
            (json!({}), 1),
            (json!({"limits": {"cpu": "500m"}}), 1),
            (json!({"limits": {"cpu": "1500m"}}), 2),
            (json!({"limits": {"cpu": 0.5}}), 1),
            (json!({"requests": {"cpu": "3"}}), 3),
            (json!({"limits": {"cpu": "0"}}), 1),
        ] {
            assert_eq!(
                run(resources.clone(), json!({})).0.cores,
                cores,
                "{resources}"
            );
        }
    }

    #[test]
    fn guest_memory_keeps_the_authors_spelling() {
        for (resources, image, guest, request, limit) in [
            (json!(null), json!({}), "2Gi", "2Gi", "2Gi"),
            (
                json!({"limits": {"memory": "1024Mi"}, "requests": {"memory": "1G"}}),
                json!({}),
                "1024Mi",
                "1G",
                "1024Mi",
            ),
            (
                json!({"requests": {"memory": "1Gi"}}),
                json!({}),
                "1Gi",
                "1Gi",
                "1Gi",
            ),
            (
                json!({"limits": {"memory": "1Gi"}}),
                json!({"memoryLimit": "4Gi"}),
                "4Gi",
                "4Gi",
                "4Gi",
            ),
            (
                json!({}),
                json!({"memoryLimit": "4Gi", "memoryRequest": "5Gi"}),
                "4Gi",
                "5Gi",
                "5Gi",
            ),
            (
                json!({}),
                json!({"memoryLimit": "2Gi", "memoryRequest": "2304Mi"}),
                "2Gi",
                "2304Mi",
                "2304Mi",
            ),
        ] {
            let (out, problems) = run(resources, image);
            assert_eq!(out.guest, guest);
            assert_eq!(out.pod["requests"]["memory"], request);
            assert_eq!(out.pod["limits"]["memory"], limit);
            assert!(problems.is_empty(), "{problems:?}");
        }
    }

    #[test]
    fn what_cannot_work_is_said() {
        for (resources, image, words) in [
            (
                json!({"limits": {"memory": "2048"}}),
                json!({}),
                "2048 is 2048 bytes",
            ),
            (
                json!({"limits": {"memory": "128m"}}),
                json!({}),
                "128m is 1 bytes",
            ),
            (json!({"limits": {"memory": 0}}), json!({}), "0 is 0 bytes"),
            (
                json!({"limits": {"memory": "lots"}}),
                json!({}),
                "\"lots\" is no quantity",
            ),
            (
                json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}}),
                json!({}),
                "request 2Gi is above the limit 1Gi",
            ),
            (
                json!({"limits": {"nvidia.com/gpu": 1}}),
                json!({}),
                "GPUs are not supported",
            ),
            (
                json!({"limits": {"ephemeral-storage": "1Gi"}}),
                json!({}),
                "not supported for type vm",
            ),
            (
                json!({}),
                json!({"memoryLimit": "4Gi", "memoryRequest": "1Gi"}),
                "1Gi is less than",
            ),
            (
                json!({}),
                json!({"memoryLimit": "much"}),
                "correct the catalog entry",
            ),
        ] {
            let (_, problems) = run(resources, image);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(words), "{problems:?}");
        }
    }
}
