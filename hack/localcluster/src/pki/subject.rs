//! Subjects with any number of groups.
//!
//! kube-apiserver reads a client certificate as user (CN) and groups (every O). rcgen keeps one value per attribute
//! type, so the certificate is made with the CN alone, its subject is replaced in the DER, and it is signed again.
//! Source: RFC 5280 §4.1 (structure), X.690 (encoding), `k8s.io/apiserver/pkg/authentication/request/x509`.

use rcgen::{KeyPair, SigningKey};

use super::PkiError;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// 2.5.4.3 and 2.5.4.10, encoded.
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x0a];
/// In TBSCertificate: version, serialNumber, signature, issuer, validity, **subject**.
const SUBJECT_FIELD: usize = 5;

/// Who a certificate speaks for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Subject {
    /// The user, or the name of the program.
    pub user: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl Subject {
    /// A user without groups.
    pub fn user(user: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            groups: Vec::new(),
        }
    }

    /// Adds a group.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// The Name of RFC 5280 in DER: the groups, then the user.
    fn to_der(&self) -> Vec<u8> {
        let groups = self.groups.iter().map(|g| attribute(ORGANIZATION, g));
        let all: Vec<u8> = groups
            .chain([attribute(COMMON_NAME, &self.user)])
            .flatten()
            .collect();
        element(SEQUENCE, &all)
    }

    /// `certificate` (DER) with this subject, signed again by `key`, which must be the issuer's.
    pub(super) fn put_into(&self, certificate: &[u8], key: &KeyPair) -> Result<Vec<u8>, PkiError> {
        let shape = || PkiError::Shape(self.user.clone());
        let (_, outer, _) = split(certificate).ok_or_else(shape)?;
        let [tbs, algorithm, _] = children(outer)
            .ok_or_else(shape)?
            .try_into()
            .map_err(|_| shape())?;
        let (_, tbs, _) = split(tbs).ok_or_else(shape)?;
        let subject = self.to_der();
        let mut fields = children(tbs).ok_or_else(shape)?;
        *fields.get_mut(SUBJECT_FIELD).ok_or_else(shape)? = &subject;
        let tbs = element(SEQUENCE, &fields.concat());
        let signature = key.sign(&tbs).map_err(|source| PkiError::Issue {
            subject: self.user.clone(),
            source,
        })?;
        // The first byte of a BIT STRING counts its unused bits.
        let signature = element(BIT_STRING, &[&[0], signature.as_slice()].concat());
        Ok(element(
            SEQUENCE,
            &[tbs.as_slice(), algorithm, &signature].concat(),
        ))
    }
}

/// A RelativeDistinguishedName of one attribute.
fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    let value = element(UTF8_STRING, value.as_bytes());
    element(SET, &element(SEQUENCE, &[kind, &value].concat()))
}

/// Tag, length, content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7f => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let used = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
            out.push(0x80 | used.len() as u8);
            out.extend_from_slice(used);
        }
    }
    out.extend_from_slice(content);
    out
}

/// The first element of `der`: all of it, its content, and what follows.
fn split(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&first, rest) = der.get(1..)?.split_first()?;
    let (length, header) = match first {
        short @ 0..=0x7f => (usize::from(short), 2),
        long => {
            let count = usize::from(long & 0x7f);
            let bytes = rest.get(..count).filter(|_| count <= 4)?;
            (
                bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b)),
                2 + count,
            )
        }
    };
    let whole = der.get(..header.checked_add(length)?)?;
    Some((whole, &whole[header..], &der[whole.len()..]))
}

/// The elements that `content` consists of.
fn children(mut content: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !content.is_empty() {
        let (whole, _, rest) = split(content)?;
        found.push(whole);
        content = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_length_split_again() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let content = vec![7; length];
            let mut der = element(SEQUENCE, &content);
            let whole = der.clone();
            der.extend_from_slice(b"rest");
            assert_eq!(
                split(&der),
                Some((whole.as_slice(), content.as_slice(), b"rest".as_slice())),
                "{length}"
            );
        }
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let whole = element(SEQUENCE, &[1; 300]);
        for end in [0, 1, 2, 3, whole.len() - 1] {
            assert_eq!(split(&whole[..end]), None, "{end}");
        }
        assert_eq!(
            split(&[0x30, 0x85, 1, 1, 1, 1, 1]),
            None,
            "a length of five bytes"
        );
    }
}
