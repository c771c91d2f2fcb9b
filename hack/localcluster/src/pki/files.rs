//! The directory of certificates.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;

use super::{Authority, Component, Issued, PkiError, Plan, Subject, kubeconfig};

/// The name that kube-apiserver's certificate towards aggregated servers carries.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// Certificates, keys and kubeconfigs on disk.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
    plan: Plan,
    ca: Authority,
}

impl Pki {
    /// What `dir` holds for `plan`, made first if it is missing or was made for another plan.
    pub fn ensure(dir: &Path, plan: &Plan) -> Result<Self, PkiError> {
        if read_plan(dir).ok().as_ref() != Some(plan) {
            make(dir, plan)?;
        }
        Self::open(dir)
    }

    /// What `dir` holds.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        let ca = Authority::open("ca", &read_pair(dir, "ca")?)?;
        Ok(Self {
            dir: dir.to_owned(),
            plan: read_plan(dir)?,
            ca,
        })
    }

    /// A certificate file by name: `ca`, `front-proxy-ca`, `apiserver`, `apiserver-kubelet-client`,
    /// `front-proxy-client`, `kubelet`.
    pub fn cert(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.crt"))
    }

    /// The key of [`Pki::cert`].
    pub fn key(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.key"))
    }

    /// The key that signs tokens of ServiceAccounts.
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.join("service-account.key")
    }

    /// The public half of that.
    pub fn service_account_public_key(&self) -> PathBuf {
        self.dir.join("service-account.pub")
    }

    /// The kubeconfig of a component.
    pub fn kubeconfig(&self, component: Component) -> PathBuf {
        kubeconfig_path(&self.dir, component)
    }

    /// The text of a kubeconfig for anybody.
    pub fn kubeconfig_for(&self, subject: &Subject) -> Result<String, PkiError> {
        let client = self.ca.client(subject)?;
        Ok(kubeconfig(
            &self.plan.server,
            &self.ca.issued().cert,
            &subject.user,
            &client,
        ))
    }

    /// The authority of the cluster.
    pub fn authority(&self) -> &Authority {
        &self.ca
    }
}

fn kubeconfig_path(dir: &Path, component: Component) -> PathBuf {
    dir.join(format!("{}.kubeconfig", component.name()))
}

/// The plan that the files were made for. It is written last, so its presence says that everything else is there.
fn read_plan(dir: &Path) -> Result<Plan, PkiError> {
    let path = dir.join("plan.json");
    let parsed = fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    parsed.map_err(|source| PkiError::Io { path, source })
}

fn make(dir: &Path, plan: &Plan) -> Result<(), PkiError> {
    let fail = |source| PkiError::Io {
        path: dir.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(fail)?;
    match fs::remove_file(dir.join("plan.json")) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let (ca, front) = (
        Authority::generate("kubeworkspaces-ca")?,
        Authority::generate("front-proxy-ca")?,
    );
    write_pair(dir, "ca", &ca.issued())?;
    write_pair(dir, "front-proxy-ca", &front.issued())?;
    write_pair(
        dir,
        FRONT_PROXY_NAME,
        &front.client(&Subject::user(FRONT_PROXY_NAME))?,
    )?;
    write_pair(
        dir,
        "apiserver",
        &ca.server(&Subject::user("kube-apiserver"), &plan.apiserver_names())?,
    )?;
    let to_kubelet = Subject::user("kube-apiserver-kubelet-client").in_group("system:masters");
    write_pair(dir, "apiserver-kubelet-client", &ca.client(&to_kubelet)?)?;
    if let Some(node) = &plan.node {
        let names: Vec<String> = std::iter::once(node.name.clone())
            .chain(node.addresses.iter().map(ToString::to_string))
            .collect();
        write_pair(
            dir,
            "kubelet",
            &ca.server(&Subject::user(&node.name), &names)?,
        )?;
    }
    write_service_account_keys(dir)?;
    for (component, subject) in Component::ALL
        .iter()
        .filter_map(|c| Some((*c, c.subject(plan)?)))
    {
        let text = kubeconfig(
            &plan.server,
            &ca.issued().cert,
            &subject.user,
            &ca.client(&subject)?,
        );
        write(&kubeconfig_path(dir, component), &text)?;
    }
    let plan = serde_json::to_string_pretty(plan).map_err(|e| fail(e.into()))?;
    write(&dir.join("plan.json"), &plan)
}

fn write_service_account_keys(dir: &Path) -> Result<(), PkiError> {
    let issue = |source| PkiError::Issue {
        subject: "ServiceAccounts".to_owned(),
        source,
    };
    let key = KeyPair::generate().map_err(issue)?;
    write(&dir.join("service-account.key"), &key.serialize_pem())?;
    write(&dir.join("service-account.pub"), &key.public_key_pem())
}

fn write_pair(dir: &Path, name: &str, issued: &Issued) -> Result<(), PkiError> {
    write(&dir.join(format!("{name}.crt")), &issued.cert)?;
    write(&dir.join(format!("{name}.key")), &issued.key)
}

fn read_pair(dir: &Path, name: &str) -> Result<Issued, PkiError> {
    let read = |suffix: &str| {
        let path = dir.join(format!("{name}.{suffix}"));
        fs::read_to_string(&path).map_err(|source| PkiError::Io { path, source })
    };
    Ok(Issued {
        cert: read("crt")?,
        key: read("key")?,
    })
}

/// Writes for the owner's eyes only. Certificates are public, but one rule for all leaves no key out.
fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    let open = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    open.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| PkiError::Io {
            path: path.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::NodeNames;
    use super::*;

    fn plan(server: &str) -> Plan {
        let node = NodeNames {
            name: "node".into(),
            addresses: vec!["172.30.99.2".parse().unwrap()],
        };
        Plan {
            server: server.into(),
            server_names: vec![],
            node: Some(node),
        }
    }

    #[test]
    fn files_are_private_kept_for_the_same_plan_and_made_anew_for_another() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("pki");
        let first = Pki::ensure(&dir, &plan("127.0.0.1:1")).unwrap();
        for path in [
            first.key("ca"),
            first.key("kubelet"),
            first.kubeconfig(Component::Kubelet),
            first.service_account_key(),
        ] {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                path.display()
            );
        }
        let cert = fs::read(first.cert("apiserver")).unwrap();
        let same = Pki::ensure(&dir, &plan("127.0.0.1:1")).unwrap();
        assert_eq!(fs::read(same.cert("apiserver")).unwrap(), cert);
        let other = Pki::ensure(&dir, &plan("127.0.0.1:2")).unwrap();
        assert_ne!(fs::read(other.cert("apiserver")).unwrap(), cert);
    }

    #[test]
    fn a_run_that_was_cut_short_is_not_taken_for_complete() {
        let temp = tempfile::tempdir().unwrap();
        let plan = plan("127.0.0.1:1");
        Pki::ensure(temp.path(), &plan).unwrap();
        fs::remove_file(temp.path().join("plan.json")).unwrap();
        assert!(Pki::open(temp.path()).is_err());
        Pki::ensure(temp.path(), &plan).unwrap();
        assert_eq!(Pki::open(temp.path()).unwrap().plan, plan);
    }
}
