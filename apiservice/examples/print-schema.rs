//! Prints the structural schema of a kind, without PodSpec's inside: `print-schema Workspace`.

use apiserver_generic::Strategy;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kind = std::env::args()
        .nth(1)
        .ok_or("which kind? e.g. Workspace")?;
    let all = apiservice::resources::all();
    let strategy: &dyn Strategy = &**all
        .iter()
        .find(|s| s.resource().kind == kind)
        .ok_or("no such kind")?;
    println!(
        "{}",
        serde_json::to_string_pretty(&strategy.resource().schema)?
    );
    Ok(())
}
