//! What a workspace's status says about its sshd: pinned host keys, account, address. Entry points: [`known_hosts`],
//! [`user`], [`address`].

use serde_json::Value;

/// Lines for known_hosts, one for each pinned key. A line that would say more than a key is left out.
pub(super) fn known_hosts(workspace: &Value, alias: &str) -> Vec<String> {
    let keys = workspace["status"]["ssh"]["hostKeys"].as_array();
    keys.into_iter()
        .flatten()
        .filter_map(|key| {
            let algorithm = word(&key["algorithm"], "-@.")?;
            let blob = word(&key["key"], "+/=")?;
            Some(format!("{alias} {algorithm} {blob}"))
        })
        .collect()
}

fn word<'a>(value: &'a Value, more: &str) -> Option<&'a str> {
    let text = value.as_str()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    (!text.is_empty() && text.chars().all(plain)).then_some(text)
}

/// The guest's account, as its catalog entry names it.
pub(super) fn user(workspace: &Value) -> Option<&str> {
    let user = workspace["status"]["image"]["settings"]["defaultUser"].as_str();
    user.filter(|user| !user.is_empty())
}

/// The address on the pod network.
pub(super) fn address(workspace: &Value) -> Option<&str> {
    workspace["status"]["address"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_pinned_key_is_a_line_under_the_alias() {
        let workspace = json!({"status": {"ssh": {"hostKeys": [
            {"algorithm": "ssh-ed25519", "key": "AAAA+/=", "fingerprint": "SHA256:x"},
            {"algorithm": "ecdsa-sha2-nistp256", "key": "BBBB"}]}}});
        let lines = known_hosts(&workspace, "demo.t1.abc");
        assert_eq!(
            lines,
            [
                "demo.t1.abc ssh-ed25519 AAAA+/=",
                "demo.t1.abc ecdsa-sha2-nistp256 BBBB"
            ]
        );
        assert!(known_hosts(&json!({}), "x").is_empty());
    }

    #[test]
    fn a_key_is_one_word_and_nothing_else() {
        for (algorithm, key) in [
            ("ssh-rsa\n* ssh-rsa", "AAAA"),
            ("ssh-rsa", "AAAA\n* ssh-rsa BBBB"),
            ("", "A"),
            ("ssh-rsa", ""),
        ] {
            let workspace =
                json!({"status": {"ssh": {"hostKeys": [{"algorithm": algorithm, "key": key}]}}});
            assert!(
                known_hosts(&workspace, "x").is_empty(),
                "{algorithm:?} {key:?}"
            );
        }
    }

    #[test]
    fn the_account_is_the_catalogs() {
        let workspace = json!({"status": {"image": {"settings": {"defaultUser": "debian"}}, "address": "10.0.0.1"}});
        assert_eq!(
            (user(&workspace), address(&workspace)),
            (Some("debian"), Some("10.0.0.1"))
        );
        let nobody = json!({"status": {"image": {"settings": {"defaultUser": ""}}}});
        assert_eq!((user(&nobody), address(&nobody)), (None, None));
    }
}
