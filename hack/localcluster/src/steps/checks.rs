//! The machine will do. What runs already has shown that, and takes memory that would be missed here.

use async_trait::async_trait;

use super::node::all_run;
use super::{Context, Found, Step};
use crate::assets::Binary;
use crate::checks::{Facts, Finding, Verdict, judge};

pub(super) struct Checks;

#[async_trait]
impl Step for Checks {
    fn name(&self) -> &'static str {
        "checking the machine"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        if all_run(&context.state)? {
            return Ok(Found::Done);
        }
        let places = &context.places;
        let must_build = Binary::CLUSTER.iter().any(|b| places.find(*b).is_none());
        let facts = Facts::gather(places.cache(), &context.top, must_build);
        report(&judge(&facts))?;
        Ok(Found::Done)
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Prints what is not good; an error with everything that will not do.
fn report(findings: &[Finding]) -> anyhow::Result<()> {
    for finding in findings.iter().filter(|f| f.verdict == Verdict::Unsure) {
        eprintln!("{}: {}", finding.what, finding.sentence);
    }
    let bad: Vec<String> = findings
        .iter()
        .filter(|f| f.verdict == Verdict::Bad)
        .map(|f| format!("  {}: {}", f.what, f.sentence))
        .collect();
    anyhow::ensure!(
        bad.is_empty(),
        "this machine will not do:\n{}",
        bad.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_will_not_do_is_named_at_once() {
        let finding = |what, verdict| Finding {
            what,
            verdict,
            sentence: "x".into(),
        };
        let findings = [
            finding("Go", Verdict::Bad),
            finding("disk", Verdict::Good),
            finding("root", Verdict::Bad),
        ];
        let message = report(&findings).unwrap_err().to_string();
        assert_eq!(message, "this machine will not do:\n  Go: x\n  root: x");
        report(&findings[1..2]).unwrap();
    }
}
