//! Authentication as a whole: what was presented, by which connection, makes whom.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::DnType;
use serde_json::{Value, json};

use super::*;
use crate::{
    review_client::scripted,
    test_pki::{Ca, Leaf},
};

pub(crate) fn request_header(ca: &Ca, allowed: &[&str]) -> RequestHeader {
    RequestHeader {
        ca: (*ca.bundle()).clone(),
        allowed_names: allowed.iter().map(|n| (*n).to_owned()).collect(),
        username_headers: vec!["x-remote-user".parse().unwrap()],
        uid_headers: vec!["x-remote-uid".parse().unwrap()],
        group_headers: vec!["x-remote-group".parse().unwrap()],
        extra_prefixes: vec!["x-remote-extra-".to_owned()],
    }
}

fn trust(client: &Ca, front: &Ca) -> Arc<TrustStore> {
    Arc::new(TrustStore::new(Trust {
        client_ca: Some(client.bundle()),
        request_header: Some(Arc::new(request_header(front, &["front-proxy-client"]))),
    }))
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(http::HeaderName::from_static(name), value.parse().unwrap());
    }
    headers
}

struct Fixture {
    client: Ca,
    front: Ca,
    authentication: Authentication,
    reviews: Arc<AtomicU32>,
}

impl Fixture {
    fn new() -> Self {
        let (client, front) = (Ca::new("client-ca"), Ca::new("front-ca"));
        let reviews = Arc::new(AtomicU32::new(0));
        let seen = reviews.clone();
        let kube = scripted::client(Arc::new(move |review: Value| {
            seen.fetch_add(1, Ordering::SeqCst);
            match review["spec"]["token"].as_str().unwrap() {
                "good" => (
                    201,
                    json!({"status": {"authenticated": true, "user": {
                    "username": "robot", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}}}),
                ),
                "odd" => (403, json!({"message": "no reviews for you"})),
                _ => (
                    201,
                    json!({"status": {"authenticated": false, "error": "unknown"}}),
                ),
            }
        }));
        let tokens = TokenReviews::new(kube, TokenConfig::default()).unwrap();
        let authentication = Authentication::new(trust(&client, &front), Some(tokens));
        Self {
            client,
            front,
            authentication,
            reviews,
        }
    }

    async fn who(
        &self,
        leaf: Option<&Leaf>,
        list: &[(&'static str, &str)],
    ) -> Result<Identity, String> {
        let mut headers = headers(list);
        let chain: Vec<_> = leaf.map(|leaf| leaf.der.clone()).into_iter().collect();
        let result = self
            .authentication
            .authenticate(&mut headers, &chain, UnixTime::now())
            .await;
        for name in headers.keys() {
            assert!(!name.as_str().starts_with("x-remote-"), "{name} was left");
        }
        assert!(!headers.contains_key("authorization"), "a token was left");
        result.map_err(|rejected| rejected.to_string())
    }
}

const SPOOF: [(&str, &str); 2] = [
    ("x-remote-user", "admin"),
    ("x-remote-group", "system:masters"),
];

#[tokio::test]
async fn identity_headers_without_a_front_proxys_certificate_are_nothing() {
    let f = Fixture::new();
    let nobody = f.who(None, &SPOOF).await.unwrap();
    assert_eq!(nobody.user, UserInfo::anonymous());
    assert_eq!(nobody.via, Via::Anonymous);
    let jane = f.client.client("jane");
    let jane = f.who(Some(&jane), &SPOOF).await.unwrap();
    assert_eq!(
        (jane.user.name.as_str(), jane.via),
        ("jane", Via::ClientCertificate)
    );
    let robot = [SPOOF[0], SPOOF[1], ("authorization", "Bearer good")];
    assert_eq!(f.who(None, &robot).await.unwrap().user.name, "robot");
}

#[tokio::test]
async fn the_front_proxy_says_who_is_calling() {
    let f = Fixture::new();
    let proxy = f.front.client("front-proxy-client");
    let identity = f
        .who(
            Some(&proxy),
            &[
                ("x-remote-user", "jane"),
                ("x-remote-uid", "u-1"),
                ("x-remote-group", "a,b"),
                ("x-remote-group", ""),
                ("x-remote-group", "c"),
                ("x-remote-extra-scopes.io%2fa%25", "x"),
                ("x-remote-extra-scopes.io%2fa%25", "y"),
            ],
        )
        .await
        .unwrap();
    assert_eq!(identity.via, Via::FrontProxy);
    assert_eq!(
        (identity.user.name.as_str(), identity.user.uid.as_str()),
        ("jane", "u-1")
    );
    assert_eq!(identity.user.groups, ["a,b", "c", AUTHENTICATED]);
    assert_eq!(identity.user.extra["scopes.io/a%"], ["x", "y"]);
}

#[tokio::test]
async fn a_front_proxy_of_another_name_is_401_and_never_somebody_else() {
    let f = Fixture::new();
    let stranger = f.front.client("kube-apiserver");
    let with_token = [SPOOF[0], ("authorization", "Bearer good")];
    let error = f.who(Some(&stranger), &with_token).await.unwrap_err();
    assert!(
        error.contains("cn=kube-apiserver") && error.contains("front-proxy-client"),
        "{error}"
    );
    // One CA for both: Go would run this as the user kube-apiserver.
    let one = Ca::new("one");
    let stranger = one.client("kube-apiserver");
    let both = Authentication::new(trust(&one, &one), None);
    let mut spoofed = headers(&SPOOF);
    let result = both
        .authenticate(
            &mut spoofed,
            std::slice::from_ref(&stranger.der),
            UnixTime::now(),
        )
        .await;
    assert!(result.is_err());
    let mut plain = HeaderMap::new();
    let result = both
        .authenticate(&mut plain, &[stranger.der], UnixTime::now())
        .await;
    assert_eq!(result.unwrap().user.name, "kube-apiserver");
}

#[tokio::test]
async fn a_front_proxy_that_names_nobody_is_judged_by_the_client_ca() {
    let f = Fixture::new();
    let proxy = f.front.client("front-proxy-client");
    for list in [
        &[][..],
        &[("x-remote-user", "")],
        &[("x-remote-group", "g")],
    ] {
        let error = f.who(Some(&proxy), list).await.unwrap_err();
        assert!(error.contains("front-proxy-client"), "{error}");
    }
}

#[tokio::test]
async fn a_client_certificate_gives_name_groups_and_credential() {
    let f = Fixture::new();
    let jane = f.client.client("jane");
    let user = f.who(Some(&jane), &[]).await.unwrap().user;
    assert_eq!(user.groups, ["dev", AUTHENTICATED]);
    let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_is_401_unless_a_token_is_good() {
    let f = Fixture::new();
    let other = Ca::new("other").client("jane");
    assert!(f.who(Some(&other), &[]).await.is_err());
    assert!(
        f.who(Some(&f.client.server()), &[]).await.is_err(),
        "no client certificate"
    );
    let late = f.client.issue(|params| {
        params.distinguished_name.push(DnType::CommonName, "late");
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let error = f.who(Some(&late), &[]).await.unwrap_err();
    assert!(error.contains("xpired"), "{error}");
    let good = [("authorization", "Bearer good")];
    assert_eq!(f.who(Some(&other), &good).await.unwrap().user.name, "robot");
}

#[tokio::test]
async fn a_token_is_reviewed_once_and_a_bad_one_is_401() {
    let f = Fixture::new();
    for _ in 0..3 {
        let robot = f
            .who(None, &[("authorization", "Bearer good")])
            .await
            .unwrap();
        assert_eq!(robot.via, Via::Token);
        assert_eq!(robot.user.groups, ["g", AUTHENTICATED]);
        assert_eq!(robot.user.extra["k"], ["v"]);
    }
    assert_eq!(f.reviews.load(Ordering::SeqCst), 1);
    for (token, reason) in [
        ("Bearer bad", "invalid bearer token: unknown"),
        ("Bearer odd", "no reviews for you"),
    ] {
        let error = f.who(None, &[("authorization", token)]).await.unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let basic = f.who(None, &[("authorization", "Basic x")]).await.unwrap();
    assert_eq!(basic.via, Via::Anonymous);
}

#[tokio::test]
async fn a_websocket_may_carry_its_token_as_a_subprotocol() {
    let f = Fixture::new();
    let offer = format!(
        "base64url.bearer.authorization.k8s.io.{}, plain.kubevirt.io",
        URL_SAFE_NO_PAD.encode("good")
    );
    let list = [
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", offer.as_str()),
    ];
    assert_eq!(f.who(None, &list).await.unwrap().user.name, "robot");
}

#[tokio::test]
async fn a_ca_that_is_replaced_counts_at_once() {
    let (old, new, client) = (Ca::new("old"), Ca::new("new"), Ca::new("client"));
    let store = trust(&client, &old);
    let authentication = Authentication::new(store.clone(), None);
    let proxies = [&old, &new].map(|ca| ca.client("front-proxy-client"));
    let mut seen = Vec::new();
    for _ in 0..2 {
        for proxy in &proxies {
            let mut headers = headers(&SPOOF);
            let chain = [proxy.der.clone()];
            let result = authentication
                .authenticate(&mut headers, &chain, UnixTime::now())
                .await;
            seen.push(result.is_ok());
        }
        let replacement = request_header(&new, &["front-proxy-client"]);
        store.update(|trust| trust.request_header = Some(Arc::new(replacement)));
    }
    assert_eq!(seen, [true, false, false, true]);
}

#[test]
fn one_ca_for_everything_and_no_names_is_refused() {
    let (one, other) = (Ca::new("one"), Ca::new("other"));
    let store = |front: RequestHeader| {
        TrustStore::new(Trust {
            client_ca: Some(one.bundle()),
            request_header: Some(Arc::new(front)),
        })
    };
    let dangerous = store(request_header(&one, &[]));
    assert!(dangerous.current().request_header.is_none());
    assert!(
        dangerous
            .ready(crate::validity::now())
            .unwrap_err()
            .contains("--requestheader-allowed-names")
    );
    for safe in [request_header(&one, &["x"]), request_header(&other, &[])] {
        let store = store(safe);
        assert!(store.current().request_header.is_some());
        assert_eq!(store.ready(crate::validity::now()), Ok(()));
    }
}

#[tokio::test]
async fn a_review_that_hangs_ends() {
    let kube = kube::Client::new(
        tower::service_fn(|_: http::Request<kube::client::Body>| {
            futures::future::pending::<
                Result<http::Response<kube::client::Body>, std::convert::Infallible>,
            >()
        }),
        "default",
    );
    let mut config = TokenConfig::default();
    config.patience.deadline = Duration::from_millis(1);
    let tokens = TokenReviews::new(kube, config).unwrap();
    let authentication = Authentication::new(Arc::default(), Some(tokens));
    let mut headers = headers(&[("authorization", "Bearer x")]);
    let result = authentication
        .authenticate(&mut headers, &[], UnixTime::now())
        .await;
    assert!(result.unwrap_err().to_string().contains("no answer within"));
}

/// Go's verifier minds the time of roots too; an anchor by itself is believed for ever.
#[test]
fn an_expired_ca_is_not_believed_and_readiness_says_so_until_there_is_another() {
    let second = |year| rcgen::date_time_ymd(year, 1, 1).unix_timestamp();
    let old = Ca::with("front-ca", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let proxy = old.client("front-proxy-client");
    let at = |year| {
        let second = u64::try_from(second(year)).unwrap();
        UnixTime::since_unix_epoch(Duration::from_secs(second))
    };
    let chain = [proxy.der];
    assert!(old.bundle().verify(&chain, at(2020)).is_ok());
    for year in [2019, 2022] {
        assert!(old.bundle().verify(&chain, at(year)).is_err(), "{year}");
    }

    let new = Ca::new("front-ca");
    let both = CaBundle::from_pem((old.pem() + &new.pem()).as_bytes()).unwrap();
    let fresh = new.client("front-proxy-client");
    assert!(both.verify(&[fresh.der], at(2022)).is_ok());
    assert!(both.verify(&chain, at(2022)).is_err());

    let store = trust(&Ca::new("client-ca"), &old);
    assert_eq!(store.ready(second(2020)), Ok(()));
    let why = store.ready(second(2022)).unwrap_err();
    assert!(why.contains("expired at 2021-01-01T00:00:00Z"), "{why}");
    store.update(|trust| {
        let front = request_header(&new, &["front-proxy-client"]);
        trust.request_header = Some(Arc::new(front));
    });
    assert_eq!(store.ready(second(2022)), Ok(()));
}
