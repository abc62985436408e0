//! The trail in the log and on its way to the store.

use std::io::Write;
use std::sync::PoisonError;

use super::*;
use crate::clock::SystemClock;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The line of one entry.
async fn line(json: bool, entry: impl FnOnce(&Audit) -> AuditEntry) -> String {
    let output = Kept::default();
    let (log, _writer) = LogSink::start(json, output.clone()).expect("a writer");
    let (audit, _worker) =
        Audit::new(log.clone(), Arc::new(Metrics::new(true)), Arc::new(SystemClock));
    let entry = entry(&audit);
    audit.note(AuditEntry { at_ms: 0, ..entry });
    log.drained().await;
    let text = output.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    String::from_utf8(text).expect("UTF-8")
}

fn odd(audit: &Audit) -> AuditEntry {
    AuditEntry {
        subject: Some("a\n\u{1b}b".into()),
        detail: Some(r#"{"result":"applied"}"#.into()),
        ..audit.deed(ADMIN, "reload")
    }
}

#[tokio::test]
async fn an_entry_is_one_line_of_its_own_stream() {
    let expected = concat!(
        r#"{"stream":"audit","ts":"1970-01-01T00:00:00.000Z","organisation":"default","actor":"admin","#,
        r#""action":"reload","subject":"a\n\u001bb","before":null,"after":null,"detail":{"result":"applied"}}"#,
        "\n"
    );
    assert_eq!(line(true, odd).await, expected);
    let expected = "1970-01-01T00:00:00.000Z audit admin reload subject=a\\u000a\\u001bb \
                    detail={\"result\":\"applied\"}\n";
    assert_eq!(line(false, odd).await, expected);
    let no_json = |audit: &Audit| AuditEntry { detail: Some("x".into()), ..audit.deed("a", "b") };
    assert!(line(true, no_json).await.ends_with("\"detail\":null}\n"));
}

#[tokio::test]
async fn what_no_store_takes_is_counted() {
    let (log, _writer) = LogSink::start(true, std::io::sink()).expect("a writer");
    let metrics = Arc::new(Metrics::new(true));
    let (audit, worker) = Audit::new(log, metrics.clone(), Arc::new(SystemClock));
    let dropped = || metrics.audit_entries("dropped", 0);
    for _ in 0..WAITING + 3 {
        audit.note(audit.deed(SYSTEM, "reload"));
    }
    assert_eq!(dropped(), 3);
    drop(worker);
    audit.note(audit.deed(SYSTEM, "reload"));
    assert_eq!(dropped(), 4);
    audit.kept().await;
}
