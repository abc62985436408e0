//! The public vectors, both rotations as simple verifiers see them, and what must never verify.

use proptest::prelude::*;

use super::*;

const A: &str = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";
const B: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
const ORDER: &str = r#"{"scanId":"RX-4471"}"#;
const ENVELOPE: &str = r#"{"tool":"lookup_order","call_id":"call_8f2c","arguments":{"order_number":"A-1042"},"agent_id":"0193b1e2-6c1d-7a4e-9f20-5d8a3c2b1e07","session_id":"0193b2f0","turn_id":"0193b2f1","end_user":{"id":"eu_7GqT2mXcV9pLs4Hd","external_id":"cust-77"},"test":false,"sent_at":"2026-10-30T09:55:02.000Z"}"#;

fn text(text: &str) -> SignedPart {
    SignedPart::Text(text.into())
}

fn entry(before: &str, slot: EntrySlot) -> Entry {
    Entry { before: before.into(), slot: Some(slot), after: String::new() }
}

/// `t=…,v1=<hex>` over `<t>.<body>`.
fn seconds_and_hex() -> SignatureScheme {
    SignatureScheme {
        signed: vec![SignedPart::Time, text("."), SignedPart::Body],
        key: KeyEncoding::Text,
        digest: DigestText::Hex,
        entries: vec![entry("t=", EntrySlot::Time), entry("v1=", EntrySlot::Digest)],
        separator: Some(",".into()),
    }
}

fn standard() -> SignatureScheme {
    SignatureScheme {
        signed: vec![SignedPart::Id, text("."), SignedPart::Time, text("."), SignedPart::Body],
        key: KeyEncoding::Base64,
        digest: DigestText::Base64,
        entries: vec![entry("v1,", EntrySlot::Digest)],
        separator: Some(" ".into()),
    }
}

fn github() -> SignatureScheme {
    SignatureScheme {
        signed: vec![SignedPart::Body],
        key: KeyEncoding::Text,
        digest: DigestText::Hex,
        entries: vec![entry("sha256=", EntrySlot::Digest)],
        separator: None,
    }
}

fn keys(scheme: &SignatureScheme, secrets: &[&str]) -> SigningKeys {
    let secrets: Vec<_> = secrets.iter().map(|&secret| Secret::new(secret)).collect();
    scheme.prepare(&secrets).unwrap()
}

const NO_ID: MessageId<'_> = MessageId("call_none");

#[track_caller]
fn check_hex(key: &str, t: i64, body: &str, digest: &str) {
    let scheme = seconds_and_hex();
    let keys = keys(&scheme, &[key]);
    let value = scheme.header_value(&keys, t, NO_ID, body.as_bytes());
    assert_eq!(value, format!("t={t},v1={digest}"));
    let received = Received { value: &value, timestamp: None, id: None, body: body.as_bytes() };
    assert_eq!(scheme.verify(&keys, &received, t, 0), Ok(()));
    assert!(s3_verifier(key, &value, body.as_bytes(), t));
    assert!(any_v1_verifier(key, &value, body.as_bytes(), t));
}

#[test]
fn v1_body_with_white_space() {
    let digest = "80e1cf680ba535c6339ba8075021c54de5c5e9e6eff7a46095ca3d9bbe9c2131";
    check_hex(A, 1_760_708_872, r#"{ "scanId": "RX-4471" }"#, digest);
}

#[test]
fn v2_compact_body() {
    let digest = "0003f4528fbbf0db485d73ad0bcdf6ffd0e765a914486fc0e4e258dfe0a05f8d";
    check_hex(A, 1_760_708_872, ORDER, digest);
}

#[test]
fn v3_envelope() {
    assert_eq!(ENVELOPE.len(), 292);
    let digest = "b1d30c7312238bf6d2c506ea9c7ac473a1908760f34b766bdc57813cc9a3953b";
    check_hex(A, 1_793_354_102, ENVELOPE, digest);
}

#[test]
fn v4_empty_body() {
    let digest = "b01c6aacb30f87099d4a035dd98b0b8aae34c1659f55a2b9e632b674ae29afaa";
    check_hex(A, 1_793_354_102, "", digest);
}

#[test]
fn v5_utf8_in_key_and_body() {
    let body = "{\"name\":\"Zo\u{eb} \u{2013} \u{1f4e6}\"}\n";
    assert_eq!(body.len(), 25);
    let digest = "ff8db2ce55d625e4b709ed15284b2c63d5d4c3dfb48254f9a80acfffb95ecc5c";
    check_hex("whsec_k\u{e9}y", 1_793_354_102, body, digest);
}

const V6: &str = "f8dd9c2b65b16cf861e98919a399256e31bed41c50b165bc392d54a47ae600e9";

#[test]
fn v6_body_that_begins_like_a_time() {
    check_hex(A, 1, r#"2.{"a":1}"#, V6);
}

#[test]
fn v7_a_time_with_a_dot_is_refused_though_its_digest_is_right() {
    check_refused(&format!("t=1.2,v1={V6}"), r#"{"a":1}"#, VerifyError::BadTime);
}

#[test]
fn v8_other_key() {
    let digest = "d4d6875816cd611d52f5cde661ec2bdcf1a1dcbf76bb4acc30eb1211aad1c5e2";
    check_hex(B, 1_760_708_872, ORDER, digest);
}

#[test]
fn v9_key_longer_than_the_block() {
    let digest = "97ed422faab897db26780264ceb57e5cc60a4e4c3e50aef4fa245c1f2310b30d";
    check_hex(&"k".repeat(100), 1_760_708_872, ORDER, digest);
}

/// HMAC as a tool's server computes it, apart from the code under test.
fn hmac_hex(key: &str, signed: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    signed.iter().for_each(|part| mac.update(part));
    hex(&mac.finalize().into_bytes())
}

/// Reads the header into a map, so that the last `v1` wins, and writes the integer `t` again before it hashes.
fn s3_verifier(secret: &str, header: &str, body: &[u8], now: i64) -> bool {
    let fields: std::collections::HashMap<_, _> =
        header.split(',').filter_map(|part| part.split_once('=')).collect();
    let Some(t) = fields.get("t").and_then(|t| t.parse::<i64>().ok()) else { return false };
    (now - t).abs() <= 300
        && fields.get("v1") == Some(&&*hmac_hex(secret, &[t.to_string().as_bytes(), b".", body]))
}

/// Takes any `v1` that matches.
fn any_v1_verifier(secret: &str, header: &str, body: &[u8], now: i64) -> bool {
    let parts = || header.split(',').filter_map(|part| part.split_once('='));
    let Some(t) = parts().find(|(key, _)| *key == "t").and_then(|(_, t)| t.parse::<i64>().ok())
    else {
        return false;
    };
    let digest = hmac_hex(secret, &[t.to_string().as_bytes(), b".", body]);
    (now - t).abs() <= 300 && parts().any(|part| part == ("v1", &digest))
}

#[track_caller]
fn check_rotation(order: &[&str], s3: (bool, bool), any: (bool, bool)) {
    const T: i64 = 1_760_708_872;
    let scheme = seconds_and_hex();
    let value = scheme.header_value(&keys(&scheme, order), T, NO_ID, ORDER.as_bytes());
    let digests = order.iter().map(|key| {
        format!(",v1={}", hmac_hex(key, &[T.to_string().as_bytes(), b".", ORDER.as_bytes()]))
    });
    assert_eq!(value, format!("t={T}{}", digests.collect::<String>()));
    let run = |verifier: fn(&str, &str, &[u8], i64) -> bool| {
        (verifier(A, &value, ORDER.as_bytes(), T), verifier(B, &value, ORDER.as_bytes(), T))
    };
    assert_eq!(run(s3_verifier), s3, "the last v1 wins");
    assert_eq!(run(any_v1_verifier), any, "any v1");
    let ours = |key| {
        let received =
            Received { value: &value, timestamp: None, id: None, body: ORDER.as_bytes() };
        scheme.verify(&keys(&scheme, &[key]), &received, T, 300).is_ok()
    };
    assert_eq!((ours(A), ours(B)), any, "our own");
}

#[test]
fn rotation_phase_1_old_key_last() {
    check_rotation(&[B, A], (true, false), (true, true));
}

#[test]
fn rotation_phase_2_new_key_last() {
    check_rotation(&[A, B], (false, true), (true, true));
}

#[test]
fn rotation_phase_3_new_key_alone() {
    check_rotation(&[B], (false, true), (false, true));
}

const W1: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const W1_ID: &str = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W";
const W1_BODY: &str = r#"{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}"#;
const W1_VALUE: &str = "v1,w9hHmpilBM+ZH5TWiqTF2V+zZhky2nrY7iwP4o0rZI0=";
const W2: &str = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=";

#[track_caller]
fn check_standard(secrets: &[&str], id: &str, t: i64, body: &str, value: &str) {
    let scheme = standard();
    let keys = keys(&scheme, secrets);
    assert_eq!(
        scheme.header_value(&keys, t, MessageId::parse(id).unwrap(), body.as_bytes()),
        value
    );
    let timestamp = t.to_string();
    let received =
        Received { value, timestamp: Some(&timestamp), id: Some(id), body: body.as_bytes() };
    assert_eq!(scheme.verify(&keys, &received, t + 300, 300), Ok(()));
}

#[test]
fn w1_one_key() {
    check_standard(&[W1], W1_ID, 1_674_087_231, W1_BODY, W1_VALUE);
}

#[test]
fn w2_two_keys() {
    let value = format!("v1,4kZEUtbZ8C8E98FTo3UIsYdIlo7QRHDtR5uOHQ8KQBs= {W1_VALUE}");
    check_standard(&[W2, W1], W1_ID, 1_674_087_231, W1_BODY, &value);
}

#[test]
fn w3_vector_of_the_public_libraries() {
    check_standard(
        &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        r#"{"test": 2432232314}"#,
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    );
}

#[test]
fn w4_and_w5_the_wrong_keys_are_not_used_and_not_taken() {
    let scheme = standard();
    let keys = keys(&scheme, &[W1]);
    let id = MessageId::parse(W1_ID).unwrap();
    for (wrong_key, wrong) in [
        (W1, "v1,8Qgm88iLquMJfIARZJxwL9X1bhRzF1NmxbMIpQbWoLc="),
        (&W1[6..], "v1,V1EPegNYUpR+JyAN6Yv3Q+IFGk2uceueL0e6izn6MXA="),
    ] {
        let as_text = SignatureScheme { key: KeyEncoding::Text, ..standard() };
        let wrong_keys = as_text.prepare(&[Secret::new(wrong_key)]).unwrap();
        assert_eq!(as_text.header_value(&wrong_keys, 1_674_087_231, id, W1_BODY.as_bytes()), wrong);
        assert_ne!(scheme.header_value(&keys, 1_674_087_231, id, W1_BODY.as_bytes()), wrong);
        let received = Received {
            value: wrong,
            timestamp: Some("1674087231"),
            id: Some(W1_ID),
            body: W1_BODY.as_bytes(),
        };
        let verdict = scheme.verify(&keys, &received, 1_674_087_231, 300);
        assert_eq!(verdict, Err(VerifyError::Mismatch));
    }
}

#[track_caller]
fn check_github(key: &str, body: &str, value: &str) {
    let scheme = github();
    let keys = keys(&scheme, &[key]);
    assert_eq!(scheme.header_value(&keys, 1, NO_ID, body.as_bytes()), value);
    let received = Received { value, timestamp: None, id: None, body: body.as_bytes() };
    assert_eq!(scheme.verify(&keys, &received, i64::MAX, 0), Ok(()));
}

#[test]
fn github_vector_of_its_documentation() {
    check_github(
        "It's a Secret to Everybody",
        "Hello, World!",
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    );
}

#[test]
fn github_vector_of_a_call() {
    let value = "sha256=f8b6de76d3b0f9704cb5caa4d36a79db78d5aea085c201d7fc971286d519842f";
    check_github(A, ORDER, value);
}

#[track_caller]
fn check_refused(value: &str, body: &str, why: VerifyError) {
    let scheme = seconds_and_hex();
    let received = Received { value, timestamp: None, id: None, body: body.as_bytes() };
    let verdict = scheme.verify(&keys(&scheme, &[A]), &received, 1, u64::MAX);
    assert_eq!(verdict, Err(why), "{value}");
}

#[test]
fn only_one_plain_decimal_time_is_taken() {
    for t in
        ["", "+1", "-1", "01", "00", " 1", "1 ", "1.0", "1e3", "0x1", "١", "99999999999999999999"]
    {
        check_refused(&format!("t={t},v1={V6}"), r#"2.{"a":1}"#, VerifyError::BadTime);
    }
    check_refused(&format!("t=1,t=1,v1={V6}"), r#"2.{"a":1}"#, VerifyError::BadTime);
    check_refused(&format!("v1={V6}"), r#"2.{"a":1}"#, VerifyError::NoTime);
}

#[test]
fn a_signature_must_be_there_and_written_exactly() {
    let body = r#"2.{"a":1}"#;
    check_refused("", body, VerifyError::NoSignature);
    check_refused("t=1", body, VerifyError::NoSignature);
    check_refused(&format!("t=1,v0={V6}"), body, VerifyError::NoSignature);
    check_refused(&format!("t=1, v1={V6}"), body, VerifyError::NoSignature);
    check_refused(&format!("t=1,v1={}", V6.to_uppercase()), body, VerifyError::NoSignature);
    check_refused(&format!("t=1,v1={}", &V6[..63]), body, VerifyError::NoSignature);
    check_refused(&format!("t=1,v1={}", &V6[..62]), body, VerifyError::Mismatch);
    check_refused(&format!("t=1,v1={V6}"), "", VerifyError::Mismatch);
}

#[test]
fn unknown_parts_and_wrong_signatures_beside_a_right_one_are_ignored() {
    let value = format!("kid=7,t=1,v0=00,v1=zz,v1={},v1={V6},flag", "0".repeat(64));
    let scheme = seconds_and_hex();
    let received = Received { value: &value, timestamp: None, id: None, body: br#"2.{"a":1}"# };
    assert_eq!(scheme.verify(&keys(&scheme, &[A]), &received, 1, 0), Ok(()));
}

#[test]
fn tolerance_holds_on_both_sides() {
    let scheme = seconds_and_hex();
    let keys = keys(&scheme, &[A]);
    let value = scheme.header_value(&keys, 1000, NO_ID, b"{}");
    let received = Received { value: &value, timestamp: None, id: None, body: b"{}" };
    let at = |now| scheme.verify(&keys, &received, now, 300);
    let stale = Err(VerifyError::Stale { off_seconds: 301, tolerance_seconds: 300 });
    assert_eq!((at(700), at(1300)), (Ok(()), Ok(())));
    assert_eq!((at(699), at(1301)), (stale.clone(), stale));
}

#[test]
fn ids_and_times_with_a_dot_are_refused() {
    let scheme = standard();
    let keys = keys(&scheme, &[W1]);
    let verify = |id, timestamp| {
        let received = Received { value: W1_VALUE, timestamp, id, body: W1_BODY.as_bytes() };
        scheme.verify(&keys, &received, 1_674_087_231, 300)
    };
    let bad_id = Err(VerifyError::MessageId(MessageIdError));
    assert_eq!(verify(Some("msg_1.2"), Some("1674087231")), bad_id);
    assert_eq!(verify(Some(""), Some("1674087231")), bad_id);
    assert_eq!(verify(Some(W1_ID), Some("1674087231.1")), Err(VerifyError::BadTime));
    assert_eq!(verify(None, Some("1674087231")), Err(VerifyError::NoMessageId));
    assert_eq!(verify(Some(W1_ID), None), Err(VerifyError::NoTime));
}

#[test]
fn without_a_key_nothing_verifies() {
    let value = format!("t=1,v1={V6}");
    let received = Received { value: &value, timestamp: None, id: None, body: br#"2.{"a":1}"# };
    let verdict = seconds_and_hex().verify(&SigningKeys::default(), &received, 1, 300);
    assert_eq!(verdict, Err(VerifyError::Mismatch));
}

#[track_caller]
fn check_key(scheme: &SignatureScheme, secret: &str, expected: Result<Option<usize>, KeyError>) {
    let accepted = scheme.accept_key(&Secret::new(secret));
    assert_eq!(accepted.map(|warning| warning.map(|warning| warning.bytes)), expected);
}

#[test]
fn text_keys() {
    let scheme = seconds_and_hex();
    check_key(&scheme, A, Ok(None));
    check_key(&scheme, "", Err(KeyError::Empty));
    for edge in [" k", "k ", "k\n", "\r\nk", "\tk", "k\u{a0}", " "] {
        check_key(&scheme, edge, Err(KeyError::EdgeWhiteSpace));
    }
    check_key(&scheme, "inner space is kept as it is", Ok(None));
    check_key(&scheme, &"k".repeat(23), Ok(Some(23)));
    check_key(&scheme, &"k".repeat(24), Ok(None));
    assert_eq!(scheme.accept_key(&Secret::new([0xff, b' '])), Err(KeyError::EdgeWhiteSpace));
}

#[test]
fn base64_keys() {
    let scheme = standard();
    check_key(&scheme, W1, Ok(None));
    check_key(&scheme, &W1[6..], Ok(None));
    check_key(&scheme, "", Err(KeyError::Empty));
    check_key(&scheme, &format!("{W1}\n"), Err(KeyError::EdgeWhiteSpace));
    check_key(&scheme, "whsec_", Err(KeyError::Length { bytes: 0 }));
    for (bytes, fits) in [(23, false), (24, true), (64, true), (65, false)] {
        let expected = if fits { Ok(None) } else { Err(KeyError::Length { bytes }) };
        check_key(&scheme, &format!("whsec_{}", STANDARD.encode(vec![7; bytes])), expected);
    }
    for text in
        ["whsec_?", "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", W2.trim_end_matches('='), "whsec_-_-_"]
    {
        check_key(&scheme, text, Err(KeyError::NotBase64));
    }
}

#[test]
fn a_header_holds_two_keys_where_it_is_a_list_and_else_one() {
    let three = [A, B, A].map(Secret::new);
    let given = |scheme: SignatureScheme, secrets| scheme.prepare(secrets).map(|keys| keys.len());
    assert_eq!(given(seconds_and_hex(), &three[..0]), Ok(0));
    assert_eq!(given(seconds_and_hex(), &three[..2]), Ok(2));
    assert_eq!(given(seconds_and_hex(), &three), Err(KeyError::TooMany { given: 3, most: 2 }));
    assert_eq!(given(github(), &three[..2]), Err(KeyError::TooMany { given: 2, most: 1 }));
}

#[test]
fn debug_output_says_how_many_keys_and_nothing_else() {
    let scheme = seconds_and_hex();
    assert_eq!(format!("{:?}", keys(&scheme, &[A, B])), "SigningKeys(2)");
}

#[test]
fn a_time_before_1970_has_no_sign() {
    let scheme = seconds_and_hex();
    assert!(scheme.header_value(&keys(&scheme, &[A]), -5, NO_ID, b"").starts_with("t=0,v1="));
}

#[derive(Debug, Clone)]
struct Sent {
    key: Vec<u8>,
    t: i64,
    id: String,
    body: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let key = proptest::collection::vec(b'!'..=b'~', 1..80);
    let body = proptest::collection::vec(any::<u8>(), 0..200);
    (key, 0..i64::MAX, "[A-Za-z0-9_-]{1,40}", body).prop_map(|(key, t, id, body)| Sent {
        key,
        t,
        id,
        body,
    })
}

fn schemes() -> [SignatureScheme; 3] {
    [seconds_and_hex(), SignatureScheme { key: KeyEncoding::Text, ..standard() }, github()]
}

proptest! {
    #[test]
    fn what_was_signed_verifies_and_a_changed_byte_does_not(
        sent in sent(),
        which in 0..3_usize,
        place in any::<proptest::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let scheme = &schemes()[which];
        let keys = scheme.prepare(&[Secret::new(sent.key.clone())]).unwrap();
        let id = MessageId::parse(&sent.id).unwrap();
        let value = scheme.header_value(&keys, sent.t, id, &sent.body);
        let timestamp = sent.t.to_string();
        let verify = |value: &str, timestamp: &str, id: &str, body: &[u8]| {
            let received = Received { value, timestamp: Some(timestamp), id: Some(id), body };
            scheme.verify(&keys, &received, sent.t, u64::MAX)
        };
        prop_assert_eq!(verify(&value, &timestamp, &sent.id, &sent.body), Ok(()));

        let changed = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let at = place.index(bytes.len());
            bytes[at] ^= change;
            bytes
        };
        if let Ok(value) = String::from_utf8(changed(value.as_bytes())) {
            prop_assert!(verify(&value, &timestamp, &sent.id, &sent.body).is_err());
        }
        if !sent.body.is_empty() {
            prop_assert!(verify(&value, &timestamp, &sent.id, &changed(&sent.body)).is_err());
        }
        if scheme.signs_id() {
            for (text, is_id) in [(&sent.id, true), (&timestamp, false)] {
                let Ok(text) = String::from_utf8(changed(text.as_bytes())) else { continue };
                let (timestamp, id) = if is_id { (&timestamp, &text) } else { (&text, &sent.id) };
                prop_assert!(verify(&value, timestamp, id, &sent.body).is_err());
            }
        }
        let other = scheme.prepare(&[Secret::new(changed(&sent.key))]);
        if let Ok(other) = other {
            let received =
                Received { value: &value, timestamp: Some(&timestamp), id: Some(&sent.id), body: &sent.body };
            prop_assert!(scheme.verify(&other, &received, sent.t, u64::MAX).is_err());
        }
    }
}
