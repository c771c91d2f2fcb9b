//! What stands below each command's `--help`: what is not obvious, exit codes, examples.

pub(super) const MAIN: &str = "\
Workspaces are named NAME, NAME/NAMESPACE, or NAME with -n NAMESPACE. Dots never split a name.";

pub(super) const LIST: &str = "\
Exit codes: 0 listed, 1 not.

Examples:
  kubectl workspace list
  kubectl workspace list -A -o wide
  kubectl workspace list -n team-a -l app=web -o name";

pub(super) const CONSOLE: &str = "\
The session ends with Ctrl-]. Everything else, Ctrl-C too, goes to the workspace. In a pipe,
standard output has the workspace's bytes only. There a shell in a container has no terminal, as
with kubectl exec -i: it reads its commands to their end, and its errors come on standard error.
A serial line has no end of input: the reading stays open. It has no size either: at a shell's
prompt, --stty types this terminal's for you.

A workspace that is starting is waited for, as is a guest that does not answer yet. When the
server shuts down, the command to come back is printed.

Exit codes: 0 the session ended in the ordinary way, 1 it did not or never began, 128 + N ended by
signal N; for a container the exit code of its shell.

Examples:
  kubectl workspace console demo
  kubectl workspace console demo -n team-a --timeout 10m
  kubectl workspace console demo --takeover
  kubectl workspace console demo --stty
  kubectl workspace console demo | grep -m1 login
  kubectl workspace console box < script.sh > output";

pub(super) const VNC: &str = "\
Starts the first of these that is on PATH: remote-viewer, vncviewer, xtigervncviewer, gvncviewer,
vinagre, krdc, remmina. A program given by --viewer that is none of them is called with
HOST::PORT. The session ends when the viewer is closed.

Exit codes: 0 the viewer was closed, or the picture is written; 1 not; 128 + N ended by signal N.

Examples:
  kubectl workspace vnc demo
  kubectl workspace vnc demo --viewer /opt/tigervnc/bin/vncviewer
  kubectl workspace vnc demo --proxy-only --port 5901
  kubectl workspace vnc demo --screenshot demo.png
  kubectl workspace vnc demo/team-a --takeover";

pub(super) const SSH: &str = "\
Runs OpenSSH's ssh (8.5 or later) over the Kubernetes API. The guest's host key is the one that
the server has pinned; ~/.ssh/known_hosts is neither read nor changed. -L -R -D -A -t -T -N -i -o
-v are ssh's own. -p reaches another port of the guest than 22. With -J the guest's address is
reached over a host of yours instead of the API; the pinned host key is checked there too.

For rsync, git and ansible: see ssh-config, or
  rsync -a -e 'kubectl workspace ssh -n team-a' dir demo:/tmp/
As a ProxyCommand: kubectl workspace ssh --stdio -n team-a demo %p

Exit codes: that of the remote command; 255 when the connection failed. With --stdio: 0 when the
connection was closed in order, 255 else.

Examples:
  kubectl workspace ssh demo
  kubectl workspace ssh root@demo -n team-a -- uname -a
  kubectl workspace ssh demo -L 8080:localhost:80 -N
  kubectl workspace ssh demo -A -i ~/.ssh/id_ed25519
  kubectl workspace ssh demo --accept-new-host-key";

pub(super) const SSH_CONFIG: &str = "\
Prints a stanza that makes plain ssh, scp, sftp, rsync, git and editors reach the workspace as
NAME.NAMESPACE.ws. It has this program's path and this kubeconfig and context in it. Needs OpenSSH
8.5 or later.

Exit codes: 0 printed, 1 not.

Examples:
  kubectl workspace ssh-config demo -n team-a >> ~/.ssh/config
  ssh demo.team-a.ws
  rsync -a dir demo.team-a.ws:/tmp/";

pub(super) const KNOWN_HOSTS: &str = "\
The lines are for ssh's KnownHostsCommand; ssh-config has it in its stanza. The name in them
is that of the stanza's HostKeyAlias: workspace, namespace and a hash of the cluster.

Exit codes: 0 printed, 1 there is no pinned key.

Examples:
  kubectl workspace known-hosts demo -n team-a";

pub(super) const CP: &str = "\
Runs OpenSSH's scp as ssh does it (kubectl workspace ssh --help). One side is a workspace:
[USER@]NAME[/NAMESPACE]:PATH. A local name with a colon in it is written ./NAME. A transfer that
is cut exits with an error and leaves a short file.

Exit codes: 0 all is copied, 1 not, 255 when there was no connection.

Examples:
  kubectl workspace cp file demo:/tmp/
  kubectl workspace cp -r demo/team-a:/var/log logs
  kubectl workspace cp a b root@demo:/srv/
  kubectl workspace cp -O file demo:/tmp/";

pub(super) const PORT_FORWARD: &str = "\
Listens on 127.0.0.1 and ::1 until Ctrl-C. PORT is a number or the name of a port of the
workspace. TCP only. A connection that fails is reported and ends alone. Where the end of one direction
cannot be told from the end of both, a connection ends when this side has sent all, and that is
said once.

With --stdio one connection is carried between standard input and output, for ProxyCommand:
standard output has the guest's bytes only.

Exit codes: 0 ended by Ctrl-C, or with --stdio the connection was closed in order; 1 not; 128 + N
ended by signal N.

Examples:
  kubectl workspace port-forward demo 8080:80
  kubectl workspace port-forward demo -n team-a 8080:http :5432 22022:22
  kubectl workspace port-forward demo --address 0.0.0.0 8080
  ssh -o ProxyCommand='kubectl workspace port-forward --stdio -n team-a demo %p' guest@demo";

pub(super) const START: &str = "\
Exit codes: 0 done, or running already; 1 not; with --console those of console.

Examples:
  kubectl workspace start demo
  kubectl workspace start demo -n team-a --wait
  kubectl workspace start demo --console
  kubectl workspace start demo --dry-run";

pub(super) const STOP: &str = "\
Exit codes: 0 done, or stopped already; 1 not.

Examples:
  kubectl workspace stop demo
  kubectl workspace stop demo/team-a --wait --timeout 2m";

pub(super) const REBOOT: &str = "\
Exit codes: 0 done, 1 not.

Examples:
  kubectl workspace reboot demo
  kubectl workspace reboot demo --wait
  kubectl workspace reboot demo --force";

pub(super) const RESET: &str = "\
Exit codes: 0 done, 1 not.

Examples:
  kubectl workspace reset demo --dry-run
  kubectl workspace reset demo --wait";

pub(super) const USER_DATA: &str = "\
It may have passwords in it: who may read it is a right of its own (get on workspaces/userdata).

Exit codes: 0 printed, 1 not.

Examples:
  kubectl workspace userdata demo
  kubectl workspace userdata demo -n team-a > user-data";

pub(super) const SESSIONS: &str = "\
Exit codes: 0 listed, 1 not.

Examples:
  kubectl workspace sessions
  kubectl workspace sessions demo -o wide
  kubectl workspace sessions kill demo.console";

pub(super) const KILL: &str = "\
The holder is told that an administrator ended the session. Needs delete on workspacesessions.

Exit codes: 0 they have ended, 1 not.

Examples:
  kubectl workspace sessions kill demo.console -n team-a
  kubectl workspace sessions kill --workspace demo";

pub(super) const COMPLETION: &str = "\
Completes commands, flags, and the names of workspaces, sessions, namespaces and contexts. kubectl
itself completes `kubectl workspace` through kubectl_complete-workspace, which must be on PATH: a
link to this program.

Exit codes: 0 printed, 1 not.

Examples:
  source <(kubectl-workspace completion bash)
  kubectl-workspace completion zsh > ~/.zfunc/_kubectl-workspace
  kubectl-workspace completion fish | source
  ln -s kubectl-workspace ~/.local/bin/kubectl_complete-workspace";
