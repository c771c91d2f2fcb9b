//! Which viewer to start, and how each is told where to connect. Entry points: [`choose`], [`Viewer::arguments`].

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A viewer to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Viewer {
    /// Its file.
    pub(super) program: PathBuf,
    form: Form,
}

/// How a viewer is told where to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `HOST::PORT`, as the family of vncviewer reads it.
    DoubleColon,
    /// `vnc://HOST:PORT`.
    Url,
    /// `-c vnc://HOST:PORT`.
    ConnectUrl,
    /// `HOST:DISPLAY`, the port less 5900.
    Display,
}

/// In the order in which they are tried.
const KNOWN: [(&str, Form); 8] = [
    ("remote-viewer", Form::Url),
    ("vncviewer", Form::DoubleColon),
    ("xtigervncviewer", Form::DoubleColon),
    ("tigervnc", Form::DoubleColon),
    ("gvncviewer", Form::Display),
    ("vinagre", Form::Url),
    ("krdc", Form::Url),
    ("remmina", Form::ConnectUrl),
];
/// macOS has one of its own behind this.
const MACOS: (&str, Form) = ("open", Form::Url);

/// Why no viewer is started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ViewerError {
    /// None is installed.
    #[error(
        "no VNC viewer is on PATH (looked for {0}): install one (Debian: virt-viewer or tigervnc-viewer), name it with --viewer, or use --proxy-only and connect any viewer to the address that it prints"
    )]
    None(String),
    /// The one that was named is not there.
    #[error("the viewer {0:?} is no program that can be run: check the name, or use --proxy-only")]
    Missing(PathBuf),
    /// Nothing to show it on.
    #[error(
        "there is no display here (DISPLAY and WAYLAND_DISPLAY are not set): use --proxy-only and connect a viewer from where you sit"
    )]
    NoDisplay,
}

/// What the choice depends on.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// Finds a program on PATH.
    pub(super) find: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// Whether this is macOS.
    pub(super) macos: bool,
    /// Whether there is a display.
    pub(super) display: bool,
}

/// The viewer that was named, or else the first that is installed.
pub(super) fn choose(
    named: Option<&Path>,
    around: Surroundings<'_>,
) -> Result<Viewer, ViewerError> {
    if let Some(name) = named {
        let program = (around.find)(name).ok_or_else(|| ViewerError::Missing(name.to_owned()))?;
        let form = form_of(name.file_name().unwrap_or_default());
        return Ok(Viewer { program, form });
    }
    if !around.display && !around.macos {
        return Err(ViewerError::NoDisplay);
    }
    let candidates = KNOWN.iter().chain(around.macos.then_some(&MACOS));
    candidates
        .clone()
        .find_map(|(name, form)| {
            let program = (around.find)(Path::new(name))?;
            Some(Viewer {
                program,
                form: *form,
            })
        })
        .ok_or_else(|| {
            let names: Vec<_> = candidates.map(|(name, _)| *name).collect();
            ViewerError::None(names.join(", "))
        })
}

fn form_of(name: &OsStr) -> Form {
    let known = KNOWN
        .iter()
        .chain([&MACOS])
        .find(|(known, _)| name == *known);
    known.map_or(Form::DoubleColon, |(_, form)| *form)
}

impl Viewer {
    /// What it is called with.
    pub(super) fn arguments(&self, address: SocketAddr) -> Vec<OsString> {
        let host = match address.ip() {
            ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        let port = address.port();
        let url = format!("vnc://{host}:{port}");
        match self.form {
            Form::DoubleColon => vec![format!("{host}::{port}").into()],
            Form::Url => vec![url.into()],
            Form::ConnectUrl => vec!["-c".into(), url.into()],
            Form::Display => vec![format!("{host}:{}", i32::from(port) - 5900).into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        named: Option<&str>,
        installed: &[&str],
        display: bool,
        macos: bool,
    ) -> Result<String, ViewerError> {
        let find = |name: &Path| {
            let there = installed.iter().any(|i| Path::new(i) == name);
            there.then(|| Path::new("/bin").join(name))
        };
        let around = Surroundings {
            find: &find,
            macos,
            display,
        };
        let viewer = choose(named.map(Path::new), around)?;
        let arguments = viewer.arguments("127.0.0.1:5901".parse().unwrap());
        let arguments: Vec<_> = arguments.iter().map(|a| a.to_str().unwrap()).collect();
        Ok(format!(
            "{} {}",
            viewer.program.display(),
            arguments.join(" ")
        ))
    }

    #[test]
    fn the_first_installed_viewer_is_called_in_its_own_way() {
        let cases = [
            (
                &["vncviewer", "remote-viewer"][..],
                "/bin/remote-viewer vnc://127.0.0.1:5901",
            ),
            (&["vncviewer", "krdc"], "/bin/vncviewer 127.0.0.1::5901"),
            (&["gvncviewer"], "/bin/gvncviewer 127.0.0.1:1"),
            (&["remmina"], "/bin/remmina -c vnc://127.0.0.1:5901"),
        ];
        for (installed, expected) in cases {
            assert_eq!(
                chosen(None, installed, true, false).as_deref(),
                Ok(expected)
            );
        }
        assert_eq!(
            chosen(None, &["open"], false, true).as_deref(),
            Ok("/bin/open vnc://127.0.0.1:5901")
        );
        assert!(chosen(None, &["open"], true, false).is_err());
    }

    #[test]
    fn a_named_viewer_needs_no_guess() {
        assert_eq!(
            chosen(Some("mine"), &["mine"], false, false).as_deref(),
            Ok("/bin/mine 127.0.0.1::5901")
        );
        assert_eq!(
            chosen(Some("krdc"), &["krdc"], true, false).as_deref(),
            Ok("/bin/krdc vnc://127.0.0.1:5901")
        );
        assert_eq!(
            chosen(Some("mine"), &[], true, false),
            Err(ViewerError::Missing("mine".into()))
        );
    }

    #[test]
    fn p_11_without_a_viewer_or_a_display_it_says_what_to_do() {
        let none = chosen(None, &[], true, false).unwrap_err().to_string();
        for word in ["install", "--viewer", "--proxy-only"] {
            assert!(none.contains(word), "{none}");
        }
        let blind = chosen(None, &["vncviewer"], false, false)
            .unwrap_err()
            .to_string();
        assert!(
            blind.contains("DISPLAY") && blind.contains("--proxy-only"),
            "{blind}"
        );
    }

    #[test]
    fn an_ipv6_address_is_bracketed() {
        let viewer = Viewer {
            program: "/bin/krdc".into(),
            form: Form::Url,
        };
        assert_eq!(
            viewer.arguments("[::1]:5901".parse().unwrap()),
            ["vnc://[::1]:5901"]
        );
        assert_eq!(
            viewer.arguments("0.0.0.0:5901".parse().unwrap()),
            ["vnc://127.0.0.1:5901"]
        );
    }
}
