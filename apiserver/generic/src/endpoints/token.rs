//! Continue tokens: which state a list shows, where it goes on, and what it was narrowed to.
//!
//! They name nothing of one process, so that every replica can go on with them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    filter::Selector,
    storage::{Key, Revision},
};

/// A token, decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    #[serde(rename = "v")]
    version: u8,
    /// The state; 0 goes on with the latest one.
    #[serde(rename = "rv")]
    revision: u64,
    #[serde(rename = "ns")]
    namespace: Option<String>,
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "s")]
    selector: String,
}

/// Why a token is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenFault {
    #[error("it is not one of this server's")]
    Foreign,
    #[error("it belongs to a list with other selectors")]
    OtherSelector,
}

impl Token {
    /// Goes on behind `last`; without a revision at the latest state.
    pub(super) fn after(last: &Key, revision: Option<Revision>, selector: &Selector) -> Self {
        Self {
            version: 1,
            revision: revision.unwrap_or_default().0,
            namespace: last.namespace.clone(),
            name: last.name.clone(),
            selector: fingerprint(selector),
        }
    }

    /// As it is sent.
    pub(super) fn encode(&self) -> String {
        // A struct of strings and numbers always serializes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads what a caller sent.
    pub(super) fn decode(text: &str, selector: &Selector) -> Result<Self, TokenFault> {
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| TokenFault::Foreign)?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| TokenFault::Foreign)?;
        if token.version != 1 {
            return Err(TokenFault::Foreign);
        }
        if token.selector != fingerprint(selector) {
            return Err(TokenFault::OtherSelector);
        }
        Ok(token)
    }

    /// The state; `None` is the latest one.
    pub(super) fn revision(&self) -> Option<Revision> {
        (self.revision > 0).then_some(Revision(self.revision))
    }

    /// The last key of the page before.
    pub(super) fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

fn fingerprint(selector: &Selector) -> String {
    let digest = Sha256::digest(selector.to_string());
    URL_SAFE_NO_PAD.encode(&digest[..9])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::LabelSelector;

    fn selector(text: &str) -> Selector {
        Selector {
            labels: LabelSelector::parse(text).unwrap(),
            ..Selector::default()
        }
    }

    #[test]
    fn a_token_comes_back_for_the_same_selector_only() {
        let key = Key::namespaced("ns", "a");
        let token = Token::after(&key, Some(Revision(7)), &selector("a=b"));
        let back = Token::decode(&token.encode(), &selector("a=b")).unwrap();
        assert_eq!(
            (back.key(), back.revision()),
            (key.clone(), Some(Revision(7)))
        );
        let other = Token::decode(&token.encode(), &selector("a=c"));
        assert_eq!(other, Err(TokenFault::OtherSelector));
        let latest = Token::after(&key, None, &selector(""));
        assert_eq!(latest.revision(), None);
    }

    #[test]
    fn garbage_is_foreign() {
        for text in ["x", "!!", "eyJ2IjoyfQ", ""] {
            assert_eq!(
                Token::decode(text, &selector("")),
                Err(TokenFault::Foreign),
                "{text}"
            );
        }
    }
}
