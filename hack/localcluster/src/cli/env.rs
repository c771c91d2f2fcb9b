//! `env`: exports for a shell.

use std::path::Path;

use localcluster::state::State;
use localcluster::steps::existing::Existing;

pub(crate) fn run(state: &State) -> anyhow::Result<()> {
    let kubeconfig = Existing::load(state)?.map_or_else(|| state.kubeconfig(), |e| e.kubeconfig);
    anyhow::ensure!(kubeconfig.is_file(), "nothing is up: run hack/up first");
    print!("{}", exports(state, &kubeconfig));
    Ok(())
}

/// KUBECONFIG, PATH, and where kubectl remembers the cluster: in its state, not in the user's home. A shell takes the
/// first program that it finds, so evaluating this twice does no harm.
fn exports(state: &State, kubeconfig: &Path) -> String {
    let quote = |path: &Path| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"));
    let (bin, kubeconfig) = (quote(&state.bin()), quote(kubeconfig));
    let cache = quote(&state.kubectl_cache());
    format!(
        "export KUBECONFIG={kubeconfig}\nexport KUBECACHEDIR={cache}\nexport PATH={bin}:\"$PATH\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_paths_whatever_is_in_them() {
        let state = State::at("/it's a dir/$HOME");
        let script = format!(
            "{}printf '%s|%s|%s' \"$KUBECONFIG\" \"$KUBECACHEDIR\" \"$PATH\"",
            exports(&state, &state.kubeconfig())
        );
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .env("PATH", "/usr/bin")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            text,
            "/it's a dir/$HOME/kubeconfig|/it's a dir/$HOME/cache|/it's a dir/$HOME/bin:/usr/bin"
        );
    }
}
