use std::{
    io::{self, Write},
    sync::Arc,
};

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{ApiError, Metrics, UserInfo, request::RequestInfo};

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn events(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn request(uri: &str) -> Request {
    Request {
        id: "id-1".into(),
        uri: uri.into(),
        info: RequestInfo::parse(&Method::GET, &uri.parse().unwrap()).unwrap(),
        user: Some(UserInfo {
            name: "jane".into(),
            groups: vec!["dev".into()],
            ..UserInfo::default()
        }),
        source_ips: vec!["10.0.0.1".into()],
        user_agent: "kubectl/v1".into(),
        received: "2030-01-02T03:04:05.000006Z".parse().unwrap(),
    }
}

#[tokio::test]
async fn a_request_has_one_event_and_a_stream_has_two() {
    let memory = Memory::default();
    let log = AuditLog::writing_to(Box::new(memory.clone()), Metrics::default()).unwrap();
    let record = Record::begin(
        request("/apis/k.io/v1/namespaces/a/ws/w/console?x=y"),
        log.clone(),
    );
    record.annotate("authorization.k8s.io/decision", "allow");
    record.responded(StatusCode::SWITCHING_PROTOCOLS, None);
    record.started();
    let held = record.clone();
    drop(record);
    log.close().await;
    assert_eq!(memory.events().len(), 1, "somebody still holds the record");
    held.annotate("bytes", "7");
    drop(held);
    log.close().await;
    let events = memory.events();
    assert_eq!(events[0]["stage"], "ResponseStarted");
    let mut last = events[1].clone();
    last.as_object_mut()
        .unwrap()
        .remove("stageTimestamp")
        .unwrap();
    assert_eq!(
        last,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
            "auditID": "id-1", "stage": "ResponseComplete",
            "requestURI": "/apis/k.io/v1/namespaces/a/ws/w/console?x=y", "verb": "get",
            "user": {"username": "jane", "groups": ["dev"]}, "sourceIPs": ["10.0.0.1"],
            "userAgent": "kubectl/v1",
            "objectRef": {"resource": "ws", "namespace": "a", "name": "w", "apiGroup": "k.io",
                "apiVersion": "v1", "subresource": "console"},
            "responseStatus": {"metadata": {}, "code": 101},
            "requestReceivedTimestamp": "2030-01-02T03:04:05.000006Z",
            "annotations": {"authorization.k8s.io/decision": "allow", "bytes": "7"},
        })
    );
}

#[tokio::test]
async fn a_failure_says_why() {
    let memory = Memory::default();
    let log = AuditLog::writing_to(Box::new(memory.clone()), Metrics::default()).unwrap();
    let error = ApiError::not_found("k.io", "ws", "w");
    let record = Record::begin(request("/metrics"), log.clone());
    record.responded(error.reason.code(), Some(&error));
    drop(record);
    log.close().await;
    let event = &memory.events()[0];
    assert_eq!(event["responseStatus"]["reason"], "NotFound");
    assert_eq!(
        event["responseStatus"]["message"],
        "ws.k.io \"w\" not found"
    );
    assert_eq!(event["objectRef"], Value::Null);
}

/// A file system that hangs until it is let go.
struct Stuck(std::sync::mpsc::Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_that_hangs_loses_events_and_counts_them() {
    let (release, gate) = std::sync::mpsc::channel();
    let metrics = Metrics::default();
    let log = AuditLog::writing_to(Box::new(Stuck(gate)), metrics.clone()).unwrap();
    for _ in 0..12_000 {
        drop(Record::begin(request("/metrics"), log.clone()));
    }
    assert_eq!(metrics.audit_events.get(), 12_000);
    assert!(metrics.audit_lost.get() > 1_000);
    drop(release);
}
