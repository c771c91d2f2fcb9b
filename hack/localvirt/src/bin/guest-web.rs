//! `guest-web`: a web server in the guest, for tests. What it does is in [`localvirt::guest::web`].

use std::process::ExitCode;

use localvirt::guest::web::serve;
use tokio::net::TcpListener;

const HELP: &str =
    "guest-web [PORT]: a web server for tests, on all addresses; PORT is 8080 unless given

  /request          what was asked: method, target, headers (JSON)
  /echo             the body that was sent
  /ws               a WebSocket that sends back every message
  /html             a page with an absolute link
  /redirect?to=URL  302
  /cookie, /policy  headers that a proxy has to change
  /status?code=N    an empty answer with this code
  /bytes?n=N        N bytes of a pattern
  /slow?lines=N&ms=M  N lines, each after M ms
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let port = match std::env::args().nth(1).as_deref() {
        None => 8080,
        Some("-h" | "--help") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(text) => match text.parse() {
            Ok(port) => port,
            Err(_) => {
                eprintln!("guest-web: {text:?} is no port\n\n{HELP}");
                return ExitCode::FAILURE;
            }
        },
    };
    match TcpListener::bind(("0.0.0.0", port)).await {
        Ok(listener) => {
            serve(listener).await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("guest-web: cannot listen on port {port}: {error}");
            ExitCode::FAILURE
        }
    }
}
