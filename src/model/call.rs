//! What the runtime asked for, already parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::model::id::{CallId, IdempotencyKey, Token};
use crate::model::number::Rounded;
use crate::model::secret::Secret;
use crate::model::trace::{TraceContext, TraceId};

/// The arguments of a call, as text and as value: one reading of the same bytes.
///
/// Made by [`crate::model::json::read_object`] only, so that no duplicate key can hide behind what was checked.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// Compact JSON: white space outside strings removed, key order and number text as they came.
    pub(in crate::model) text: Bytes,
    /// The same document for validation.
    pub(in crate::model) value: Value,
    /// Numbers of which the value says less than the text.
    pub(in crate::model) rounded: Vec<Rounded>,
}

impl Arguments {
    /// The compact text.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The parsed value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The numbers of the text that the value holds rounded.
    pub fn rounded(&self) -> &[Rounded] {
        &self.rounded
    }
}

/// The person on whose behalf the agent acts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndUser {
    /// Sortie's or the runtime's id.
    pub id: Option<String>,
    /// The operator's own id.
    pub external_id: Option<String>,
}

/// Where a call comes from: it goes into the envelope and into the log, never into a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallContext {
    /// The agent.
    pub agent_id: Option<String>,
    /// The conversation.
    pub session_id: Option<String>,
    /// The turn of the conversation.
    pub turn_id: Option<String>,
    /// Where the turn stands in the conversation: one more with each.
    pub turn_index: Option<u32>,
    /// Which round of calls of the reply it is, from 1.
    pub round: Option<u32>,
    /// The person.
    pub end_user: Option<EndUser>,
    /// The run, for the Idempotency-Key.
    pub run_id: Option<Token>,
    /// The step of the run.
    pub step: Option<Token>,
    /// The position in the step; 0 when left out.
    pub call_index: u32,
    /// The model's own id of the call.
    pub model_call_id: Option<String>,
    /// Whether it is a test.
    pub test: bool,
    /// Where it stands in a trace, if it does.
    pub trace: Option<TraceContext>,
}

impl CallContext {
    /// The trace that it belongs to.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.trace.map(|context| context.id)
    }

    /// The Idempotency-Key, where run and step were given.
    pub fn idempotency_key(&self) -> Option<IdempotencyKey> {
        let (run_id, step) = self.run_id.as_ref().zip(self.step.as_ref())?;
        Some(IdempotencyKey::derive(run_id, step, self.call_index))
    }
}

/// Contract: a runtime waits 50 s for an outcome where it says nothing.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(50);

/// One call, as asked for.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Given by the runtime or made at the front door.
    pub id: CallId,
    /// Whether the runtime gave it, and may give it again.
    pub is_named: bool,
    /// The tool's name as it was asked for: it may be no tool's.
    pub tool: String,
    /// The arguments.
    pub arguments: Arguments,
    /// Where it comes from.
    pub context: Arc<CallContext>,
    /// `deadline_ms`: the bound on the whole call, as the runtime wants it.
    pub deadline: Option<Duration>,
    /// `wait_ms`: how long the runtime waits for the outcome.
    pub wait: Duration,
    /// Whether a call whose outcome is unknown is sent once more.
    pub resend: bool,
    /// A person's own header values for this call; never stored, logged or replayed.
    pub credentials: Vec<(String, Secret)>,
    /// Where it stands among the calls that came with it.
    pub batch: Option<BatchPlace>,
}

impl ToolCall {
    /// Gives it its place in a trace. A call that has the same one already costs nothing.
    pub fn stands_in(&mut self, trace: Option<TraceContext>) {
        if self.context.trace != trace {
            Arc::make_mut(&mut self.context).trace = trace;
        }
    }
}

/// The place of a call in a batch, whose calls are one round of a reply.
#[derive(Debug, Clone)]
pub struct BatchPlace {
    index: usize,
    filler_is_taken: Arc<AtomicBool>,
    filler_is_its_own: Arc<AtomicBool>,
}

impl BatchPlace {
    /// The places of a batch, from the first one on.
    pub fn of_a_batch() -> impl Iterator<Item = Self> {
        let filler_is_taken = Arc::<AtomicBool>::default();
        (0..).map(move |index| Self {
            index,
            filler_is_taken: filler_is_taken.clone(),
            filler_is_its_own: Arc::default(),
        })
    }

    /// The position, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The call begins to run and has a filler: the first of a batch that does so says its own.
    pub fn take_filler(&self) {
        if !self.filler_is_taken.swap(true, Ordering::AcqRel) {
            self.filler_is_its_own.store(true, Ordering::Release);
        }
    }

    /// Whether it is this call that says its filler.
    pub fn says_filler(&self) -> bool {
        self.filler_is_its_own.load(Ordering::Acquire)
    }
}
