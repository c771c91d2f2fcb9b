//! What people type, with every kubectl there is: the one that is built, 1.34, and the machine's own.

use kubeworkspaces_tests::{deployment::Deployment, fixtures::workspace, kubectls::Kubectls};

#[tokio::test(flavor = "multi_thread")]
async fn people_can_work_with_every_kubectl() -> anyhow::Result<()> {
    let deployment = Deployment::start().await?;
    for (version, kubectl) in Kubectls::of(&deployment).await?.all() {
        println!("with kubectl {version}");
        let name = format!("ws-{}", version.replace('.', "-"));
        let manifest = deployment.plane().dir().join(format!("{name}.yaml"));
        std::fs::write(&manifest, workspace(&name, "scratch"))?;
        let file = manifest.to_string_lossy().into_owned();

        let applied = kubectl.run(["apply", "-f", &file]).await?;
        assert_eq!(
            applied,
            format!("workspace.kubeworkspaces.io/{name} created\n")
        );
        let again = kubectl.run(["apply", "-f", &file]).await?;
        assert_eq!(
            again,
            format!("workspace.kubeworkspaces.io/{name} unchanged\n")
        );

        let table = kubectl.run(["get", "workspaces"]).await?;
        let header: Vec<&str> = table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            header,
            ["NAME", "TYPE", "STATUS", "READY", "IMAGE", "ADDRESS", "AGE"]
        );
        assert!(table.contains(&name), "{table}");
        assert!(kubectl.run(["get", "ws", &name]).await?.contains("scratch"));
        assert!(
            kubectl
                .run(["get", "ws", "-A", "-o", "wide"])
                .await?
                .contains("REASON")
        );

        let yaml = kubectl.run(["get", "ws", &name, "-o", "yaml"]).await?;
        assert!(
            yaml.contains("kind: Workspace") && yaml.contains("uid:"),
            "{yaml}"
        );
        let described = kubectl.run(["describe", "ws", &name]).await?;
        assert!(
            described.contains(&format!("Name:         {name}")),
            "{described}"
        );

        let explained = kubectl.run(["explain", "workspace.spec"]).await?;
        assert!(
            explained.contains("template") && explained.contains("How the workspace runs"),
            "{explained}"
        );
        let deep = kubectl
            .run(["explain", "workspace.spec.template.spec.containers.image"])
            .await?;
        assert!(deep.contains("Container image name"), "{deep}");

        let resources = kubectl
            .run([
                "api-resources",
                "--api-group=kubeworkspaces.io",
                "-o",
                "wide",
            ])
            .await?;
        assert!(
            resources.contains("workspacesessions") && resources.contains("wss"),
            "{resources}"
        );
        assert!(
            resources.contains("deletecollection") || resources.contains("deletecollection".trim()),
            "{resources}"
        );

        let labelled = kubectl.run(["label", "ws", &name, "team=blue"]).await?;
        assert!(labelled.contains("labeled"), "{labelled}");
        assert!(
            kubectl
                .run(["get", "ws", "-l", "team=blue", "-o", "name"])
                .await?
                .contains(&name)
        );
        assert_eq!(
            kubectl
                .run(["get", "ws", "-l", "team=red", "-o", "name"])
                .await?,
            ""
        );

        edit(&kubectl, &deployment, &name).await?;
        let ready = kubectl
            .run(["wait", "--for=condition=Ready", "--timeout=1s", "ws", &name])
            .await;
        assert!(
            ready.unwrap_err().to_string().contains("timed out"),
            "there is no node, so it cannot be ready"
        );
        let false_ = [
            "wait",
            "--for=condition=Ready=false",
            "--timeout=60s",
            "ws",
            &name,
        ];
        assert!(kubectl.run(false_).await?.contains("condition met"));

        assert!(
            kubectl
                .run(["delete", "ws", &name, "--timeout=60s"])
                .await?
                .contains("deleted")
        );
        let gone = kubectl
            .run(["get", "ws", &name])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            gone.contains(&format!(
                "workspaces.kubeworkspaces.io \"{name}\" not found"
            )),
            "{gone}"
        );
    }
    Ok(())
}

/// `kubectl edit` with an editor that changes one line.
async fn edit(
    kubectl: &localcluster::harness::Kubectl,
    deployment: &Deployment,
    name: &str,
) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let editor = deployment.plane().dir().join("editor");
    std::fs::write(
        &editor,
        "#!/bin/sh\nsed -i 's/team: blue/team: green/' \"$1\"\n",
    )?;
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755))?;
    let output = kubectl
        .command(["edit", "ws", name])
        .env("KUBE_EDITOR", &editor)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("edited"), "{text}");
    assert!(
        kubectl
            .run(["get", "ws", "-l", "team=green", "-o", "name"])
            .await?
            .contains(name)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn get_w_shows_what_happens() -> anyhow::Result<()> {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let deployment = Deployment::start().await?;
    let kubectl = deployment.plane().kubectl_program();
    let mut watch = kubectl
        .command(["get", "ws", "-w", "--no-headers"])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // The watch may begin before or after the creation: either way the row is shown.
    deployment.apply(&workspace("seen", "scratch")).await?;
    deployment
        .kubectl(&["annotate", "ws", "seen", "note=1"])
        .await?;
    deployment.kubectl(&["delete", "ws", "seen"]).await?;
    let read = async {
        let mut rows = 0;
        while let Some(line) = lines.next_line().await? {
            assert!(line.starts_with("seen"), "{line}");
            rows += 1;
            if rows >= 3 {
                return anyhow::Ok(());
            }
        }
        anyhow::bail!("the watch ended after {rows} rows")
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), read).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_with_its_field() -> anyhow::Result<()> {
    let deployment = Deployment::start().await?;
    let table = [
        (
            workspace("Bad_Name", "vm"),
            "metadata.name: Invalid value: \"Bad_Name\"",
        ),
        (
            workspace("a", "qemu"),
            "spec.type: Unsupported value: \"qemu\"",
        ),
        (
            workspace("a", "vm").replace("image: example.test/image:1", "imagee: x"),
            "unknown field \"spec.template.spec.containers[0].imagee\"",
        ),
        (
            workspace("a", "vm").replace("- name: main", "- name: main\n      - name: main"),
            "image: Required value",
        ),
    ];
    for (manifest, expected) in table {
        let error = deployment.apply(&manifest).await.unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected}, got {error}");
    }
    // kubectl reads YAML itself and keeps the last of two keys; raw bodies show what the server does.
    let twice = r#"{"apiVersion":"kubeworkspaces.io/v1alpha1","kind":"Workspace","metadata":{"name":"twice"},
        "spec":{"type":"vm","type":"scratch","template":{"spec":{"containers":[{"name":"a","image":"i"}]}}}}"#;
    let file = deployment.plane().dir().join("twice.json");
    std::fs::write(&file, twice)?;
    let path =
        "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces?fieldValidation=Strict";
    let raw = ["create", "--raw", path, "-f", &file.to_string_lossy()];
    let error = deployment.kubectl(&raw).await.unwrap_err().to_string();
    assert!(error.contains("duplicate field \"spec.type\""), "{error}");
    assert_eq!(
        deployment
            .kubectl(&["get", "ws", "-A", "-o", "name"])
            .await?,
        "",
        "nothing was half-written"
    );
    deployment.apply(&workspace("fixed", "vm")).await?;
    let patch = r#"{"spec":{"type":"scratch"}}"#;
    let error = deployment
        .kubectl(&["patch", "ws", "fixed", "--type=merge", "-p", patch])
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the type of a workspace cannot be changed"),
        "{error}"
    );
    Ok(())
}
