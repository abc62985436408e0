//! What an author of a tool server writes: the check of a signature, from the contract and not from the gateway's code.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::support::upstream::Request;

/// Checks `t=…,v1=…` over `t.body`, and gives the `t`.
#[track_caller]
pub(crate) fn verify(request: &Request, header: &str, secret: &str) -> i64 {
    signed_at(request, header, secret)
        .unwrap_or_else(|| panic!("no right signature in {}", request.head))
}

/// The `t` of a right signature `t=…,v1=…` over `t.body`; `None` where it is wrong.
pub(crate) fn signed_at(request: &Request, header: &str, secret: &str) -> Option<i64> {
    let (t, digest) = request.header(header)?.strip_prefix("t=")?.split_once(",v1=")?;
    let signed = [t.as_bytes(), b".", &request.body].concat();
    (digest == hex(&hmac(secret.as_bytes(), &signed))).then(|| t.parse().expect("seconds"))
}

/// The Idempotency-Key of a call without a `call_index`.
pub(crate) fn idempotency_key(run_id: &str, step: &str) -> String {
    hex(&Sha256::digest(format!("{run_id}\n{step}\n0")))[..32].to_owned()
}

/// Whether a request belongs to this call, as far as it says to which one it does.
pub(crate) fn bearing(request: &Request, call_id: &str, run_id: &str, step: &str) -> bool {
    let is = |header, value: &str| request.header(header).is_none_or(|found| found == value);
    is("X-Tool-Call", call_id)
        && is("webhook-id", call_id)
        && is("Idempotency-Key", &idempotency_key(run_id, step))
}

/// The exact request that a profile owes to a call without agent, session and person, at the time that `request` bears;
/// `first` is the call's first one. The profiles `eager` and `eager-key` are those of the fleet.
#[track_caller]
pub(crate) fn sent(
    profile: &str,
    request: &Request,
    first: &Request,
    secret: &str,
    slot: impl Fn(&str) -> String,
) -> String {
    let arguments = slot("arguments");
    let time = |request: &Request| {
        let value = request.header("CL-Signature").or(request.header("X-Tool-Signature"));
        let t = value.map(|value| value.trim_start_matches("t=").split(',').next().expect("a t"));
        t.or(request.header("webhook-timestamp")).expect("a time").to_owned()
    };
    let signed = |body: &str| {
        let t = time(request);
        assert!(time(first) <= t, "a time that runs on: {}", request.head);
        let digest = hex(&hmac(secret.as_bytes(), format!("{t}.{body}").as_bytes()));
        format!("t={t},v1={digest}")
    };
    let key = || idempotency_key(&slot("run_id"), &slot("step"));
    let (headers, body) = match profile {
        "envelope-v1" => {
            let (tool, call_id) = (slot("tool"), slot("call_id"));
            let found = request.json();
            let sent_at = found["sent_at"].as_str().expect("sent_at");
            let moment: jiff::Timestamp = sent_at.parse().expect("RFC 3339");
            assert_eq!(moment.as_second().to_string(), time(first), "the second of {sent_at}");
            let body = format!(
                r#"{{"tool":"{tool}","call_id":"{call_id}","arguments":{arguments},"agent_id":null,"session_id":null,"turn_id":null,"end_user":null,"test":false,"sent_at":"{sent_at}"}}"#
            );
            let names = format!("X-Tool-Name: {tool}\r\nX-Tool-Call: {call_id}");
            let signature = signed(&body);
            let user_agent = "User-Agent: Agent-Tools/1";
            (format!("{user_agent}\r\n{names}\r\nX-Tool-Signature: {signature}\r\n"), body)
        }
        "bare-v1" => {
            let run = format!("CL-Run-Id: {}\r\nIdempotency-Key: {}\r\n", slot("run_id"), key());
            (format!("CL-Signature: {}\r\n{run}", signed(&arguments)), arguments)
        }
        "standard-webhooks" => {
            let (id, t) = (slot("call_id"), time(request));
            let encoded = secret.strip_prefix("whsec_").expect("the prefix of a key");
            let secret = STANDARD.decode(encoded).expect("base64");
            let digest = STANDARD.encode(hmac(&secret, format!("{id}.{t}.{arguments}").as_bytes()));
            let names = format!("webhook-id: {id}\r\nwebhook-timestamp: {t}");
            (format!("{names}\r\nwebhook-signature: v1,{digest}\r\n"), arguments)
        }
        "plain-v1" | "eager" => (String::new(), arguments),
        "eager-key" => (format!("Idempotency-Key: {}\r\n", key()), arguments),
        other => panic!("the profile {other} is not known here"),
    };
    let (path, authority, length) = (slot("path"), slot("authority"), body.len());
    format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// HMAC-SHA256.
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
