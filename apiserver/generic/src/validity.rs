//! When a certificate is valid. Pure; the time is an argument.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The moment, in Unix seconds.
pub fn now() -> i64 {
    Timestamp::now().as_second()
}

/// A certificate that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate cannot be read")]
pub struct Unreadable;

/// The time between `notBefore` and `notAfter`, both included (RFC 5280, 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: i64,
    not_after: i64,
}

/// Why a certificate is not valid at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Its time has not come.
    #[error("is not valid before {}", text(*.0))]
    Early(i64),
    /// Its time is over.
    #[error("expired at {}", text(*.0))]
    Expired(i64),
}

fn text(second: i64) -> String {
    Timestamp::from_second(second).map_or_else(|_| "an unknown time".to_owned(), |t| t.to_string())
}

impl Validity {
    /// Of a certificate.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, Unreadable> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| Unreadable)?;
        let validity = parsed.validity();
        Ok(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    }

    /// Whether it is valid at this moment, in Unix seconds.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(self, now: i64) -> Result<(), Invalid> {
        match self {
            Self { not_before, .. } if now < not_before => Err(Invalid::Early(not_before)),
            Self { not_after, .. } if now > not_after => Err(Invalid::Expired(not_after)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_valid() {
        let validity = Validity {
            not_before: 10,
            not_after: 20,
        };
        for (now, expected) in [
            (9, Err(Invalid::Early(10))),
            (10, Ok(())),
            (20, Ok(())),
            (21, Err(Invalid::Expired(20))),
        ] {
            assert_eq!(validity.check(now), expected, "{now}");
        }
        let words = Invalid::Expired(0).to_string();
        assert_eq!(words, "expired at 1970-01-01T00:00:00Z");
    }
}
