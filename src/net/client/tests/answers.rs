//! Answers that are not one message, and odd ones that are.

use super::*;

#[tokio::test]
async fn answers_that_are_not_one_message_are_refused() {
    use ExchangeErrorKind::{Closed, Framing, Head};
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let lines = |count: usize| (0..count).map(|n| format!("X-{n}: v\r\n")).collect::<String>();
    let big = |size: usize| format!("{ok}X: {}\r\nContent-Length: 0\r\n\r\n", "v".repeat(size));
    let table: Vec<(&str, String, ExchangeErrorKind, Option<u16>)> = vec![
        (
            "CL and TE",
            format!(
                "{ok}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            ),
            Framing,
            None,
        ),
        ("two CL", format!("{ok}Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"), Framing, None),
        ("CL +2", format!("{ok}Content-Length: +2\r\n\r\nok"), Framing, None),
        ("CL -1", format!("{ok}Content-Length: -1\r\n\r\nok"), Framing, None),
        ("CL 1e3", format!("{ok}Content-Length: 1e3\r\n\r\nok"), Framing, None),
        ("CL huge", format!("{ok}Content-Length: 99999999999999999999\r\n\r\nok"), Framing, None),
        (
            "TE gzip, chunked",
            format!("{ok}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            Framing,
            None,
        ),
        (
            "TE xchunked",
            format!("{ok}Transfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            Framing,
            None,
        ),
        (
            "TE identity",
            format!("{ok}Transfer-Encoding: chunked, identity\r\n\r\nok"),
            Framing,
            None,
        ),
        (
            "TE twice",
            format!(
                "{ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            Framing,
            None,
        ),
        (
            "1.0 and TE",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            Framing,
            None,
        ),
        (
            "101",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".into(),
            Framing,
            None,
        ),
        ("status 999", "HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n".into(), Framing, None),
        ("status 600", "HTTP/1.1 600 What\r\nContent-Length: 0\r\n\r\n".into(), Framing, None),
        ("status 099", "HTTP/1.1 099 What\r\nContent-Length: 0\r\n\r\n".into(), Head, None),
        ("status 20", "HTTP/1.1 20 What\r\nContent-Length: 0\r\n\r\n".into(), Head, None),
        ("HTTP/2.0", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n".into(), Head, None),
        ("ICY", "ICY 200 OK\r\nContent-Length: 0\r\n\r\n".into(), Head, None),
        ("HTTP/0.9", "<html>hello</html>\r\n".into(), Head, None),
        ("space before colon", format!("{ok}Content-Length : 2\r\n\r\nok"), Head, None),
        ("obs-fold", format!("{ok}X: a\r\n b\r\nContent-Length: 0\r\n\r\n"), Head, None),
        ("NUL", format!("{ok}X: a\0b\r\nContent-Length: 0\r\n\r\n"), Head, None),
        ("65 lines", format!("{ok}{}\r\n", lines(65)), Head, None),
        ("300 KiB line", big(300 * 1024), Head, None),
        ("70 KiB line", big(70 * 1024), Head, None),
        (
            "endless 103",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(20_000),
            Head,
            None,
        ),
        ("bad chunk size", format!("{chunked}ZZ\r\nok\r\n0\r\n\r\n"), Framing, Some(200)),
        ("17 digits", format!("{chunked}11111111111111111\r\nok"), Framing, Some(200)),
        ("0x5", format!("{chunked}0x5\r\nhello\r\n0\r\n\r\n"), Framing, Some(200)),
        ("no CRLF after data", format!("{chunked}2\r\nokX\r\n0\r\n\r\n"), Framing, Some(200)),
        (
            "chunk extensions",
            format!("{chunked}2;{}\r\nok\r\n0\r\n\r\n", "x".repeat(32_768)),
            Framing,
            Some(200),
        ),
        ("trailers", format!("{chunked}2\r\nok\r\n0\r\n{}\r\n", lines(20_000)), Framing, Some(200)),
        ("no last chunk", format!("{chunked}2\r\nok\r\n"), Closed, Some(200)),
        (
            "short body",
            format!("{ok}Content-Length: 100\r\n\r\n{}", "x".repeat(50)),
            Closed,
            Some(200),
        ),
        ("nothing", String::new(), Closed, None),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Le".into(), Closed, None),
    ];
    for (name, answer, kind, status) in table {
        let (result, idle) = answered(answer, true).await;
        assert_refused(name, &result.unwrap_err(), kind, status);
        assert_ne!(idle, Idle::Alive, "{name}");
    }
}

#[tokio::test]
async fn odd_answers_that_are_one_message_are_taken() {
    let table = [
        ("CL 2, 2", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", false, "ok"),
        ("bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", false, "ok"),
        (
            "upper case coding",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            false,
            "ok",
        ),
        ("until the end", "HTTP/1.1 200 OK\r\n\r\nok", true, "ok"),
        ("empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, ""),
        (
            "interim answers",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            false,
            "ok",
        ),
    ];
    for (name, answer, end, body) in table {
        let (status, text, whole, _) = taken(answer, end).await;
        assert_eq!((status, text.as_str(), whole), (200, body, true), "{name}");
    }
}

#[tokio::test]
async fn what_comes_after_an_answer_is_never_an_answer() {
    let second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";
    for (name, first) in [
        ("second answer", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("longer than CL", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more"),
        ("204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok"),
    ] {
        let (_, text, whole, idle) = taken(format!("{first}{second}"), false).await;
        assert!(whole && !text.contains("second"), "{name}");
        assert_eq!(idle, Idle::Poisoned, "{name}");
    }
}
