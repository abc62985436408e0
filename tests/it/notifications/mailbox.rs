//! A mail server on loopback that takes every mail and keeps it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::wait::Log;

/// One mail.
#[derive(Debug, Clone, Default)]
pub(super) struct Mail {
    pub(super) from: String,
    pub(super) to: Vec<String>,
    pub(super) text: String,
}

pub(super) struct Mailbox {
    address: SocketAddr,
    mails: Arc<Log<Mail>>,
    accepting: JoinHandle<()>,
}

impl Mailbox {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mails = Arc::new(Log::new());
        let kept = mails.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes early has its mail lost, which its test finds out.
                let _ = serve(stream, &kept).await;
            }
        });
        Self { address, mails, accepting }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn first(&self) -> Mail {
        self.mails.wait("a mail", |mails| mails.first().cloned()).await
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream, mails: &Log<Mail>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 mail.test ESMTP\r\n").await?;
    let mut mail = Mail::default();
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let inside = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
        let address = inside.map(|(address, _)| address.to_owned()).unwrap_or_default();
        let answer = match line.get(..4).unwrap_or_default() {
            "EHLO" => "250-mail.test\r\n250 8BITMIME\r\n",
            "MAIL" => {
                mail.from = address;
                "250 fine\r\n"
            }
            "RCPT" => {
                mail.to.push(address);
                "250 fine\r\n"
            }
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await?;
                loop {
                    line.clear();
                    stream.read_line(&mut line).await?;
                    if line == ".\r\n" || line.is_empty() {
                        break;
                    }
                    mail.text.push_str(&line);
                }
                mails.push(std::mem::take(&mut mail));
                "250 taken\r\n"
            }
            "QUIT" => {
                stream.write_all(b"221 bye\r\n").await?;
                return Ok(());
            }
            _ => "502 not here\r\n",
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}
