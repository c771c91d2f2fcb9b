//! Writes what is generated under `deploy/base/generated`, or checks that it is current.
//!
//! `just gen` writes, `just verify` checks.

use std::{path::Path, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use kubeworkspaces_tests::manifests;

/// Write the generated manifests, or check that they are current
#[derive(Parser)]
struct Cli {
    /// Change nothing; exit 1 when a file is not what the code makes
    #[arg(long)]
    check: bool,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base/generated");
    let mut stale = 0;
    for (name, text) in manifests::all()? {
        let path = root.join(name);
        let current = std::fs::read_to_string(&path).unwrap_or_default();
        if current == text {
            continue;
        }
        if cli.check {
            println!(
                "{} is not what the code makes: run `just gen`",
                path.display()
            );
            stale += 1;
        } else {
            std::fs::create_dir_all(&root)?;
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            println!("wrote {}", path.display());
        }
    }
    Ok(if stale == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
