//! Key sets, and the signatures of the RFCs.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PSS_SHA256, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair};
use serde_json::json;

use super::*;

/// RFC 8037, appendix A.
const ED25519_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const ED25519_JWS: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
/// RFC 7515, appendix A.3.
const P256: [&str; 2] =
    ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"];
const ES256_JWS: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
/// RFC 7515, appendix A.2.
const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
const RS256_JWS: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

fn ed25519() -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X, "kid": "ed"})
}

fn p256() -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": P256[0], "y": P256[1], "kid": "ec", "use": "sig"})
}

fn rsa_key() -> Value {
    json!({"kty": "RSA", "n": RSA_N, "e": "AQAB", "kid": "rsa", "key_ops": ["verify"]})
}

fn set(keys: &[Value]) -> Result<KeySet, KeySetError> {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes())
}

/// The one key of a set.
fn only(key: Value) -> PublicKey {
    set(&[key]).expect("a set").0.remove(0)
}

#[track_caller]
fn check_known_answer(key: Value, algorithm: Algorithm, jws: &str) {
    let key = only(key);
    let (signed, signature) = jws.rsplit_once('.').expect("three parts");
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
    assert!(key.signed(algorithm, signed.as_bytes(), &signature));
    assert!(!key.signed(algorithm, &signed.as_bytes()[1..], &signature));
    for at in [0, signature.len() / 2, signature.len() - 1] {
        let mut other = signature.clone();
        other[at] ^= 1;
        assert!(!key.signed(algorithm, signed.as_bytes(), &other), "{at}");
    }
    assert!(!key.signed(algorithm, signed.as_bytes(), b""));
}

#[test]
fn the_examples_of_the_rfcs_verify() {
    check_known_answer(ed25519(), Algorithm::EdDsa, ED25519_JWS);
    check_known_answer(p256(), Algorithm::Es256, ES256_JWS);
    check_known_answer(rsa_key(), Algorithm::Rs256, RS256_JWS);
}

#[test]
fn a_signature_by_the_other_padding_is_none() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    // RSAPublicKey (RFC 8017, appendix A.1.1): four bytes, four more and a zero, then 256 bytes of modulus.
    let n = URL_SAFE_NO_PAD.encode(&key.public_key().as_ref()[9..265]);
    let public = only(json!({"kty": "RSA", "n": n, "e": "AQAB"}));
    let sign = |encoding: &'static dyn RsaEncoding| {
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(encoding, &SystemRandom::new(), b"message", &mut signature).expect("signed");
        signature
    };
    let (ps256, ps512) = (sign(&RSA_PSS_SHA256), sign(&RSA_PSS_SHA512));
    for (algorithm, fits) in [
        (Algorithm::Ps256, true),
        (Algorithm::Ps384, false),
        (Algorithm::Ps512, false),
        (Algorithm::Rs256, false),
        (Algorithm::Es256, false),
        (Algorithm::EdDsa, false),
    ] {
        assert_eq!(public.signed(algorithm, b"message", &ps256), fits, "{algorithm:?}");
    }
    assert!(public.signed(Algorithm::Ps512, b"message", &ps512));
}

#[test]
fn a_key_s_kind_decides_which_algorithms_it_takes() {
    use Algorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
    let all = [EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512];
    let fitting = |key: Value| {
        let key = only(key);
        all.into_iter().filter(|algorithm| key.fits(*algorithm)).collect::<Vec<_>>()
    };
    assert_eq!(fitting(ed25519()), [EdDsa]);
    assert_eq!(fitting(p256()), [Es256]);
    assert_eq!(fitting(rsa_key()), [Ps256, Ps384, Ps512, Rs256, Rs384, Rs512]);
    let mut bound = rsa_key();
    bound["alg"] = json!("PS384");
    assert_eq!(fitting(bound), [Ps384]);
}

#[test]
fn algorithms_without_a_public_key_do_not_exist() {
    for name in ["none", "None", "HS256", "HS384", "HS512", "ES512", "RSA-OAEP", "rs256", ""] {
        assert_eq!(Algorithm::parse(name), None, "{name}");
    }
}

#[test]
fn keys_for_something_else_are_left_out() {
    let with = |mut key: Value, name: &str, value: Value| {
        key[name] = value;
        key
    };
    let others = [
        json!({}),
        json!(1),
        json!({"kty": "oct"}),
        with(rsa_key(), "use", json!("enc")),
        with(rsa_key(), "key_ops", json!(["encrypt"])),
        with(rsa_key(), "alg", json!("RSA-OAEP")),
        with(rsa_key(), "n", json!(&RSA_N[..200])),
        with(rsa_key(), "n", json!("=")),
        with(p256(), "crv", json!("P-521")),
        with(p256(), "x", json!(ED25519_JWS)),
        with(ed25519(), "crv", json!("X25519")),
        with(ed25519(), "x", json!("AAAA")),
    ];
    for other in &others {
        assert_eq!(set(std::slice::from_ref(other)).err(), Some(KeySetError::NoKey), "{other}");
    }
    let found = set(&[&others[..], &[p256()]].concat()).expect("one is good");
    assert_eq!(found.0.len(), 1);
    assert_eq!(found.candidates(Some("ec"), Algorithm::Es256).count(), 1);
    assert_eq!(found.candidates(None, Algorithm::Es256).count(), 1);
    assert_eq!(found.candidates(Some("ed"), Algorithm::Es256).count(), 0);
    assert_eq!(found.candidates(Some("ec"), Algorithm::Rs256).count(), 0);
}

#[test]
fn what_is_no_set_is_refused_as_a_whole() {
    let check = |text: &str, expected: KeySetError| {
        assert_eq!(KeySet::parse(text.as_bytes()).err(), Some(expected), "{text:.80}");
    };
    for text in ["", "[]", "{}", "{\"keys\": {}}", "{\"keys\": [], \"keys\": []}", "\u{0}"] {
        check(text, KeySetError::NotASet);
    }
    assert_eq!(KeySet::parse(b"\xff").err(), Some(KeySetError::NotASet));
    check("{\"keys\": []}", KeySetError::NoKey);
    check(&" ".repeat(MAX_BYTES + 1), KeySetError::TooLarge);
    assert_eq!(set(&vec![p256(); MAX_KEYS + 1]).err(), Some(KeySetError::Many));
    assert!(set(&vec![p256(); MAX_KEYS]).is_ok());
    for secret in ["d", "k"] {
        let mut private = p256();
        private[secret] = json!("AAAA");
        assert_eq!(set(&[rsa_key(), private]).err(), Some(KeySetError::Private));
    }
}
