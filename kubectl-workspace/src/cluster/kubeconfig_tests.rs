//! Files and flags against what client-go makes of them.

use super::*;

const ONE: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"a",
    "contexts":[{"name":"a","context":{"cluster":"c","user":"u","namespace":"t1"}},
                {"name":"b","context":{"cluster":"d","user":"nobody"}}],
    "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1","tls-server-name":"api.example",
                     "certificate-authority-data":"AAAA"}},
                {"name":"d","cluster":{"server":"http://127.0.0.1:2","proxy-url":"http://127.0.0.1:3"}}],
    "users":[{"name":"u","user":{"token":"t"}}]}"#;

const TWO: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"z",
    "contexts":[{"name":"z","context":{"cluster":"e","user":"u"}}],
    "clusters":[{"name":"e","cluster":{"server":"http://127.0.0.1:5"}}],
    "users":[{"name":"u","user":{"token":"other"}}]}"#;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn chosen(
    text: &str,
    edit: impl FnOnce(&mut ClusterFlags),
) -> Result<(Cluster, AuthInfo, Option<String>), ClusterError> {
    let mut flags = ClusterFlags::default();
    edit(&mut flags);
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|e| wrong(&e))?;
    let context = flags.context.clone().or(kubeconfig.current_context.clone());
    choose(kubeconfig, context.as_deref(), &flags)
}

#[test]
fn flags_win_over_the_kubeconfig() {
    let (cluster, user, namespace) = chosen(ONE, |_| {}).unwrap();
    assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:1"));
    assert_eq!(cluster.tls_server_name.as_deref(), Some("api.example"));
    assert_eq!(namespace.as_deref(), Some("t1"));
    assert!(user.token.is_some());

    let (cluster, _, namespace) = chosen(ONE, |f| f.context = Some("b".into())).unwrap();
    assert_eq!(cluster.server.as_deref(), Some("http://127.0.0.1:2"));
    assert_eq!(
        (cluster.proxy_url.as_deref(), namespace),
        (Some("http://127.0.0.1:3"), None)
    );

    let (cluster, ..) = chosen(ONE, |f| f.cluster = Some("d".into())).unwrap();
    assert_eq!(cluster.server.as_deref(), Some("http://127.0.0.1:2"));

    let ann = chosen(ONE, |f| {
        f.impersonate = Some("ann".into());
        f.impersonate_groups = vec!["g".into(), "h".into()];
        f.impersonate_uid = Some("7".into());
    });
    let (_, user, _) = ann.unwrap();
    assert_eq!(user.impersonate.as_deref(), Some("ann"));
    assert_eq!(user.impersonate_uid.as_deref(), Some("7"));
    assert_eq!(user.impersonate_groups.unwrap(), ["g", "h"]);
}

#[test]
fn an_address_on_the_command_line_leaves_the_tls_name_of_the_other_one_behind() {
    let (cluster, ..) = chosen(ONE, |f| f.server = Some("https://127.0.0.1:9".into())).unwrap();
    assert_eq!(
        (cluster.server.as_deref(), cluster.tls_server_name),
        (Some("https://127.0.0.1:9"), None)
    );
    let (cluster, ..) = chosen(ONE, |f| {
        f.server = Some("https://127.0.0.1:9".into());
        f.tls_server_name = Some("x".into());
    })
    .unwrap();
    assert_eq!(cluster.tls_server_name.as_deref(), Some("x"));
}

#[test]
fn an_authority_on_the_command_line_stands_in_place_of_the_data() {
    let authority = file("pem");
    let path = authority.path().to_owned();
    let (cluster, ..) = chosen(ONE, |f| f.certificate_authority = Some(path.clone())).unwrap();
    assert_eq!(cluster.certificate_authority.as_deref(), path.to_str());
    assert_eq!(cluster.certificate_authority_data, None);
    let (cluster, ..) = chosen(ONE, |f| f.insecure_skip_tls_verify = true).unwrap();
    assert_eq!(
        (
            cluster.insecure_skip_tls_verify,
            cluster.certificate_authority_data
        ),
        (Some(true), None)
    );
}

#[test]
fn a_flag_that_cannot_be_meant_is_named() {
    type Edit = fn(&mut ClusterFlags);
    let cases: [(Edit, &str); 7] = [
        (
            |f| f.certificate_authority = Some("/nowhere".into()),
            "--certificate-authority",
        ),
        (|f| f.client_key = Some("/nowhere".into()), "--client-key"),
        (|f| f.context = Some("zz".into()), "context \"zz\""),
        (|f| f.cluster = Some("zz".into()), "cluster \"zz\""),
        (|f| f.user = Some("zz".into()), "user \"zz\""),
        (|f| f.impersonate_groups = vec!["g".into()], "need --as"),
        (
            |f| {
                f.insecure_skip_tls_verify = true;
                f.certificate_authority = Some("/dev/null".into());
            },
            "exclude each other",
        ),
    ];
    for (edit, expected) in cases {
        let error = chosen(ONE, edit).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn of_several_files_the_first_value_wins_and_missing_ones_are_skipped() {
    let (one, two) = (file(ONE), file(TWO));
    let files = [
        "/nowhere".into(),
        one.path().to_owned(),
        two.path().to_owned(),
    ];
    let merged = merge(&files).unwrap();
    assert_eq!(merged.current_context.as_deref(), Some("a"));
    let names: Vec<_> = merged.contexts.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "z"]);
    assert_eq!(
        merged.auth_infos.len(),
        1,
        "the first of two users of one name"
    );
    let empty = file(&TWO.replace("\"z\",", "\"\","));
    let files = [empty.path().to_owned(), one.path().to_owned()];
    let merged = merge(&files).unwrap();
    assert_eq!(
        merged.current_context.as_deref(),
        Some("a"),
        "an empty name is none"
    );
}

#[test]
fn without_a_kubeconfig_an_address_is_enough_and_nothing_is_said_in_words() {
    let (cluster, user, _) =
        chosen("", |f| f.server = Some("http://127.0.0.1:8001".into())).unwrap();
    assert_eq!(cluster.server.as_deref(), Some("http://127.0.0.1:8001"));
    assert!(user.token.is_none());
    let error = chosen("", |_| {}).err().unwrap().to_string();
    assert!(error.contains("KUBECONFIG"), "{error}");
}

#[test]
fn a_token_on_the_command_line_stands_alone() {
    let text = ONE.replace(
        r#"{"token":"t"}"#,
        r#"{"tokenFile":"/t","exec":{"command":"x"}}"#,
    );
    let (_, user, _) = chosen(&text, |f| f.token = Some("mine".into())).unwrap();
    assert!(user.token.is_some() && user.token_file.is_none() && user.exec.is_none());
}
