//! Completion: what kubectl and the shells are told.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::place::{PLUGIN, Place, Ran};

async fn completed(place: &Place, words: &[&str]) -> Vec<String> {
    let args = [&["__complete"], words].concat();
    let ran = place.run(&args).await.well();
    ran.out.lines().map(str::to_owned).collect()
}

async fn place() -> Place {
    let place = Place::new().await;
    for (name, kind) in [
        ("demo", "vm"),
        ("demo2", "container"),
        ("rhel9.arm64", "vm"),
    ] {
        place.double.workspace("t1", name, kind);
    }
    place.double.workspace("t2", "other", "vm");
    place
}

#[tokio::test]
async fn names_of_workspaces_come_from_the_cluster() {
    let place = place().await;
    let all = completed(&place, &["console", ""]).await;
    assert_eq!(
        all,
        [
            "demo\tvm Running",
            "demo2\tcontainer Running",
            "rhel9.arm64\tvm Running",
            ":4"
        ]
    );
    assert_eq!(
        completed(&place, &["ssh", "ann@rh"]).await,
        ["ann@rhel9.arm64\tvm Running", ":4"]
    );
    assert_eq!(
        completed(&place, &["vnc", "-n", "t2", ""]).await,
        ["other\tvm Running", ":4"]
    );
    assert_eq!(
        completed(&place, &["cp", "rh"]).await,
        ["rhel9.arm64:\tvm Running", ":2"]
    );
    place.double.change(|world| {
        let session = json!({"metadata": {"name": "demo.console"}, "spec": {"user": "ann"}});
        world.objects.insert(
            "namespaces/t1/workspacesessions/demo.console".into(),
            session,
        );
    });
    assert_eq!(
        completed(&place, &["sessions", "kill", ""]).await,
        ["demo.console\tann", ":4"]
    );
    assert_eq!(
        completed(&place, &["console", "--context", ""]).await,
        ["here", ":4"]
    );
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_no_error_and_no_wait() {
    let place = place().await;
    let start = std::time::Instant::now();
    let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("--server=http://{}", hole.local_addr().unwrap());
    assert_eq!(completed(&place, &[&server, "console", ""]).await, [":4"]);
    assert!(start.elapsed().as_secs() < 10);
    assert_eq!(
        completed(&place, &["--kubeconfig", "/nowhere", "console", ""]).await,
        [":4"]
    );
}

#[tokio::test]
async fn kubectl_completes_through_a_link_of_the_right_name() {
    let place = place().await;
    let link = place.path("kubectl_complete-workspace");
    symlink(PLUGIN, &link).unwrap();
    let mut command = tokio::process::Command::new(&link);
    place.surround(&mut command);
    command.args(["console", "--namespace", "t1", "demo"]);
    let ran = Ran::of(command).await.well();
    assert_eq!(ran.out, "demo\tvm Running\ndemo2\tcontainer Running\n:4\n");
}

/// What a bash that has read the script completes a line to.
async fn bash(place: &Place, line: &str) -> Ran {
    let driver = r#"
        PATH=$BIN:$PATH; source <(kubectl-workspace completion bash)
        compopt() { :; }
        COMP_LINE=$LINE COMP_POINT=${#LINE}
        _kubectl_workspace
        printf '%s\n' "${COMPREPLY[@]}""#;
    let bin = std::path::Path::new(PLUGIN).parent().unwrap();
    let mut command = tokio::process::Command::new("bash");
    place.surround(&mut command);
    command
        .args(["-c", driver])
        .env("LINE", line)
        .env("BIN", bin);
    Ran::of(command).await
}

#[tokio::test]
async fn the_bash_script_completes_a_line() {
    let place = place().await;
    assert_eq!(
        bash(&place, "kubectl-workspace console de")
            .await
            .well()
            .out,
        "demo\ndemo2\n"
    );
    // bash takes words apart at these characters and wants the rest only
    assert_eq!(
        bash(&place, "kubectl-workspace ssh ann@rh")
            .await
            .well()
            .out,
        "rhel9.arm64\n"
    );
    assert_eq!(
        bash(&place, "kubectl-workspace console --context=h")
            .await
            .well()
            .out,
        "here\n"
    );
    assert!(
        bash(&place, "kubectl-workspace port")
            .await
            .well()
            .out
            .starts_with("port-forward\n")
    );
}

/// Whether this shell can be tried here; says so if not.
fn has(shell: &str, test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(shell).is_file());
    if !found {
        println!("skipped: {test}, for lack of {shell}");
    }
    found
}

/// What an interactive zsh that has read the script makes of a line and a tab.
async fn zsh(place: &Place, line: &str) -> String {
    let rc = place.path(".zshrc");
    let script = r#"
        PS1='> '; PATH=$BIN:$PATH
        autoload -Uz compinit; compinit -u -d $HOME/.zcompdump
        source <(kubectl-workspace completion zsh)
        report() { print -r -- "$BUFFER" > $HOME/line; exit }
        zle -N report; bindkey '^X' report"#;
    std::fs::write(&rc, script).unwrap();
    // A terminal, and whoever types at it.
    let driver = r#"
        zmodload zsh/zpty
        zpty shell 'exec zsh -i'
        zpty -r shell shown '*> *'
        zpty -w -n shell "$LINE"$'\t'$'\x18'
        while zpty -r shell shown; do :; done"#;
    let bin = std::path::Path::new(PLUGIN).parent().unwrap();
    let mut command = tokio::process::Command::new("zsh");
    place.surround(&mut command);
    command
        .args(["-f", "-c", driver])
        .env("TERM", "dumb")
        .env("LINE", line)
        .env("BIN", bin);
    let ran = Ran::of(command).await;
    std::fs::read_to_string(place.path("line")).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[tokio::test]
async fn the_zsh_script_completes_a_line() {
    if !has("zsh", "the_zsh_script_completes_a_line") {
        return;
    }
    let place = place().await;
    for (line, expected) in [
        (
            "kubectl-workspace console rh",
            "kubectl-workspace console rhel9.arm64 \n",
        ),
        // as far as all agree
        (
            "kubectl-workspace console de",
            "kubectl-workspace console demo\n",
        ),
        (
            "kubectl-workspace ssh ann@rh",
            "kubectl-workspace ssh ann@rhel9.arm64 \n",
        ),
        // more follows a colon: no space
        (
            "kubectl-workspace cp rh",
            "kubectl-workspace cp rhel9.arm64:\n",
        ),
        (
            "kubectl-workspace port",
            "kubectl-workspace port-forward \n",
        ),
    ] {
        assert_eq!(zsh(&place, line).await, expected, "{line}");
    }
}

/// What fish that has read the script offers for a line.
async fn fish(place: &Place, line: &str) -> String {
    let driver =
        "set -x PATH $BIN $PATH; kubectl-workspace completion fish | source; complete -C $LINE";
    let bin = std::path::Path::new(PLUGIN).parent().unwrap();
    let mut command = tokio::process::Command::new("fish");
    place.surround(&mut command);
    command
        .args(["--no-config", "-c", driver])
        .env("LINE", line)
        .env("BIN", bin);
    Ran::of(command).await.well().out
}

#[tokio::test]
async fn the_fish_script_completes_a_line() {
    if !has("fish", "the_fish_script_completes_a_line") {
        return;
    }
    let place = place().await;
    std::fs::write(place.path("rhubarb"), "").unwrap();
    for (line, expected) in [
        (
            "kubectl-workspace console de",
            "demo\tvm Running\ndemo2\tcontainer Running\n",
        ),
        (
            "kubectl-workspace ssh ann@rh",
            "ann@rhel9.arm64\tvm Running\n",
        ),
        // names and no files
        ("kubectl-workspace console rh", "rhel9.arm64\tvm Running\n"),
    ] {
        assert_eq!(fish(&place, line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn each_shell_has_a_script() {
    let place = place().await;
    for (shell, word) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef"),
        ("fish", "complete -c"),
    ] {
        let ran = place.run(&["completion", shell]).await.well();
        assert!(
            ran.out.contains(word) && ran.out.contains("__complete"),
            "{ran:?}"
        );
    }
}
