//! Where a running gateway is asked: by its admin listener or by its api listener, with what lets one in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::cli::client::{Ask, Place, ask};
use crate::cli::exit::{USAGE, fail};
use crate::cli::sign::read_secret;
use crate::config::listening::Bind;
use crate::model::secret::Secret;
use crate::source;

/// Where the socket is where nobody says otherwise.
const SOCKET: &str = "/run/sortie/admin.sock";
/// The options that name the admin listener.
const BY_ADMIN: &str = "--config or --admin";
/// A gateway that takes longer does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The admin listener.
#[derive(Debug, clap::Args)]
pub struct AdminArguments {
    /// The configuration file of the gateway, which says where its admin listener is and what its token is
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "token_file"])]
    config: Option<PathBuf>,
    /// The admin listener: `unix:/run/sortie/admin.sock`, or `http://127.0.0.1:9478`
    #[arg(long, value_name = "PLACE", value_parser = place)]
    admin: Option<Place>,
    /// The file that holds the admin listener's token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The api listener.
#[derive(Debug, Default, clap::Args)]
pub struct ApiArguments {
    /// The api listener: `http://127.0.0.1:8477`, or `unix:PATH`
    #[arg(long, value_name = "PLACE", value_parser = place)]
    url: Option<Place>,
    /// The file that holds the key for the api listener
    #[arg(long, value_name = "FILE", requires = "url")]
    key_file: Option<PathBuf>,
}

/// A listener, and what lets one in.
#[derive(Debug)]
pub struct Listener {
    /// Where it is.
    pub place: Place,
    /// The key or the token.
    pub bearer: Option<Secret>,
    /// The options that say where else to ask.
    pub named_by: &'static str,
}

/// Reads a place of a listener.
pub fn place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Place::Unix(path.into()));
    }
    let address = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let address = address.map(|rest| rest.replacen("localhost:", "127.0.0.1:", 1));
    let address = address.and_then(|address| address.parse::<SocketAddr>().ok());
    // A token is for this machine.
    match address.filter(|address| address.ip().is_loopback()) {
        Some(address) => Ok(Place::Tcp(address)),
        None => Err("write unix:/run/sortie/admin.sock, or http://127.0.0.1:9478".to_owned()),
    }
}

impl AdminArguments {
    /// The listener that they name.
    pub fn listener(&self) -> Result<Listener, u8> {
        if let Some(file) = &self.config {
            return of_configuration(file);
        }
        let bearer = self.token_file.as_deref().map(read_secret).transpose()?;
        let place = self.admin.clone().unwrap_or_else(|| Place::Unix(SOCKET.into()));
        Ok(Listener { place, bearer, named_by: BY_ADMIN })
    }
}

impl ApiArguments {
    /// The listener that they name, where they do.
    pub fn listener(&self) -> Option<Result<Listener, u8>> {
        let place = self.url.clone()?;
        let bearer = self.key_file.as_deref().map(read_secret).transpose();
        Some(bearer.map(|bearer| Listener { place, bearer, named_by: "--url" }))
    }
}

fn of_configuration(file: &Path) -> Result<Listener, u8> {
    let name = file.display();
    match source::admin(file) {
        Ok(Some((Bind::Unix { path, .. }, bearer))) => {
            Ok(Listener { place: Place::Unix(path), bearer, named_by: BY_ADMIN })
        }
        Ok(Some((Bind::Tcp(address), bearer))) if address.port() != 0 => {
            Ok(Listener { place: Place::Tcp(address), bearer, named_by: BY_ADMIN })
        }
        Ok(Some((Bind::Tcp(_), _))) => {
            Err(fail(&format!("{name} leaves the admin listener's port open, say it with --admin")))
        }
        Ok(None) => {
            fail(&format!("{name} has no `listeners.admin`, so nobody can be asked"));
            Err(USAGE)
        }
        Err(error) => Err(fail(&error.to_string())),
    }
}

impl Listener {
    /// Asks once; where there is no answer it is said why, and the exit code is the error.
    pub fn ask(&self, question: Ask<'_>) -> Result<(u16, String), u8> {
        let place = &self.place;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| fail(&format!("the runtime does not start: {error}")))?;
        let question = Ask { bearer: self.bearer.as_ref(), ..question };
        match runtime.block_on(async { timeout(TIMEOUT, ask(place, question)).await }) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let hint = format!("{} says where else to ask", self.named_by);
                Err(fail(&format!("{place}: {error}; {hint}")))
            }
            Err(_) => Err(fail(&format!("{place} does not answer within {TIMEOUT:?}"))),
        }
    }

    /// Asks for something that is there: any other answer is said, and the exit code is the error.
    pub fn ask_for(&self, question: Ask<'_>) -> Result<String, u8> {
        match self.ask(question)? {
            (200, text) => Ok(text),
            (status, text) => Err(fail(&self.refusal(status, &text))),
        }
    }

    /// An error of a listener in its own words.
    fn refusal(&self, status: u16, text: &str) -> String {
        #[derive(Deserialize)]
        struct Answer {
            error: Error,
        }
        #[derive(Deserialize)]
        struct Error {
            code: String,
            message: String,
        }
        match serde_json::from_str(text) {
            Ok(Answer { error: Error { code, message } }) => {
                format!("{} answered {status} {code}: {message}", self.place)
            }
            Err(_) => format!("{} answered {status}, not as Sortie does", self.place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_socket_or_this_machine() {
        assert_eq!(place("unix:/a/b"), Ok(Place::Unix("/a/b".into())));
        let local = SocketAddr::from(([127, 0, 0, 1], 9478));
        for text in ["http://127.0.0.1:9478", "http://localhost:9478/"] {
            assert_eq!(place(text), Ok(Place::Tcp(local)));
        }
        for text in ["http://10.0.0.5:9478", "127.0.0.1:9478", "https://127.0.0.1:9478", ""] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_gateway_s_words() {
        let listener =
            Listener { place: Place::Unix("/a".into()), bearer: None, named_by: "--url" };
        let text = r#"{"error":{"code":"not_found","message":"there is nothing","field":null,"request_id":"req_1"}}"#;
        assert_eq!(listener.refusal(404, text), "unix:/a answered 404 not_found: there is nothing");
        assert_eq!(listener.refusal(502, "<html>"), "unix:/a answered 502, not as Sortie does");
    }
}
