//! The driver of the gateway: one blocking thread a connection, so that its own cost is a write and a read a call.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::process::{Call, Load, Run};

/// Runs the plan and tells its figures.
pub(crate) fn run(load: &Load) {
    let mut connections = Vec::new();
    for number in 0..load.plan.connections {
        connections.push(Connection::open(load, number).expect("the gateway listens"));
    }
    let run = Run::begin(load.plan);
    let speaker = run.announce();
    std::thread::scope(|scope| {
        for (number, connection) in connections.into_iter().enumerate() {
            let run = Arc::clone(&run);
            scope.spawn(move || drive(number, connection, &run));
        }
    });
    speaker.join().expect("it only speaks");
    run.finish();
}

fn drive(number: usize, mut connection: Connection, run: &Run) {
    let mut calls = Vec::with_capacity(1 << 16);
    let mut free = Instant::now();
    for call in 0.. {
        let Some(due) = run.due(number, call) else { break };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // Waking up late is this thread's fault; starting late behind a slow call is the gateway's.
        let began = if free > due { due } else { Instant::now() };
        let good = connection.call().unwrap_or(false);
        free = Instant::now();
        calls.push(Call { began, took: free - began, good });
        if !good {
            break;
        }
    }
    run.take(&calls);
}

/// Stands in a request where each call has a step of its own: process, connection, call.
pub(crate) const STEP: &str = "processxconxcallcall";

/// One kept connection to the gateway.
pub(crate) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// Where in the request its step stands.
    step: usize,
    calls: u32,
    answer: Vec<u8>,
}

impl Connection {
    /// Each connection has a number of its own, and each driver a process: no two calls are the same step.
    pub(crate) fn open(load: &Load, number: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(load.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut request = load.request.clone().into_bytes();
        let begin = find(&request, STEP.as_bytes()).expect("the request has a step");
        let own = format!("{:08x}{number:04x}", std::process::id());
        request[begin..begin + own.len()].copy_from_slice(own.as_bytes());
        let step = begin + own.len();
        Ok(Self { stream, request, step, calls: 0, answer: Vec::with_capacity(8192) })
    }

    /// One call; whether it succeeded.
    pub(crate) fn call(&mut self) -> io::Result<bool> {
        self.calls += 1;
        let mut left = self.calls;
        for digit in self.request[self.step..self.step + 8].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(left & 15) as usize];
            left >>= 4;
        }
        self.stream.write_all(&self.request)?;
        self.answer.clear();
        let mut chunk = [0; 8192];
        loop {
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.answer.extend_from_slice(&chunk[..read]);
            let Some(head) = find(&self.answer, b"\r\n\r\n") else { continue };
            if self.answer.len() >= head + 4 + content_length(&self.answer[..head]) {
                return Ok(find(&self.answer, b"\"status\":\"succeeded\"").is_some());
            }
        }
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length: ";
    let at = find(head, NAME).expect("the gateway says how long its answer is") + NAME.len();
    let digits = head[at..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}
