//! Reports on what only watches: of a policy, of a tool's candidate, and of a policy that does not exist yet.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::kept_policy;
use crate::config::snapshot::Tool;
use crate::gateway::shadow_report::{Counted, DAYS, Days, MAX_DAYS, ShadowReport};
use crate::gateway::tally::{candidate_key, day_begins_ms};
use crate::model::json::pointer_step;
use crate::model::time::rfc3339;
use crate::policy::identity::Scope;
use crate::serve::calls::ApiState;
use crate::serve::errand::{Errand, unavailable};
use crate::serve::http::{ApiCode, ApiError, json as answer};
use crate::serve::policies::{Found, PolicyErrand, invalid, merge};
use crate::serve::query::{bad, parameters, whole};
use crate::serve::route::Route;

/// The name of a policy that comes without one.
const NAMELESS: &str = "unnamed";

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![
        Route::post("/v1/policies/simulate", simulate),
        Route::get("/v1/policies/{policy}/shadow", of_policy),
        Route::get("/v1/tools/{tool}/policy", policy_of_tool),
        Route::put("/v1/tools/{tool}/policy", managed_by_file),
        Route::post("/v1/tools/{tool}/policy/promote", managed_by_file),
        Route::get("/v1/tools/{tool}/policy/shadow", of_candidate),
    ]
}

async fn of_policy(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let desk = PolicyErrand::begin(state, request).await?;
    let (id, effect) = match desk.find(id)? {
        Found::File(policy) => (policy.id.to_string(), Some(policy.effect)),
        Found::Kept(kept) => {
            let effect = kept.compiled.as_ref().ok().map(|policy| policy.effect);
            (kept.record.id.clone(), effect)
        }
    };
    let (days, report) = counted(&desk.errand, &id).await?;
    let would = effect.map(|effect| effect.as_str());
    let head = json!({ "policy": id, "would": would });
    Ok(answer(StatusCode::OK, &ReportShape::new(head, days, &report, plain)))
}

async fn of_candidate(
    State(state): State<ApiState>,
    tool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let errand = Errand::begin(state, request, Scope::AgentPolicy).await?;
    let tool = named(&errand, tool)?;
    let (days, report) = counted(&errand, &candidate_key(tool.name.as_str())).await?;
    let would = tool.policy.candidate.as_ref().map(|candidate| candidate.effect.as_str());
    let head = json!({ "tool": tool.name.as_str(), "policy": "candidate", "would": would });
    Ok(answer(StatusCode::OK, &ReportShape::new(head, days, &report, with_people)))
}

async fn policy_of_tool(
    State(state): State<ApiState>,
    tool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let errand = Errand::begin(state, request, Scope::Agent).await?;
    let [] = parameters(errand.visit.query.as_deref(), &[])?;
    let tool = named(&errand, tool)?;
    let shadow = tool.policy.candidate.as_ref().map(|candidate| {
        let when: Vec<_> = candidate.when.iter().map(ToString::to_string).collect();
        let rule = (!when.is_empty()).then(|| when.join(" and "));
        json!({ "effect": candidate.effect.as_str(), "rule": rule })
    });
    let shape = json!({
        "tool": tool.name.as_str(), "tool_id": tool.id, "managed": "file",
        "effect": tool.policy.effect.as_str(), "shadow": shadow,
    });
    Ok(answer(StatusCode::OK, &shape))
}

async fn managed_by_file(
    State(state): State<ApiState>,
    tool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let errand = Errand::begin(state, request, Scope::AgentPolicy).await?;
    let tool = named(&errand, tool)?;
    let text = format!(
        "the tool `{}` stands in the configuration file, and its policy is changed there",
        tool.name
    );
    Err(ApiError::new(ApiCode::FileManaged, text))
}

async fn simulate(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let (desk, body) = PolicyErrand::begin_with_body(state, request).await?;
    let mut body = desk.errand.object(body).await?;
    let policy = body.remove("policy").filter(|policy| !policy.is_null());
    let days = body.remove("days").filter(|days| !days.is_null());
    if let Some(name) = body.keys().next() {
        let pointer = format!("/{}", pointer_step(name));
        return Err(ApiError::field(None, &pointer, "known are `policy` and `days`"));
    }
    let days = match days {
        None => DAYS,
        Some(days) => {
            let days = days.as_u64().filter(|days| (1..=MAX_DAYS).contains(days));
            days.ok_or_else(|| ApiError::field(Some("days"), "/days", &bad_days()))?
        }
    };
    let missing = || ApiError::field(Some("policy"), "/policy", "`policy` is required");
    let mut policy = policy.ok_or_else(missing)?;
    if let Value::Object(given) = policy {
        // As where it is kept: what is null is not there.
        let mut fields = Map::new();
        merge(&mut fields, given);
        fields.entry("id").or_insert_with(|| NAMELESS.into());
        policy = fields.into();
    }
    let policy = kept_policy::compile(&policy.to_string());
    let policy = policy.map_err(|fault| invalid("/policy", fault))?;
    let gateway = &desk.errand.state.gateway;
    let _place = gateway.policies().simulating().ok_or_else(|| {
        ApiError::new(ApiCode::Overloaded, "another policy is being simulated, try again")
    })?;
    let days = Days::until(gateway.clock().unix_ms(), days);
    let snapshot = desk.errand.visit.snapshot();
    let simulated = desk.book().simulate(snapshot, desk.organisation(), &policy, days).await;
    let simulated = simulated.map_err(|error| unavailable(&error))?;
    let head = json!({
        "policy": &*policy.id, "would": policy.effect.as_str(),
        "without_arguments": simulated.without_arguments, "cut": simulated.is_cut,
    });
    Ok(answer(StatusCode::OK, &ReportShape::new(head, days, &simulated.report, plain)))
}

fn named(errand: &Errand, tool: Result<Path<String>, PathRejection>) -> Result<&Tool, ApiError> {
    let tool = tool.ok().and_then(|Path(tool)| errand.visit.tool(&tool));
    let none = || ApiError::new(ApiCode::NotFound, "there is no tool with this name or id");
    tool.map(AsRef::as_ref).ok_or_else(none)
}

/// What was counted up to now, of the days that the request names.
async fn counted(errand: &Errand, policy: &str) -> Result<(Days, ShadowReport), ApiError> {
    let [days] = parameters(errand.visit.query.as_deref(), &["days"])?;
    let days = days.map_or(Ok(DAYS), |text| {
        let most = usize::try_from(MAX_DAYS).unwrap_or(usize::MAX);
        let days = whole(&text, 1, most).and_then(|days| u64::try_from(days).ok());
        days.ok_or_else(|| bad(&bad_days()))
    })?;
    let gateway = &errand.state.gateway;
    let days = Days::until(gateway.clock().unix_ms(), days);
    // The totals are those of the calls that were made, also of this second's.
    gateway.tally().flush().await.map_err(|error| unavailable(&error))?;
    let report = gateway.policies().report(&errand.visit.caller.organisation, policy, days).await;
    report.map(|report| (days, report)).map_err(|error| unavailable(&error))
}

fn bad_days() -> String {
    format!("`days` must be a whole number from 1 to {MAX_DAYS}")
}

/// The report: what it is about, the days, the totals, the same by tool, and samples.
#[derive(Serialize)]
struct ReportShape {
    #[serde(flatten)]
    head: Value,
    days: i64,
    from: String,
    to: String,
    #[serde(flatten)]
    total: Value,
    by_tool: Vec<Value>,
    samples: Vec<Value>,
}

impl ReportShape {
    fn new(head: Value, days: Days, report: &ShadowReport, numbers: fn(Counted) -> Value) -> Self {
        let by_tool = report.by_tool.iter().map(|(tool, counted)| {
            let mut row = Map::new();
            row.insert("tool".into(), tool.as_str().into());
            if let Value::Object(numbers) = numbers(*counted) {
                row.extend(numbers);
            }
            row.into()
        });
        let samples = report.samples.iter().map(|sample| {
            json!({ "call_id": sample.call_id, "tool": sample.tool, "day": date(sample.day) })
        });
        Self {
            head,
            days: days.to - days.from + 1,
            from: date(days.from),
            to: date(days.to),
            total: numbers(report.total),
            by_tool: by_tool.collect(),
            samples: samples.collect(),
        }
    }
}

fn plain(counted: Counted) -> Value {
    let Counted { calls, matched, disagreements, .. } = counted;
    json!({ "calls": calls, "matched": matched, "disagreements": disagreements })
}

fn with_people(counted: Counted) -> Value {
    let Counted { calls, matched, disagreements, unasked, approved, rejected, expired } = counted;
    json!({
        "calls": calls, "matched": matched, "disagreements": disagreements,
        "would_run_unasked": unasked, "approved": approved, "rejected": rejected, "expired": expired,
    })
}

/// A day as its date.
fn date(day: i64) -> String {
    let text = rfc3339(day_begins_ms(day));
    text.as_str().split('T').next().unwrap_or_default().to_owned()
}
