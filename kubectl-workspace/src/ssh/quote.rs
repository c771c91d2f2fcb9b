//! Arguments inside of ssh_config: a ProxyCommand is run by the user's shell, a KnownHostsCommand by ssh itself, which
//! has rules of its own (OpenSSH `misc.c`, `argv_split` and `percent_dollar_expand`).
//! Entry points: [`proxy_command`], [`known_hosts_command`].

/// Why an argument cannot stand in ssh_config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QuoteError {
    /// A line ends there.
    #[error("{0:?} has a line break in it, which ssh_config cannot hold: give it another name")]
    LineBreak(String),
    /// ssh reads an environment variable there, whatever stands around it.
    #[error("{0:?} has ${{ in it, which ssh would replace: give it another name")]
    Variable(String),
}

/// A piece of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// An argument as it is.
    Text(String),
    /// A token that ssh replaces, as `%p`.
    Token(&'static str),
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

fn checked(text: &str) -> Result<&str, QuoteError> {
    if text.contains(['\n', '\r', '\0']) {
        return Err(QuoteError::LineBreak(text.to_owned()));
    }
    Ok(text)
}

/// For the user's shell, which may be sh, zsh, fish or csh: single quotes mean the same in all of them. ssh replaces
/// `%` before the shell sees it.
pub(super) fn proxy_command(words: &[Word]) -> Result<String, QuoteError> {
    let quoted = words.iter().map(|word| match word {
        Word::Token(token) => Ok((*token).to_owned()),
        Word::Text(text) => Ok(shell(checked(text)?).replace('%', "%%")),
    });
    Ok(quoted.collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("'");
    for c in text.chars() {
        match c {
            '\'' => quoted.push_str(r"'\''"),
            // fish reads a backslash in single quotes, csh an exclamation mark
            '\\' => quoted.push_str(r"'\\'"),
            '!' => quoted.push_str(r"'\!'"),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// For ssh itself. The first word is the program, in which ssh replaces nothing.
pub(super) fn known_hosts_command(words: &[Word]) -> Result<String, QuoteError> {
    let quoted = words.iter().enumerate().map(|(index, word)| match word {
        Word::Token(token) => Ok((*token).to_owned()),
        Word::Text(text) => {
            let text = split(checked(text)?);
            if index == 0 {
                return Ok(text);
            }
            if text.contains("${") {
                return Err(QuoteError::Variable(text));
            }
            Ok(text.replace('%', "%%"))
        }
    });
    Ok(quoted.collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn split(text: &str) -> String {
    let special = |c: char| c.is_ascii_whitespace() || "'\"\\".contains(c);
    if !text.is_empty() && !text.contains(special) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const AWKWARD: [&str; 12] = [
        "plain",
        "",
        "a b",
        "it's",
        "\"quoted\"",
        r"back\slash",
        r"end\",
        "100%",
        "%p",
        "$HOME `id` $(id)",
        "~ * ? ; & | < > ( ) # !x",
        "ünïcode",
    ];

    #[test]
    fn a_shell_reads_back_every_argument() {
        for text in AWKWARD {
            let command = proxy_command(&["printf".into(), "[%s]".into(), text.into()]).unwrap();
            // what ssh does before it calls the shell
            let expanded = command.replace("%%", "%");
            let output = Command::new("sh").args(["-c", &expanded]).output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                format!("[{text}]"),
                "{command}"
            );
        }
    }

    /// `argv_split`, as far as it is needed to read back what is written here.
    fn argv_split(line: &str) -> Vec<String> {
        let (mut words, mut chars) = (Vec::new(), line.chars().peekable());
        while chars.peek().is_some() {
            while chars.next_if(|c| *c == ' ').is_some() {}
            let (mut word, mut quote) = (String::new(), None);
            while let Some(c) = chars.next() {
                match c {
                    '\\' if chars
                        .peek()
                        .is_some_and(|n| "'\"\\".contains(*n) || quote.is_none() && *n == ' ') =>
                    {
                        word.extend(chars.next());
                    }
                    ' ' if quote.is_none() => break,
                    '"' | '\'' if quote.is_none() => quote = Some(c),
                    c if quote == Some(c) => quote = None,
                    c => word.push(c),
                }
            }
            words.push(word);
        }
        words
    }

    #[test]
    fn ssh_reads_back_every_argument() {
        for text in AWKWARD {
            let command =
                known_hosts_command(&["/bin/100% sure".into(), text.into(), Word::Token("%H")])
                    .unwrap();
            let words = argv_split(&command);
            assert_eq!(words[0], "/bin/100% sure", "{command}");
            assert_eq!(words[1].replace("%%", "%"), text, "{command}");
            assert_eq!(words[2], "%H", "{command}");
        }
    }

    #[test]
    fn what_cannot_be_quoted_is_refused_in_words() {
        assert!(proxy_command(&["a\nb".into()]).is_err());
        assert!(known_hosts_command(&["x".into(), "a\nProxyCommand evil".into()]).is_err());
        let error = known_hosts_command(&["x".into(), "/home/${USER}".into()]).unwrap_err();
        assert!(error.to_string().contains("${"), "{error}");
        assert!(proxy_command(&["/home/${USER}".into()]).is_ok());
    }
}
