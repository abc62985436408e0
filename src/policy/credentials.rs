//! Values of an `Authorization` header that a configuration gives outright: basic and bearer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::model::secret::Secret;

/// Why something cannot stand in an `Authorization` header. Never says the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// RFC 7617 splits at the first one.
    #[error("must not hold a `:`, which ends the user's name")]
    Colon,
    /// A control character in a user's name or password.
    #[error("holds a control character, such as a second line end")]
    Control,
    /// A password that is no text.
    #[error("is not UTF-8")]
    NotText,
    /// A token with anything but visible ASCII.
    #[error("holds a character that a token cannot have, such as a space or a second line end")]
    Token,
}

/// Says whether this can be the user's name of basic authentication.
pub fn check_user(user: &str) -> Result<(), CredentialError> {
    if user.contains(':') {
        return Err(CredentialError::Colon);
    }
    if user.chars().any(char::is_control) { Err(CredentialError::Control) } else { Ok(()) }
}

/// Says whether this can be a password of basic authentication.
pub fn check_password(password: &Secret) -> Result<(), CredentialError> {
    let text = std::str::from_utf8(password.expose()).map_err(|_| CredentialError::NotText)?;
    if text.chars().any(char::is_control) { Err(CredentialError::Control) } else { Ok(()) }
}

/// `Basic` and the base64 of user and password (RFC 7617, in UTF-8). Both were checked.
pub fn basic(user: &str, password: &Secret) -> Secret {
    // No buffer grows, so that no copy of the password is left behind.
    let mut pair = Zeroizing::new(Vec::with_capacity(user.len() + 1 + password.len()));
    pair.extend_from_slice(user.as_bytes());
    pair.push(b':');
    pair.extend_from_slice(password.expose());
    let mut value = String::with_capacity("Basic ".len() + pair.len().div_ceil(3) * 4);
    value.push_str("Basic ");
    STANDARD.encode_string(pair.as_slice(), &mut value);
    Secret::new(value)
}

/// `Bearer` and the token (RFC 6750).
pub fn bearer(token: &Secret) -> Result<Secret, CredentialError> {
    if token.is_empty() || !token.expose().iter().all(u8::is_ascii_graphic) {
        return Err(CredentialError::Token);
    }
    Ok(Secret::new([b"Bearer ", token.expose()].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_basic(user: &str, password: &str, expected: &str) {
        assert_eq!(basic(user, &Secret::new(password)).expose(), expected.as_bytes());
    }

    #[test]
    fn basic_is_base64_of_user_and_password() {
        check_basic("Aladdin", "open sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        check_basic("test", "123£", "Basic dGVzdDoxMjPCow==");
        check_basic("", "a:b", "Basic OmE6Yg==");
    }

    #[test]
    fn a_user_has_no_colon_and_nobody_has_control_characters() {
        assert_eq!(check_user("a:b"), Err(CredentialError::Colon));
        assert_eq!(check_user("a\nb"), Err(CredentialError::Control));
        assert_eq!(check_user("Zoë"), Ok(()));
        assert_eq!(check_password(&Secret::new("a\n")), Err(CredentialError::Control));
        assert_eq!(check_password(&Secret::new([0xff])), Err(CredentialError::NotText));
        assert_eq!(check_password(&Secret::new("a: b£")), Ok(()));
    }

    #[track_caller]
    fn check_bearer(token: &str, expected: Result<&str, CredentialError>) {
        let value = bearer(&Secret::new(token));
        assert_eq!(value, expected.map(Secret::new));
    }

    #[test]
    fn a_bearer_token_is_visible_ascii() {
        check_bearer("abc.def-_~+/==", Ok("Bearer abc.def-_~+/=="));
        for bad in ["", "Bearer abc", "abc\n", " abc", "tök"] {
            check_bearer(bad, Err(CredentialError::Token));
        }
    }
}
