//! The page for the author of a tool's server: what comes, what may come back, and how to verify it.

use bytes::Bytes;

use crate::cli::explain_words::{rate_limits, retries, url};
use crate::config::leaf::Span;
use crate::config::snapshot::Tool;
use crate::model::call::{CallContext, EndUser};
use crate::model::id::{CallId, IdError, Token};
use crate::model::json::read_object;
use crate::model::secret::Secret;
use crate::policy::answer::{ERROR_BODY_LIMIT, ErrorBody};
use crate::policy::sample::{Extent, sample};
use crate::policy::schema::ValidArguments;
use crate::policy::sign::SigningKeys;
use crate::policy::wire::Rendering;

/// Nobody's secret: it stands in the README and in the tests.
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
/// The time of the example, in Unix seconds.
const AT: i64 = 1_793_354_102;

/// The whole page.
pub(super) fn sheet(tool: &Tool) -> Result<String, String> {
    let view = tool.profile.view();
    let mut page = format!(
        "# {name}\n\n{description}\n\n\
         Requests come as `POST {url}`, in the wire format `{profile}`.\n",
        name = tool.name.as_str(),
        description = tool.description,
        url = url(tool),
        profile = view.name,
    );
    page.push_str("\n## A request\n\n");
    match arguments(tool) {
        Some(arguments) => {
            let request = request(tool, &arguments).map_err(|error| error.to_string())?;
            page.push_str(&format!("```http\n{request}\n```\n"));
            if view.signs {
                page.push_str(&format!(
                    "\nIt is signed with the example secret `{SECRET}`, not with yours.\n"
                ));
            }
        }
        None => page.push_str(
            "No example could be made from the schema of its arguments; \
             give the schema's author a `default` or `examples` to write.\n",
        ),
    }
    let own = tool.header_names.iter().chain(&tool.accept_credentials);
    let own: Vec<String> = own.map(|name| format!("`{name}`")).collect();
    if !own.is_empty() {
        page.push_str(&format!(
            "Own headers, whose values the operator has agreed with you: {}.\n",
            own.join(", ")
        ));
    }
    page.push_str("\n## Verify it\n\n");
    page.push_str(&match tool.profile.signature() {
        None => "This wire format is not signed: nothing tells you who called. \
                 Ask for a format that signs, or tell callers apart by a header.\n"
            .to_owned(),
        Some(scheme) => format!(
            "{}.\nVerify before you parse, over the bytes as they arrived; compare in constant time; \
             refuse a time that is more than 300 s off; while a secret is replaced there are two signatures, and one of \
             them has to fit.\nVerifiers in several languages stand in Sortie's README under \
             \"For authors of tool servers\"; `sortie sign` and `sortie verify` try both sides.\n",
            scheme.in_words()
        ),
    });
    page.push_str(&format!(
        "\n## Answer it\n\n\
         - Within {timeout}, from the name lookup to your last byte.\n\
         - 2xx with JSON or UTF-8 text, without a content encoding; up to {limit} bytes reach the model, the rest is cut.\n\
         - A redirect is never followed.\n\
         - {errors}\n\
         - Attempts: {attempts} at most; {retries}.{key}\n\
         - Calls at once: {concurrency} at most. Rates: {rates}.\n\
         - What you answer goes to a model, and from there anywhere: no secrets.\n",
        timeout = Span(tool.timeout),
        limit = tool.result_limit,
        errors = match view.error_body {
            ErrorBody::ClientErrors => format!(
                "The body of a 4xx is read by the model, up to {ERROR_BODY_LIMIT} bytes: say what is wrong with the \
                 arguments, so that it can correct itself."
            ),
            ErrorBody::Never => {
                "The body of a 4xx is not shown to the model, which learns the status alone.".to_owned()
            }
        },
        attempts = view.retry.attempts,
        retries = retries(tool),
        key = if tool.profile.sends_idempotency_key() {
            " Each attempt of a call has the same key: act once for each."
        } else {
            ""
        },
        concurrency = tool.limits.concurrency,
        rates = match rate_limits(tool).join("; ") {
            none if none.is_empty() => "no limit".to_owned(),
            rates => rates,
        },
    ));
    Ok(page)
}

/// Arguments that the tool takes: as many as are described, or at least those that it needs.
fn arguments(tool: &Tool) -> Option<ValidArguments> {
    let schema = match &tool.parameters {
        None => serde_json::Value::Object(serde_json::Map::new()),
        Some(text) => serde_json::from_str(text.get()).ok()?,
    };
    [Extent::Full, Extent::Required].into_iter().find_map(|extent| {
        let made = match &tool.parameters {
            None => serde_json::Value::Object(serde_json::Map::new()),
            Some(_) => sample(&schema, extent)?,
        };
        tool.arguments.check(&read_object(&made.to_string()).ok()?).ok()
    })
}

/// The request as it is written, but for the values of own headers.
fn request(tool: &Tool, arguments: &ValidArguments) -> Result<String, String> {
    let odd = |error: IdError| error.to_string();
    let call_id = CallId::parse("call_8f2cA1b2C3d4E5f6").map_err(odd)?;
    let context = CallContext {
        agent_id: Some("support".into()),
        session_id: Some("0193b2f0".into()),
        turn_id: Some("0193b2f1".into()),
        end_user: Some(EndUser {
            id: Some("eu_7GqT2mXc".into()),
            external_id: Some("cust-77".into()),
        }),
        run_id: Some(Token::parse("run_7Hq2xV").map_err(odd)?),
        step: Some(Token::parse("3").map_err(odd)?),
        ..CallContext::default()
    };
    let key = context.idempotency_key();
    let call = Rendering {
        tool: &tool.name,
        call_id: &call_id,
        context: &context,
        arguments,
        endpoint: &tool.endpoint,
        sent_at_ms: AT * 1000,
        idempotency_key: key.as_ref(),
    };
    let body: Bytes = tool.profile.body(&call);
    let keys = match tool.profile.signature() {
        Some(scheme) => {
            scheme.prepare(&[Secret::new(SECRET)]).map_err(|error| error.to_string())?
        }
        None => SigningKeys::default(),
    };
    let headers = tool.profile.headers(&call, &[], &body, &keys, AT);
    let headers = headers.map_err(|error| error.to_string())?.0;
    let path = tool.endpoint.path_and_query();
    let path = path.split_once('?').map_or(path.to_owned(), |(path, _)| format!("{path}?***"));
    let mut text = format!("POST {path} HTTP/1.1\n");
    let own = || tool.header_names.iter().chain(&tool.accept_credentials);
    for name in tool.profile.header_spelling(own().map(String::as_str)) {
        let value = match headers.get(name).map(|value| value.to_str()) {
            Some(Ok(value)) => value,
            _ if own().any(|own| own == name) => "***",
            // A line whose slot has nothing is left out.
            _ => continue,
        };
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&body));
    Ok(text)
}
