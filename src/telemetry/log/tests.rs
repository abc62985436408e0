//! Log lines: in order, bounded, and never in the way.

use super::*;

use std::sync::mpsc;

/// An output that keeps what it is given, after as many errors as it is told.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<(Vec<u8>, Vec<io::ErrorKind>)>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.lock().unwrap();
        if let Some(kind) = inner.1.pop() {
            return Err(kind.into());
        }
        // Half of it, so that the rest has to follow.
        let taken = bytes.len().div_ceil(2);
        inner.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    fn failing(kinds: &[io::ErrorKind]) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), kinds.to_vec()))))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
    }
}

/// An output whose reader has stopped: a write says that it has begun, and does not end before the test lets it.
struct Stuck {
    begun: mpsc::Sender<()>,
    go: mpsc::Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.begun.send(());
        let _ = self.go.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_arrive_in_order_and_the_last_ones_at_the_end() {
    let output = Output::default();
    let (sink, writer) = LogSink::start(true, output.clone()).unwrap();
    for number in 0..1000 {
        sink.append(format!("{number}\n").as_bytes(), false);
    }
    drop(writer);
    let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(output.text(), expected);
}

#[tokio::test]
async fn drained_returns_once_all_is_written() {
    let output = Output::default();
    let (sink, _writer) = LogSink::start(true, output.clone()).unwrap();
    sink.append(b"a\n", false);
    sink.drained().await;
    assert_eq!(output.text(), "a\n");
}

#[test]
fn a_full_buffer_drops_lines_and_says_so() {
    for (json, said) in [(true, r#""dropped":1"#), (false, "dropped=1")] {
        let output = Output::default();
        let (sink, writer) = LogSink::start(json, output.clone()).unwrap();
        sink.append(&vec![b'x'; BUFFER_LIMIT + 1], true);
        sink.append(b"next\n", true);
        drop(writer);
        assert!(output.text().contains(said), "{}", output.text());
        assert_eq!(output.text().starts_with("next\n{"), json, "{}", output.text());
        assert_eq!(sink.call_lines(), [("written", 1), ("dropped", 1)]);
    }
}

#[test]
fn a_full_pipe_that_does_not_block_is_tried_again() {
    let output = Output::failing(&[io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted]);
    let (sink, writer) = LogSink::start(true, output.clone()).unwrap();
    sink.append(b"a b\n", true);
    drop(writer);
    assert_eq!(output.text(), "a b\n");
    assert_eq!(sink.call_lines(), [("written", 1), ("dropped", 0)]);
}

#[tokio::test]
async fn lines_that_cannot_be_written_are_counted_as_dropped() {
    let output = Output::failing(&[io::ErrorKind::BrokenPipe]);
    let (sink, writer) = LogSink::start(true, output.clone()).unwrap();
    sink.append(b"lost\n", true);
    sink.drained().await;
    assert_eq!(sink.call_lines(), [("written", 0), ("dropped", 1)]);
    sink.append(b"next\n", true);
    drop(writer);
    assert!(output.text().starts_with("next\n{"), "{}", output.text());
    assert!(output.text().contains(r#""dropped":1"#), "{}", output.text());
    assert_eq!(sink.call_lines(), [("written", 1), ("dropped", 1)]);
}

#[test]
fn a_reader_that_has_stopped_does_not_hold_the_end() {
    let (begun, has_begun) = mpsc::channel();
    let (_held, go) = mpsc::channel();
    let (sink, writer) = LogSink::start(true, Stuck { begun, go }).unwrap();
    sink.append(b"a\n", false);
    has_begun.recv().unwrap();
    drop(writer);
    assert!(!sink.lock().ended, "the thread is left behind");
}
