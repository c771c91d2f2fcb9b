//! A network that is cut after so many bytes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub struct Cut {
    pub address: SocketAddr,
}

impl Cut {
    pub async fn after(target: SocketAddr, limit: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, target, limit));
            }
        });
        Self { address }
    }
}

async fn carry(near: TcpStream, target: SocketAddr, limit: usize) {
    let far = TcpStream::connect(target).await.unwrap();
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let up = async {
        let (mut passed, mut buffer) = (0, vec![0; 16 << 10]);
        while passed < limit {
            match from_near.read(&mut buffer).await {
                Ok(read) if read > 0 => {
                    passed += read;
                    if to_far.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    tokio::select! {
        () = up => {}
        _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
    }
}
