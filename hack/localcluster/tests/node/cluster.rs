//! The node with a control plane in it, as `hack/up` puts them together.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use localcluster::assets::{Assets, Binary, Places};
use localcluster::controlplane::{self, Config, Controllers, Durability, Ports, ServiceRanges};
use localcluster::node::packages::Packages;
use localcluster::node::{self, Node, Programs};
use localcluster::pki::{Component, NodeNames, Pki, Plan};
use localcluster::proc::{CommandLine, Identity, Ledger};
use localcluster::state::State;

const LIMIT: Duration = Duration::from_secs(180);

/// Why the test cannot run here.
pub(crate) fn skip_reason() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make namespaces".to_owned());
    }
    let places = Places::from_env().map_err(|e| e.to_string());
    places
        .and_then(|p| Assets::find(&Binary::CLUSTER, &p).map_err(|e| e.to_string()))
        .err()
}

/// What runs, to be compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) init: i32,
    programs: Vec<(String, Identity)>,
}

impl Running {
    /// The programs that are other processes than before, sorted.
    pub(crate) fn different(&self, before: &Self) -> Vec<&str> {
        let other = self
            .programs
            .iter()
            .filter(|program| !before.programs.contains(program));
        let mut names: Vec<_> = other.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

pub(crate) struct Cluster {
    state: State,
    places: Places,
    programs: Programs,
}

impl Cluster {
    pub(crate) fn new(dir: &Path) -> Self {
        let state = State::at(dir.join("state"));
        let places = Places::from_env().unwrap();
        let assets = Assets::find(&Binary::CLUSTER, &places).unwrap();
        let unpacked = Packages::in_cache(places.cache().parent().unwrap())
            .node()
            .unwrap();
        let find = |binary| assets.path(binary).map(Path::to_owned);
        let programs =
            Programs::new(env!("CARGO_BIN_EXE_localcluster").into(), unpacked, find).unwrap();
        Self {
            state,
            places,
            programs,
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The name of the machine's end of the link.
    pub(crate) fn link(&self) -> String {
        Node::prepare(&self.state, &self.programs)
            .unwrap()
            .link()
            .name
            .clone()
    }

    /// Answers the next `connections` on the machine's end of the link.
    pub(crate) fn serve_on_link(
        &self,
        answer: &'static str,
        connections: usize,
    ) -> (SocketAddr, JoinHandle<()>) {
        let host = Node::prepare(&self.state, &self.programs)
            .unwrap()
            .link()
            .host;
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            for _ in 0..connections {
                listener
                    .accept()
                    .unwrap()
                    .0
                    .write_all(answer.as_bytes())
                    .unwrap();
            }
        };
        (address, std::thread::spawn(serve))
    }

    /// What a command writes that runs inside the node, or what it complains about. `busybox` is ours.
    pub(crate) fn inside(&self, words: &str) -> Result<String, String> {
        let enter = Node::prepare(&self.state, &self.programs).unwrap().enter();
        let words = words.replace("busybox", &self.programs.busybox.to_string_lossy());
        let done = Command::new(enter.program())
            .args(enter.words())
            .args(words.split(' '))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() {
            Ok(text(&done.stdout))
        } else {
            Err(text(&done.stderr))
        }
    }

    /// Waits until a command inside the node fails.
    pub(crate) fn inside_until_not(&self, words: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        while let Ok(answer) = self.inside(words) {
            assert!(
                Instant::now() < deadline,
                "{words} still succeeds: {answer}"
            );
        }
    }

    /// Starts everything, or finds it running.
    pub(crate) fn up(&self) -> Running {
        self.state.create().unwrap();
        let node = Node::prepare(&self.state, &self.programs).unwrap();
        let config = self.config(&node);
        std::fs::write(&config.audit_policy, controlplane::AUDIT_POLICY).unwrap();
        let ledger = Ledger::in_dir(self.state.run());
        let run = |command: CommandLine| {
            let log = self.state.log(command.name());
            ledger.start(&command.inside(&node.enter()), &log).unwrap()
        };
        run(controlplane::etcd(&config).unwrap());
        run(controlplane::apiserver(&config).unwrap());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let log = self.state.log("kube-apiserver");
        runtime.block_on(async {
            let client = self.client().await;
            controlplane::wait_until_ready(&client, LIMIT, &log.to_string_lossy(), || Ok(()))
                .await
                .unwrap();
        });
        run(controlplane::controller_manager(&config).unwrap());
        run(controlplane::scheduler(&config).unwrap());
        node.start(&config.pki).unwrap();
        runtime.block_on(async {
            node::ready(
                &self.client().await,
                node::NAME,
                LIMIT,
                &self.state.log("kubelet"),
            )
            .await
            .unwrap();
        });
        let programs = ledger
            .all()
            .unwrap()
            .into_iter()
            .map(|record| (record.name, record.process))
            .collect();
        Running {
            init: node.pid(),
            programs,
        }
    }

    fn config(&self, node: &Node<'_>) -> Config {
        let link = node.link();
        let addresses = link.node_addresses().to_vec();
        let plan = Plan {
            server: format!("{}:{}", link.node, Ports::USUAL.apiserver),
            server_names: ServiceRanges::KUBERNETES.map(str::to_owned).to_vec(),
            node: Some(NodeNames {
                name: node::NAME.to_owned(),
                addresses,
            }),
        };
        Config {
            assets: Assets::find(&Binary::CLUSTER, &self.places).unwrap(),
            pki: Pki::ensure(&self.state.pki(), &plan).unwrap(),
            address: link.node.into(),
            private_address: "127.0.0.1".parse().unwrap(),
            ports: Ports::USUAL,
            services: ServiceRanges::default(),
            etcd_data: self.state.node().join("etcd"),
            audit_policy: self.state.config().join("audit-policy.yaml"),
            audit_log: self.state.audit_log(),
            durability: Durability::Volatile,
            controllers: Controllers::All,
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.state
            .pki()
            .join(format!("{}.kubeconfig", Component::Admin.name()))
    }

    /// Ends one program.
    pub(crate) fn stop(&self, program: &str) {
        Ledger::in_dir(self.state.run())
            .stop(program, Duration::from_secs(5))
            .unwrap();
    }

    fn print_logs(&self) {
        for entry in std::fs::read_dir(self.state.logs())
            .into_iter()
            .flatten()
            .flatten()
        {
            eprintln!(
                "--- {}\n{}",
                entry.path().display(),
                localcluster::proc::tail(&entry.path(), 15)
            );
        }
    }

    async fn client(&self) -> kube::Client {
        let file = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .unwrap();
        kube::Client::try_from(config).unwrap()
    }

    pub(crate) fn down(&self) {
        node::down(&self.state).unwrap();
        Ledger::in_dir(self.state.run())
            .stop_all(Duration::from_secs(5))
            .unwrap();
    }

    fn shell(&self, script: &str) -> Command {
        let kubectl = Assets::find(&[Binary::Kubectl], &self.places).unwrap();
        let dir = kubectl
            .path(Binary::Kubectl)
            .unwrap()
            .parent()
            .unwrap()
            .to_owned();
        let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .env("PATH", path)
            .env("KUBECONFIG", self.kubeconfig());
        command.env("KUBECACHEDIR", self.state.root().join("kubectl"));
        command.stdin(Stdio::null());
        command
    }

    fn output(&self, words: &str) -> Output {
        self.shell(&format!("kubectl {words}")).output().unwrap()
    }

    pub(crate) fn kubectl(&self, words: &str) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.output(words);
        assert!(
            status.success(),
            "kubectl {words}: {}",
            String::from_utf8_lossy(&stderr)
        );
        String::from_utf8(stdout).unwrap()
    }

    /// The exit code of a kubectl command.
    pub(crate) fn fails(&self, words: &str) -> i32 {
        self.output(words).status.code().unwrap()
    }

    pub(crate) fn kubectl_until(&self, words: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !self.output(words).status.success() {
            assert!(
                Instant::now() < deadline,
                "kubectl {words} does not succeed"
            );
        }
    }

    pub(crate) fn apply(&self, manifest: &str) {
        let mut child = self
            .shell("kubectl apply -f -")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(manifest.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Runs kubectl on a pseudo terminal.
    pub(crate) fn on_terminal(&self, words: &str) -> String {
        let script = self.state.root().join("terminal.sh");
        std::fs::write(&script, format!("kubectl {words}\n")).unwrap();
        let line = format!(
            "script --quiet --command 'sh {}' /dev/null",
            script.display()
        );
        String::from_utf8_lossy(&self.shell(&line).output().unwrap().stdout).into_owned()
    }

    /// The body that a pod's web server answers with through `kubectl port-forward`.
    pub(crate) fn port_forward(&self, pod: &str, port: u16) -> String {
        let line = format!("exec kubectl port-forward pod/{pod} :{port} --address 127.0.0.1");
        let mut child = self.shell(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut reader, &mut first).unwrap();
        let local = first
            .split([' ', ':'])
            .find_map(|word| word.parse::<u16>().ok())
            .unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        answer.lines().last().unwrap_or("").to_owned()
    }
}

impl Drop for Cluster {
    /// A failed test leaves nothing behind either.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        let down = node::down(&self.state);
        if !std::thread::panicking() {
            down.unwrap();
        }
    }
}
