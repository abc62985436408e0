//! The policies that an organisation keeps through the API, beside those of the file (contract, section 6).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::config::kept_policy::{self, PolicyFault};
use crate::config::policies::make_id;
use crate::gateway::policies::{Kept, PolicyBook};
use crate::model::id::hex;
use crate::model::json::pointer_step;
use crate::model::time::{TimeText, rfc3339};
use crate::policy::identity::Scope;
use crate::policy::rules::Policy;
use crate::serve::calls::ApiState;
use crate::serve::errand::{Errand, unavailable};
use crate::serve::http::{ApiCode, ApiError, json as answer};
use crate::serve::query::parameters;
use crate::serve::route::Route;
use crate::store::StoreError;
use crate::store::records::{AuditEntry, PolicyRecord};
use crate::telemetry::audit::OUTCOME_UNKNOWN;

/// Policies that an organisation may keep.
const MAX_POLICIES: usize = 200;

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![
        Route::get("/v1/policies", list),
        Route::post("/v1/policies", create),
        Route::get("/v1/policies/{policy}", one),
        Route::patch("/v1/policies/{policy}", change),
        Route::delete("/v1/policies/{policy}", remove),
        Route::post("/v1/policies/{policy}/enforce", enforce),
    ]
}

/// The policies of an organisation as one request finds them.
pub struct PolicyErrand {
    /// The request.
    pub errand: Errand,
}

/// What becomes of a kept policy.
enum Change {
    /// It is kept, in the place of this one.
    Put { before: Option<PolicyRecord>, after: PolicyRecord },
    /// It is forgotten.
    Delete(PolicyRecord),
}

/// A policy of either kind.
pub enum Found<'a> {
    /// One of the file, which changes there.
    File(&'a Policy),
    /// One that the API keeps.
    Kept(Arc<Kept>),
}

impl PolicyErrand {
    /// Lets somebody in who may change policies, and looks for changes of other gateways.
    pub async fn begin(state: ApiState, request: Request) -> Result<Self, ApiError> {
        Self::begin_with_body(state, request).await.map(|(desk, _)| desk)
    }

    /// The same for a request whose body is read afterwards.
    pub async fn begin_with_body(
        state: ApiState,
        request: Request,
    ) -> Result<(Self, Body), ApiError> {
        let scope = Scope::AgentPolicy;
        let (errand, body) = Errand::begin_with_body(state, request, scope).await?;
        let desk = Self { errand };
        desk.book().refresh().await.map_err(|error| unavailable(&error))?;
        Ok((desk, body))
    }

    /// The kept policies.
    pub fn book(&self) -> &PolicyBook {
        self.errand.state.gateway.policies()
    }

    /// The caller's organisation.
    pub fn organisation(&self) -> &str {
        &self.errand.visit.caller.organisation
    }

    /// The policy of an id in a path.
    pub fn find(&self, id: Result<Path<String>, PathRejection>) -> Result<Found<'_>, ApiError> {
        let none = || ApiError::new(ApiCode::NotFound, "there is no policy with this id");
        let Path(id) = id.map_err(|_| none())?;
        if let Some(kept) = self.book().find(self.organisation(), &id) {
            return Ok(Found::Kept(kept));
        }
        self.of_file(&id).map(Found::File).ok_or_else(none)
    }

    fn of_file(&self, id: &str) -> Option<&Policy> {
        let policies = &self.errand.visit.snapshot().policies;
        policies.iter().find(|policy| *policy.id == *id).map(AsRef::as_ref)
    }

    /// The kept policy of an id in a path: one of the file is not changed here.
    fn kept(&self, id: Result<Path<String>, PathRejection>) -> Result<Arc<Kept>, ApiError> {
        match self.find(id)? {
            Found::Kept(kept) => Ok(kept),
            Found::File(_) => {
                let text = "this policy stands in the configuration file and is changed there";
                Err(ApiError::new(ApiCode::FileManaged, text))
            }
        }
    }

    fn shape(&self, found: &Found<'_>) -> PolicyShape {
        match found {
            Found::Kept(kept) => PolicyShape::of_kept(kept),
            Found::File(policy) => {
                let written = self.errand.visit.snapshot().redacted.get("policies");
                let written = written.and_then(Value::as_array);
                let is_it =
                    |one: &&Value| one.get("id").and_then(Value::as_str) == Some(&policy.id);
                let written = written.and_then(|list| list.iter().find(is_it));
                let fields = written.and_then(Value::as_object).cloned().unwrap_or_default();
                PolicyShape { rule: rule(policy), ..PolicyShape::new(&fields, &policy.id, "file") }
            }
        }
    }

    /// Keeps another version of a policy, unless it has changed meanwhile.
    async fn replace(
        &self,
        kept: &Kept,
        fields: Map<String, Value>,
        expected: Option<u64>,
        action: &'static str,
    ) -> Result<Response, ApiError> {
        let before = &kept.record;
        if expected.is_some_and(|expected| expected != before.version) {
            return Err(version_conflict(before.version));
        }
        let body = Value::Object(fields).to_string();
        kept_policy::compile(&body).map_err(|fault| invalid("", fault))?;
        if body == before.body {
            return Ok(answer(StatusCode::OK, &PolicyShape::of_kept(kept)));
        }
        let record = PolicyRecord {
            version: before.version + 1,
            body,
            updated_at_ms: self.errand.state.gateway.clock().unix_ms(),
            ..before.clone()
        };
        let change = Change::Put { before: Some(before.clone()), after: record };
        self.settle(action, change).await.map_err(|error| match error {
            StoreError::Conflict | StoreError::NotFound => version_conflict(before.version),
            StoreError::Unavailable(_) => unavailable(&error),
        })?;
        self.told(&before.id, StatusCode::OK)
    }

    /// Changes what is kept, and takes down who did, also where whoever does it hangs up.
    async fn settle(&self, action: &'static str, change: Change) -> Result<(), StoreError> {
        let gateway = &self.errand.state.gateway;
        let (own, caller) = (gateway.clone(), self.errand.visit.caller.clone());
        let whole = gateway.to_the_end(async move {
            let (book, audit) = (own.policies(), own.audit());
            let (before, after, done) = match change {
                Change::Put { before, after } => {
                    let expected = before.as_ref().map(|before| before.version);
                    let done = book.put(after.clone(), expected).await;
                    (before, Some(after), done)
                }
                Change::Delete(before) => {
                    let done = book.delete(&before.organisation, &before.id).await;
                    (Some(before), None, done)
                }
            };
            let detail = match &done {
                Ok(()) => None,
                Err(StoreError::Unavailable(_)) => Some(OUTCOME_UNKNOWN.to_owned()),
                Err(StoreError::Conflict | StoreError::NotFound) => return done,
            };
            let digest = |one: &PolicyRecord| format!("sha256:{}", hex(&Sha256::digest(&one.body)));
            audit.note(AuditEntry {
                subject: before.as_ref().or(after.as_ref()).map(|one| one.id.clone()),
                before: before.as_ref().map(digest),
                after: after.as_ref().map(digest),
                detail,
                ..audit.deed_of(&caller, action)
            });
            done
        });
        whole.await
    }

    /// The answer that shows a policy as it is now.
    fn told(&self, id: &str, status: StatusCode) -> Result<Response, ApiError> {
        let kept = self.book().find(self.organisation(), id);
        let gone = || ApiError::new(ApiCode::NotFound, "somebody else deleted it meanwhile");
        Ok(answer(status, &PolicyShape::of_kept(&*kept.ok_or_else(gone)?)))
    }
}

/// A change of a kept policy, as it is asked for.
struct Asked {
    desk: PolicyErrand,
    kept: Arc<Kept>,
    /// What is sent, but for `expected_version`.
    body: Map<String, Value>,
    expected: Option<u64>,
}

impl Asked {
    async fn read(
        state: ApiState,
        id: Result<Path<String>, PathRejection>,
        request: Request,
    ) -> Result<Self, ApiError> {
        let (desk, body) = PolicyErrand::begin_with_body(state, request).await?;
        let kept = desk.kept(id)?;
        let mut body = desk.errand.object(body).await?;
        let expected = expected_version(&mut body)?;
        Ok(Self { desk, kept, body, expected })
    }
}

async fn list(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let desk = PolicyErrand::begin(state, request).await?;
    let [] = parameters(desk.errand.visit.query.as_deref(), &[])?;
    let of_file = desk.errand.visit.snapshot().policies.iter().map(|policy| Found::File(policy));
    let kept = desk.book().list(desk.organisation()).into_iter().map(Found::Kept);
    let data: Vec<_> = of_file.chain(kept).map(|found| desk.shape(&found)).collect();
    Ok(answer(StatusCode::OK, &json!({ "data": data })))
}

async fn one(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let desk = PolicyErrand::begin(state, request).await?;
    let found = desk.find(id)?;
    Ok(answer(StatusCode::OK, &desk.shape(&found)))
}

async fn create(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let (desk, body) = PolicyErrand::begin_with_body(state, request).await?;
    let mut fields = Map::new();
    merge(&mut fields, desk.errand.object(body).await?);
    let made = || make_id(rand::random_iter::<[u8; 32]>().flatten());
    let id = fields.entry("id").or_insert_with(|| made().into());
    let id = id.as_str().unwrap_or_default().to_owned();
    let body = Value::Object(fields).to_string();
    kept_policy::compile(&body).map_err(|fault| invalid("", fault))?;
    let kept = desk.book().list(desk.organisation());
    let taken =
        || ApiError::new(ApiCode::NameTaken, format!("another policy is named `{id}` already"));
    if desk.of_file(&id).is_some() || kept.iter().any(|one| one.record.id == id) {
        return Err(taken());
    }
    if kept.len() >= MAX_POLICIES {
        let message = format!("there are {MAX_POLICIES} policies already, delete one first");
        return Err(ApiError::new(ApiCode::InvalidDefinition, message));
    }
    let now = desk.errand.state.gateway.clock().unix_ms();
    let record = PolicyRecord {
        organisation: desk.organisation().to_owned(),
        id: id.clone(),
        version: 1,
        body,
        created_at_ms: now,
        updated_at_ms: now,
    };
    let change = Change::Put { before: None, after: record };
    desk.settle("policy.created", change).await.map_err(|error| match error {
        StoreError::Conflict | StoreError::NotFound => taken(),
        StoreError::Unavailable(_) => unavailable(&error),
    })?;
    let mut response = desk.told(&id, StatusCode::CREATED)?;
    let place = HeaderValue::from_str(&format!("/v1/policies/{id}"));
    response.headers_mut().insert(LOCATION, place.expect("letters, digits and signs"));
    Ok(response)
}

async fn change(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let Asked { desk, kept, body: changes, expected } = Asked::read(state, id, request).await?;
    if changes.get("id").is_some_and(|id| id.as_str() != Some(&kept.record.id)) {
        let message = "cannot be changed, make another policy".to_owned();
        return Err(invalid("", PolicyFault { pointer: "/id".into(), message }));
    }
    let mut fields = kept.fields();
    merge(&mut fields, changes);
    desk.replace(&kept, fields, expected, "policy.changed").await
}

async fn enforce(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let Asked { desk, kept, body, expected } = Asked::read(state, id, request).await?;
    if let Some(name) = body.keys().next() {
        let pointer = format!("/{}", pointer_step(name));
        return Err(ApiError::field(None, &pointer, "the only field here is `expected_version`"));
    }
    let mut fields = kept.fields();
    fields.insert("mode".into(), "enforce".into());
    desk.replace(&kept, fields, expected, "policy.enforced").await
}

async fn remove(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let desk = PolicyErrand::begin(state, request).await?;
    let kept = desk.kept(id)?;
    match desk.settle("policy.deleted", Change::Delete(kept.record.clone())).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(StoreError::Conflict | StoreError::NotFound) => {
            Err(ApiError::new(ApiCode::NotFound, "somebody else deleted it meanwhile"))
        }
        Err(error @ StoreError::Unavailable(_)) => Err(unavailable(&error)),
    }
}

/// A policy as the API shows it: what was written, and what was left out by its meaning.
#[derive(Serialize)]
struct PolicyShape {
    id: String,
    managed: &'static str,
    version: u64,
    mode: Value,
    #[serde(rename = "match")]
    matching: Value,
    effect: Value,
    message: Value,
    expires_minutes: Value,
    priority: Value,
    rule: Option<String>,
    error: Option<String>,
    created_at: Option<TimeText>,
    updated_at: Option<TimeText>,
}

impl PolicyShape {
    fn new(fields: &Map<String, Value>, id: &str, managed: &'static str) -> Self {
        let of = |name: &str, default: Value| {
            fields.get(name).filter(|value| !value.is_null()).cloned().unwrap_or(default)
        };
        Self {
            id: id.to_owned(),
            managed,
            version: 1,
            mode: of("mode", "enforce".into()),
            matching: of("match", json!({})),
            effect: of("effect", Value::Null),
            message: of("message", Value::Null),
            expires_minutes: of("expires_minutes", 60.into()),
            priority: of("priority", 0.into()),
            rule: None,
            error: None,
            created_at: None,
            updated_at: None,
        }
    }

    fn of_kept(kept: &Kept) -> Self {
        let record = &kept.record;
        let (rule, error) = match &kept.compiled {
            Ok(policy) => (rule(policy), None),
            Err(error) => (None, Some(error.clone())),
        };
        Self {
            version: record.version,
            rule,
            error,
            created_at: Some(rfc3339(record.created_at_ms)),
            updated_at: Some(rfc3339(record.updated_at_ms)),
            ..Self::new(&kept.fields(), &record.id, "api")
        }
    }
}

fn rule(policy: &Policy) -> Option<String> {
    policy.rule.as_deref().map(str::to_owned)
}

/// What a policy that is no policy is answered with; `at` is the pointer of the policy itself.
pub fn invalid(at: &str, fault: PolicyFault) -> ApiError {
    let pointer = format!("{at}{}", fault.pointer);
    let name = fault.pointer.rsplit('/').next().unwrap_or_default();
    let message =
        if name.is_empty() { fault.message } else { format!("`{name}` {}", fault.message) };
    ApiError { code: ApiCode::InvalidDefinition, ..ApiError::field(None, &pointer, &message) }
}

fn version_conflict(version: u64) -> ApiError {
    let text = format!("it is not the version that was expected; it was {version} last");
    ApiError::new(ApiCode::VersionConflict, text)
}

fn expected_version(fields: &mut Map<String, Value>) -> Result<Option<u64>, ApiError> {
    let name = "expected_version";
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => given.as_u64().map(Some).ok_or_else(|| {
            let text = "`expected_version` must be a whole number";
            ApiError::field(Some(name), "/expected_version", text)
        }),
    }
}

/// What is sent changes, objects field by field; null clears.
pub fn merge(fields: &mut Map<String, Value>, changes: Map<String, Value>) {
    for (name, change) in changes {
        match change {
            Value::Null => {
                fields.remove(&name);
            }
            Value::Object(changes) => {
                let mut inner = match fields.remove(&name) {
                    Some(Value::Object(inner)) => inner,
                    _ => Map::new(),
                };
                merge(&mut inner, changes);
                fields.insert(name, inner.into());
            }
            other => {
                fields.insert(name, other);
            }
        }
    }
}
