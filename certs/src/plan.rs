//! What a stored set of certificates needs now.
//!
//! A new authority is trusted before it signs: it is added to the bundle first, and takes over only
//! after [`Policy::overlap`], when every kube-apiserver has seen the new `caBundle`. The old one
//! stays in the bundle until it expires.

use jiff::{SignedDuration, Timestamp};

use crate::{
    identity::Identity,
    issue::{Authority, IssueError, PemPair},
};

/// Lifetimes and names.
#[derive(Clone, Debug)]
pub struct Policy {
    /// DNS names of the serving certificate; the first is `<service>.<namespace>.svc`.
    pub names: Vec<String>,
    /// Life of the authority.
    pub authority_valid: SignedDuration,
    /// Life of a serving certificate.
    pub serving_valid: SignedDuration,
    /// How long a new authority is trusted before it signs.
    pub overlap: SignedDuration,
}

/// What the Secret holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The authority that signs.
    pub authority: Option<PemPair>,
    /// The authority that will sign next.
    pub next: Option<PemPair>,
    /// Certificates of authorities that signed before.
    pub previous: Vec<String>,
    /// The serving certificate.
    pub serving: Option<PemPair>,
}

impl Stored {
    /// Every authority that clients should trust, in PEM: what goes into `caBundle`.
    pub fn bundle(&self) -> String {
        let current = self
            .authority
            .iter()
            .chain(&self.next)
            .map(|pair| &pair.certificate);
        current
            .chain(&self.previous)
            .fold(String::new(), |mut bundle, pem| {
                bundle.push_str(pem);
                if !pem.ends_with('\n') {
                    bundle.push('\n');
                }
                bundle
            })
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing until then.
    Keep(Timestamp),
    /// Store this instead.
    Replace(Box<Stored>),
}

/// Decides. Anything unreadable in the Secret is replaced.
///
/// # Errors
/// When a certificate cannot be made.
pub fn plan(stored: &Stored, policy: &Policy, now: Timestamp) -> Result<Plan, IssueError> {
    let Some((authority, ca)) = usable(stored.authority.as_ref(), now) else {
        return replace_all(policy, now);
    };
    if let Some(next) = &stored.next {
        match Identity::from_pem(&next.certificate) {
            Ok(identity) if now >= add(identity.not_before, policy.overlap) => {
                return promote(stored, next, policy, now);
            }
            Ok(_) => {}
            Err(_) => {
                return Ok(Plan::Replace(Box::new(Stored {
                    next: None,
                    ..stored.clone()
                })));
            }
        }
    } else if now >= ca.renew_at() {
        let next = Authority::generate(AUTHORITY_NAME, now, policy.authority_valid)?;
        return Ok(Plan::Replace(Box::new(Stored {
            next: Some(next),
            ..stored.clone()
        })));
    }
    let Some(serving) = good_serving(stored, &ca, policy, now) else {
        let serving =
            Authority::load(authority)?.issue_serving(&policy.names, now, policy.serving_valid)?;
        let previous = unexpired(&stored.previous, now);
        return Ok(Plan::Replace(Box::new(Stored {
            serving: Some(serving),
            previous,
            ..stored.clone()
        })));
    };
    Ok(Plan::Keep(next_look(stored, &ca, &serving, policy)))
}

const AUTHORITY_NAME: &str = "workspaces-apiserver-ca";

fn usable(pair: Option<&PemPair>, now: Timestamp) -> Option<(&PemPair, Identity)> {
    let pair = pair?;
    Authority::load(pair).ok()?;
    let identity = Identity::from_pem(&pair.certificate).ok()?;
    (now < identity.not_after).then_some((pair, identity))
}

fn replace_all(policy: &Policy, now: Timestamp) -> Result<Plan, IssueError> {
    let authority = Authority::generate(AUTHORITY_NAME, now, policy.authority_valid)?;
    let serving =
        Authority::load(&authority)?.issue_serving(&policy.names, now, policy.serving_valid)?;
    Ok(Plan::Replace(Box::new(Stored {
        authority: Some(authority),
        serving: Some(serving),
        ..Stored::default()
    })))
}

fn promote(
    stored: &Stored,
    next: &PemPair,
    policy: &Policy,
    now: Timestamp,
) -> Result<Plan, IssueError> {
    let serving = Authority::load(next)?.issue_serving(&policy.names, now, policy.serving_valid)?;
    let mut previous = unexpired(&stored.previous, now);
    previous.extend(stored.authority.iter().map(|pair| pair.certificate.clone()));
    Ok(Plan::Replace(Box::new(Stored {
        authority: Some(next.clone()),
        next: None,
        previous,
        serving: Some(serving),
    })))
}

fn unexpired(certificates: &[String], now: Timestamp) -> Vec<String> {
    let fresh =
        |pem: &&String| Identity::from_pem(pem).is_ok_and(|identity| now < identity.not_after);
    certificates.iter().filter(fresh).cloned().collect()
}

fn good_serving(
    stored: &Stored,
    ca: &Identity,
    policy: &Policy,
    now: Timestamp,
) -> Option<Identity> {
    let identity = Identity::from_pem(&stored.serving.as_ref()?.certificate).ok()?;
    let right = identity.issuer == ca.subject
        && policy
            .names
            .iter()
            .all(|name| identity.dns_names.contains(name));
    (right && now < identity.renew_at()).then_some(identity)
}

fn next_look(stored: &Stored, ca: &Identity, serving: &Identity, policy: &Policy) -> Timestamp {
    let authority = match stored
        .next
        .as_ref()
        .map(|next| Identity::from_pem(&next.certificate))
    {
        Some(Ok(next)) => add(next.not_before, policy.overlap),
        _ => ca.renew_at(),
    };
    serving.renew_at().min(authority)
}

fn add(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy {
            names: vec!["svc.ns.svc".into(), "svc".into()],
            authority_valid: SignedDuration::from_hours(3000),
            serving_valid: SignedDuration::from_hours(300),
            overlap: SignedDuration::from_hours(1),
        }
    }

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hours * 3600).unwrap()
    }

    fn replaced(stored: &Stored, hours: i64) -> Stored {
        match plan(stored, &policy(), at(hours)).unwrap() {
            Plan::Replace(stored) => *stored,
            Plan::Keep(until) => panic!("kept until {until}"),
        }
    }

    fn kept(stored: &Stored, hours: i64) -> bool {
        matches!(plan(stored, &policy(), at(hours)).unwrap(), Plan::Keep(_))
    }

    #[test]
    fn an_empty_store_gets_an_authority_and_a_certificate_then_rests() {
        let first = replaced(&Stored::default(), 0);
        assert!(kept(&first, 0) && kept(&first, 199));
        let serving = Identity::from_pem(&first.serving.as_ref().unwrap().certificate).unwrap();
        assert_eq!(serving.dns_names, policy().names);
    }

    #[test]
    fn the_serving_certificate_is_renewed_after_two_thirds_under_the_same_authority() {
        let first = replaced(&Stored::default(), 0);
        let second = replaced(&first, 201);
        assert_eq!(second.authority, first.authority);
        assert_ne!(second.serving, first.serving);
    }

    #[test]
    fn other_names_or_rubbish_are_replaced() {
        let first = replaced(&Stored::default(), 0);
        let mut other = policy();
        other.names.push("new.ns.svc".into());
        assert!(matches!(
            plan(&first, &other, at(1)).unwrap(),
            Plan::Replace(_)
        ));
        let rubbish = PemPair {
            certificate: "x".into(),
            key: "y".into(),
        };
        let broken = Stored {
            serving: Some(rubbish.clone()),
            ..first.clone()
        };
        assert_eq!(replaced(&broken, 1).authority, first.authority);
        let broken = Stored {
            authority: Some(rubbish),
            ..first
        };
        assert!(kept(&replaced(&broken, 1), 1));
    }

    #[test]
    fn a_new_authority_is_trusted_before_it_signs_and_the_old_one_afterwards() {
        let mut store = replaced(&Stored::default(), 0);
        store = replaced(&store, 201); // fresh serving certificate is needed on the way
        let both = replaced(&store, 2001);
        assert_eq!(both.authority, store.authority);
        assert_eq!(both.bundle().matches("BEGIN").count(), 2);
        let promoted = replaced(&replaced(&both, 2001), 2003);
        assert_eq!(promoted.authority, both.next);
        assert_eq!(
            promoted.bundle().matches("BEGIN").count(),
            2,
            "the old one is still trusted"
        );
        let serving = Identity::from_pem(&promoted.serving.as_ref().unwrap().certificate).unwrap();
        let ca = Identity::from_pem(&promoted.authority.as_ref().unwrap().certificate).unwrap();
        assert_eq!(serving.issuer, ca.subject);
        let later = replaced(&promoted, 3500);
        assert_eq!(
            later.bundle().matches("BEGIN").count(),
            1,
            "and gone once it has expired"
        );
    }

    #[test]
    fn an_expired_authority_is_replaced_whole() {
        let first = replaced(&Stored::default(), 0);
        assert_ne!(replaced(&first, 3001).authority, first.authority);
    }
}
