//! What kind of document user data is, by its first line, as cloud-init tells them apart
//! (`cloudinit/user_data.py`, `handlers/__init__.py`). Entry point: [`UserData::of`].

/// A user-data document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserData<'a> {
    /// Nothing at all.
    Empty,
    /// `#cloud-config`, with its text.
    CloudConfig(&'a str),
    /// A script for the first boot, with its text.
    Script(&'a str),
    /// Something that this guest does not do, with the words that say so.
    Unsupported(&'static str),
}

impl<'a> UserData<'a> {
    /// What `text` is.
    pub fn of(text: &'a str) -> Self {
        let first = text.lines().next().unwrap_or_default().trim_end();
        let lower = first.to_ascii_lowercase();
        if text.trim().is_empty() {
            Self::Empty
        } else if first == "#cloud-config" {
            Self::CloudConfig(text)
        } else if first.starts_with("#!") {
            Self::Script(text)
        } else if lower.starts_with("content-type:")
            || lower.starts_with("mime-version:")
            || lower.starts_with("from ")
        {
            Self::Unsupported(
                "MIME multi-part user data is not supported by this guest: give one #cloud-config document",
            )
        } else if first.starts_with("## template:") {
            Self::Unsupported(
                "jinja templates are not supported by this guest: give #cloud-config itself",
            )
        } else if first.starts_with("#include") {
            Self::Unsupported("#include is not supported by this guest: it fetches nothing")
        } else {
            Self::Unsupported("user data does not start with #cloud-config or #!, and is ignored")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_it_is() {
        let supported = [
            ("", UserData::Empty),
            ("\n \n", UserData::Empty),
            (
                "#cloud-config\n{}",
                UserData::CloudConfig("#cloud-config\n{}"),
            ),
            (
                "#cloud-config  \r\n{}",
                UserData::CloudConfig("#cloud-config  \r\n{}"),
            ),
            ("#!/bin/sh\ntrue", UserData::Script("#!/bin/sh\ntrue")),
        ];
        for (text, expected) in supported {
            assert_eq!(UserData::of(text), expected, "{text:?}");
        }
        let unsupported = [
            ("Content-Type: multipart/mixed; boundary=x\n", "MIME"),
            ("MIME-Version: 1.0\n", "MIME"),
            ("## template: jinja\n#cloud-config\n", "jinja"),
            ("#include\nhttp://x\n", "#include"),
            ("#cloud-config-archive\n", "#cloud-config"),
            ("users: []\n", "#cloud-config"),
        ];
        for (text, word) in unsupported {
            assert!(
                matches!(UserData::of(text), UserData::Unsupported(why) if why.contains(word)),
                "{text:?}"
            );
        }
    }
}
