//! The catalogue: the tools that a key may know of, all of them, one, or those of an agent (contract, section 5).

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::leaf::Span;
use crate::config::redact::without_query;
use crate::config::snapshot::Tool;
use crate::policy::export::Provider;
use crate::policy::identity::Scope;
use crate::serve::calls::ApiState;
use crate::serve::http::{ApiCode, ApiError};
use crate::serve::query::{bad, page_size, parameters};
use crate::serve::route::Route;
use crate::serve::tagged::Tagged;
use crate::serve::visit::Visit;
use crate::telemetry::labels::LimitScope;

/// The only kind of tool that this version has.
const KIND: &str = "webhook";
/// Every kind that there will be.
const KINDS: &[&str] = &[KIND, "app"];
const LIST_PARAMETERS: &[&str; 4] = &["format", "kind", "limit", "cursor"];

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![
        Route::get("/v1/tools", all),
        Route::get("/v1/tools/{tool}", one),
        Route::get("/v1/agents/{agent}/tools", of_agent),
    ]
}

async fn all(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, &[Scope::Agent]).await?;
    visit.list(|_| true)
}

async fn of_agent(
    State(state): State<ApiState>,
    agent: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, &[Scope::Agent]).await?;
    let agents = &visit.snapshot().agents;
    let agent = agent.ok().map(|Path(agent)| agent);
    let agent = agent.filter(|agent| agents.knows(agent) && visit.caller.speaks_for(agent));
    // Whether it is another key's agent or nobody's is not said.
    let agent =
        agent.ok_or_else(|| ApiError::new(ApiCode::NotFound, "there is no agent with this id"))?;
    visit.list(|tool| agents.offers(Some(&agent), tool.name.as_str()))
}

async fn one(
    State(state): State<ApiState>,
    tool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, &[Scope::Agent]).await?;
    let [format] = parameters(visit.query.as_deref(), &["format"])?;
    let format = format.map(|text| provider(&text)).transpose()?;
    let tool = tool.ok().and_then(|Path(tool)| visit.tool(&tool));
    let none = |text| ApiError::new(ApiCode::NotFound, text);
    let tool = tool.ok_or_else(|| none("there is no tool with this name or id"))?;
    let Some(provider) = format else {
        return Ok(visit.answer(written(&visit.shape(tool))));
    };
    if !tool.enabled {
        return Err(none("the tool is turned off, so it is not exported"));
    }
    Ok(visit.answer(tool.exports.text(provider).into()))
}

impl Visit {
    /// The tools that the caller may know of, by name.
    fn tools(&self, holds: impl Fn(&Tool) -> bool) -> Vec<&Tool> {
        let tools = self.snapshot().tools.values().map(AsRef::as_ref);
        let mut tools: Vec<&Tool> = tools.filter(|tool| holds(tool) && self.shows(tool)).collect();
        tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        tools
    }

    fn list(&self, holds: impl Fn(&Tool) -> bool) -> Result<Response, ApiError> {
        let [format, kind, limit, cursor] = parameters(self.query.as_deref(), LIST_PARAMETERS)?;
        let of_kind = match kind.as_deref() {
            None => true,
            Some(kind) if KINDS.contains(&kind) => kind == KIND,
            Some(_) => return Err(bad("`kind` must be webhook or app")),
        };
        if let Some(format) = format {
            if limit.or(cursor).is_some() {
                return Err(bad(
                    "with `format` all tools come at once, without `limit` and `cursor`",
                ));
            }
            let provider = provider(&format)?;
            let tools = self.tools(|tool| of_kind && tool.enabled && holds(tool));
            let definitions = tools.into_iter().map(|tool| tool.exports.text(provider));
            return Ok(self.answer(provider.list(definitions).into()));
        }
        let limit = page_size(limit.as_deref())?;
        let after = cursor.map(|text| position(&text)).transpose()?;
        let mut tools = self.tools(|tool| {
            of_kind
                && after.as_deref().is_none_or(|after| tool.name.as_str() > after)
                && holds(tool)
        });
        let more = tools.len() > limit;
        tools.truncate(limit);
        let last = tools.last().filter(|_| more);
        let next_cursor = last.map(|tool| URL_SAFE_NO_PAD.encode(tool.name.as_str()));
        let data = tools.into_iter().map(|tool| self.shape(tool)).collect();
        Ok(self.answer(written(&ListShape { data, next_cursor })))
    }

    fn shape<'a>(&'a self, tool: &'a Tool) -> ToolShape<'a> {
        ToolShape::new(tool, self.snapshot().agents.of_tool(&self.caller, tool.name.as_str()))
    }

    /// The text, or no text where the client has it already. What one key may see is nobody else's, and a change is seen at
    /// once.
    fn answer(&self, text: Vec<u8>) -> Response {
        Tagged::new(text).answer(&self.headers, "private, no-cache")
    }
}

fn provider(text: &str) -> Result<Provider, ApiError> {
    let known = Provider::ALL.map(Provider::as_str).join(", ");
    Provider::parse(text).ok_or_else(|| bad(&format!("`format` must be one of {known}")))
}

/// The name after which a page begins. The tool itself may be gone by now.
fn position(cursor: &str) -> Result<String, ApiError> {
    let name = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let name = name.filter(|name| !name.is_empty());
    name.ok_or_else(|| bad("`cursor` is not one that was given as `next_cursor`"))
}

fn written(shape: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(shape).expect("the API's own shapes are JSON")
}

#[derive(Serialize)]
struct ListShape<'a> {
    data: Vec<ToolShape<'a>>,
    next_cursor: Option<String>,
}

/// A tool as the contract has it, without what only a stored tool has. A value that is absent is null.
#[derive(Serialize)]
struct ToolShape<'a> {
    id: &'a str,
    name: &'a str,
    owner: Option<&'a str>,
    runbook: Option<&'a str>,
    description: &'a str,
    kind: &'static str,
    profile: &'a str,
    parameters: Option<&'a RawValue>,
    url: String,
    timeout_ms: u128,
    header_names: Vec<&'a str>,
    ask_first: bool,
    filler: Option<&'a str>,
    policy: PolicyShape,
    annotations: AnnotationShape,
    result_max_bytes: usize,
    rate_limits: Vec<RateShape>,
    concurrency: usize,
    accept_credentials: &'a [String],
    breaker: Option<BreakerShape>,
    enabled: bool,
    unavailable: Option<&'static str>,
    secret_hint: Option<&'static str>,
    agent_ids: Option<Vec<&'a str>>,
    version: u32,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PolicyShape {
    Alone(&'static str),
    Watched { effect: &'static str, shadow: EffectShape },
}

#[derive(Serialize)]
struct EffectShape {
    effect: &'static str,
}

#[derive(Serialize)]
struct AnnotationShape {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
}

#[derive(Serialize)]
struct RateShape {
    per: &'static str,
    rate: String,
    burst: u32,
}

/// As it is written in the file.
#[derive(Serialize)]
struct BreakerShape {
    consecutive: u32,
    failure_ratio: f64,
    min_calls: u32,
    window: String,
    open_for: String,
    max_open_for: String,
}

impl<'a> ToolShape<'a> {
    fn new(tool: &'a Tool, agent_ids: Option<Vec<&'a str>>) -> Self {
        let effect = tool.policy.effect.as_str();
        let policy = match &tool.policy.candidate {
            None => PolicyShape::Alone(effect),
            Some(candidate) => {
                let shadow = EffectShape { effect: candidate.effect.as_str() };
                PolicyShape::Watched { effect, shadow }
            }
        };
        let rates = tool.limits.rates.iter().map(|limit| RateShape {
            per: LimitScope::of(limit.per).as_str(),
            rate: limit.rate.to_string(),
            burst: limit.whole_burst().get(),
        });
        let breaker = tool.limits.breaker.map(|breaker| BreakerShape {
            consecutive: breaker.consecutive,
            failure_ratio: breaker.failure_ratio,
            min_calls: breaker.min_calls,
            window: Span(breaker.window).to_string(),
            open_for: Span(breaker.open_for).to_string(),
            max_open_for: Span(breaker.max_open_for).to_string(),
        });
        Self {
            id: &tool.id,
            name: tool.name.as_str(),
            owner: tool.owner.as_deref(),
            runbook: tool.runbook.as_deref(),
            description: &tool.description,
            kind: KIND,
            profile: &tool.profile.name,
            parameters: tool.parameters.as_deref(),
            // People put tokens there.
            url: without_query(&tool.endpoint.to_string()),
            timeout_ms: tool.timeout.as_millis(),
            header_names: tool.headers.iter().map(|header| header.spelling()).collect(),
            ask_first: tool.ask_first,
            filler: tool.filler.as_deref(),
            policy,
            annotations: AnnotationShape {
                read_only: tool.read_only,
                destructive: tool.destructive,
                idempotent: tool.idempotent,
            },
            result_max_bytes: tool.result_limit,
            rate_limits: rates.collect(),
            concurrency: tool.limits.concurrency,
            accept_credentials: &tool.accept_credentials,
            breaker,
            enabled: tool.enabled,
            unavailable: tool.unavailable.as_ref().map(|reason| reason.sentence()),
            // Whoever can read the file has it; nobody else needs a part of it.
            secret_hint: None,
            agent_ids,
            version: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_to_a_name() {
        assert_eq!(position(&URL_SAFE_NO_PAD.encode("scans.get")), Ok("scans.get".into()));
        for bad in ["", "=", "scans.get", "_w"] {
            assert!(position(bad).is_err(), "{bad}");
        }
    }
}
