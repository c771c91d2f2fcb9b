//! cloud-init user-data of a machine. It is always stored in a Secret, whatever its size.

use apiservice::v1alpha1::ImageSpec;

use super::problem::Problem;

/// Whether a machine of this entry has user-data.
pub(crate) fn wanted(entry: &ImageSpec) -> bool {
    own(entry).is_some() || login(entry).is_some()
}

/// The user-data: the entry's own verbatim, else one that sets the password of its user, else none.
pub(crate) fn render(entry: &ImageSpec) -> Result<Option<String>, Problem> {
    if let Some(own) = own(entry) {
        return Ok(Some(own.to_owned()));
    }
    let Some((user, password)) = login(entry) else {
        return Ok(None);
    };
    check("defaultUser", user, |c| c == ':')?;
    check("defaultPassword", password, |_| false)?;
    Ok(Some(password_login(user, password)))
}

fn own(entry: &ImageSpec) -> Option<&str> {
    set(entry.default_user_data.as_ref())
}

fn login(entry: &ImageSpec) -> Option<(&str, &str)> {
    let user = set(entry.default_user.as_ref())?;
    let password = set(entry.default_password.as_ref())?;
    (entry.default_cloud_init == Some(true)).then_some((user, password))
}

fn set(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

/// There is no `users:` list in it: one would remove the distribution's own user.
fn password_login(user: &str, password: &str) -> String {
    format!(
        "#cloud-config\nssh_pwauth: true\nchpasswd:\n  expire: false\n  list: |\n    {user}:{password}\n"
    )
}

/// A line break would let the value write user-data of its own; a colon would move the password.
fn check(field: &str, value: &str, more: impl Fn(char) -> bool) -> Result<(), Problem> {
    if !value.contains(|c: char| c.is_control() || is_yaml_break(c) || more(c))
        && !value.starts_with(' ')
    {
        return Ok(());
    }
    Err(Problem::invalid(
        &format!("Image spec.{field}"),
        "it has a character that user-data cannot carry (a line break, a control character, \
         a leading space, or a colon in the user's name); correct the catalog entry",
    ))
}

/// Characters beside control characters that YAML 1.1 takes as the end of a line.
fn is_yaml_break(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn render_of(mut image: Value) -> Result<Option<String>, Problem> {
        image["image"] = json!("r:1");
        image["defaultPort"] = json!(22);
        let entry: ImageSpec = serde_json::from_value(image).unwrap();
        let rendered = render(&entry);
        assert_eq!(wanted(&entry), !matches!(rendered, Ok(None)));
        rendered
    }

    #[test]
    fn the_entrys_own_user_data_wins_verbatim() {
        for own in [
            "#cloud-config\nusers: [{name: ops}]",
            "#!/bin/sh\r\n",
            "## template: jinja\n\tä",
        ] {
            let image = json!({"defaultUserData": own, "defaultCloudInit": true,
                               "defaultUser": "u", "defaultPassword": "p"});
            assert_eq!(render_of(image).unwrap().as_deref(), Some(own));
        }
    }

    #[test]
    fn user_and_password_become_a_password_login() {
        for (user, password) in [
            ("debian", "debian"),
            ("root", "p:w #'\"\\ {}"),
            ("dev", "- x"),
        ] {
            let image =
                json!({"defaultCloudInit": true, "defaultUser": user, "defaultPassword": password});
            let text = render_of(image).unwrap().unwrap();
            assert!(text.starts_with("#cloud-config\n"));
            let parsed: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(parsed["chpasswd"]["list"], format!("{user}:{password}\n"));
            assert_eq!(parsed["chpasswd"]["expire"], false);
            assert_eq!(parsed["ssh_pwauth"], true);
            assert_eq!(parsed.get("users"), None);
        }
    }

    #[test]
    fn anything_missing_means_no_user_data() {
        for image in [
            json!({}),
            json!({"defaultUser": "u", "defaultPassword": "p"}),
            json!({"defaultCloudInit": true, "defaultUser": "u"}),
            json!({"defaultCloudInit": true, "defaultUser": "", "defaultPassword": "p"}),
            json!({"defaultUserData": ""}),
        ] {
            assert_eq!(render_of(image).unwrap(), None);
        }
    }

    #[test]
    fn values_cannot_write_user_data_of_their_own() {
        for (user, password) in [
            ("u", "p\nruncmd: [reboot]"),
            ("u", "p\u{2028}x"),
            ("u\r", "p"),
            ("u:x", "p"),
            (" u", "p"),
        ] {
            let image =
                json!({"defaultCloudInit": true, "defaultUser": user, "defaultPassword": password});
            let problem = render_of(image).unwrap_err();
            assert!(
                !problem.message.contains("reboot"),
                "values are not repeated"
            );
        }
    }
}
