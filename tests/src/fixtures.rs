//! Objects and waits that many tests share.

/// A workspace of that name and type.
pub fn workspace(name: &str, kind: &str) -> String {
    format!(
        "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata:\n  name: {name}\nspec:\n  type: {kind}\n  \
         template:\n    spec:\n      containers:\n      - name: main\n        image: example.test/image:1\n        ports:\n        \
         - containerPort: 8080\n"
    )
}

/// Asks again until there is an answer, for a minute at most.
pub async fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        anyhow::ensure!(
            std::time::Instant::now() < end,
            "did not come in a minute: {what}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
