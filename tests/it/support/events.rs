//! A listener of `GET /v1/events`, block by block.

use serde_json::Value;

use crate::support::described::wrong_event;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, Reply};

/// One block of a stream: an event, or a line that only moves the last id on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Block {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: Value,
}

/// An open stream.
pub(crate) struct Listener {
    client: RawClient,
    pending: String,
    pub(crate) head: Reply,
}

impl Listener {
    /// Opens one; `query` is `?session_id=…` or nothing. Everything told from now on comes.
    pub(crate) async fn open(gateway: &Gateway, key: &str, query: &str) -> Self {
        Self::resume(gateway, key, query, None).await.begun().await
    }

    /// The same, by a client with next to no room for what it has not read.
    pub(crate) async fn open_narrow(gateway: &Gateway, key: &str) -> Self {
        let client = RawClient::connect_narrow(gateway.api()).await;
        Self::ask(client, key, "", None).await.begun().await
    }

    async fn begun(self) -> Self {
        let mut listener = self;
        assert_eq!(listener.head.status, 200, "{}", listener.head.head);
        let first = listener.block().await.expect("the beginning");
        assert!(first.id.is_some() && first.event.is_none(), "{first:?}");
        listener
    }

    /// The same with any `Last-Event-ID`, and nothing read yet but the head.
    pub(crate) async fn resume(
        gateway: &Gateway,
        key: &str,
        query: &str,
        after: Option<&str>,
    ) -> Self {
        Self::ask(RawClient::connect(gateway.api()).await, key, query, after).await
    }

    async fn ask(mut client: RawClient, key: &str, query: &str, after: Option<&str>) -> Self {
        let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {key}\r\nAccept: text/event-stream\r\n{after}\r\n"
        );
        client.write(request.as_bytes()).await;
        let head = client.read_head().await;
        Self { client, pending: String::new(), head }
    }

    /// The next block that is more than a comment; `None` at an end in good order.
    pub(crate) async fn block(&mut self) -> Option<Block> {
        loop {
            while let Some((block, rest)) = self.pending.split_once("\n\n") {
                let (block, rest) = (parsed(block), rest.to_owned());
                if let Some(name) = &block.event {
                    assert_eq!(wrong_event(name, &block.data), None, "config/openapi.yaml");
                }
                self.pending = rest;
                if block.id.is_some() || block.event.is_some() {
                    return Some(block);
                }
            }
            let chunk = self.client.read_chunk().await?;
            self.pending.push_str(std::str::from_utf8(&chunk).expect("whole characters"));
        }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Block {
        loop {
            let block = self.block().await.expect("an event before the end");
            if block.event.is_some() {
                return block;
            }
        }
    }

    /// The next events of these calls: type, call, and all fields.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<Block> {
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            events.push(self.event().await);
        }
        events
    }

    /// Gives the connection away as it is.
    pub(crate) fn into_client(self) -> RawClient {
        self.client
    }
}

fn parsed(text: &str) -> Block {
    let mut block = Block { id: None, event: None, data: Value::Null };
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => block.id = Some(id.to_owned()),
            Some(("event", name)) => block.event = Some(name.to_owned()),
            Some(("data", data)) => block.data = serde_json::from_str(data).expect("JSON"),
            Some(("retry", _)) => {}
            _ => assert_eq!(line, ":", "a comment"),
        }
    }
    block
}
