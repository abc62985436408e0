//! What happens to calls, told to whoever listens: bounded queues, and a short memory for those who come back.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::model::call::{CallContext, ToolCall};
use crate::model::id::{CallId, random_base62};
use crate::model::outcome::{CallOutcome, FailureCode};
use crate::policy::identity::Caller;

/// Listeners at the same time.
pub const MOST_LISTENERS: usize = 1000;
/// Events that are remembered for those who come back.
const REMEMBERED: usize = 1024;
/// Bytes of them: the arguments of a call may be large.
const REMEMBERED_BYTES: usize = 4 << 20;
/// Events that wait for one listener.
const WAITING: usize = 256;
/// Bytes of them; one event of any size may always wait.
const WAITING_BYTES: usize = 256 << 10;
/// How long is remembered while nobody listens.
const MEMORY: Duration = Duration::from_secs(60);

/// Something that happened to a call.
#[derive(Debug, Clone)]
pub struct Event {
    /// Whose call it is.
    pub organisation: String,
    /// The conversation.
    pub session_id: Option<String>,
    /// The turn of the conversation.
    pub turn_id: Option<String>,
    /// The agent.
    pub agent_id: Option<String>,
    /// The tool's name.
    pub tool: String,
    /// The call.
    pub call_id: CallId,
    /// What happened.
    pub what: What,
}

/// What can happen to a call.
#[derive(Debug, Clone)]
pub enum What {
    /// It waits for the person.
    Confirm {
        /// What it would be run with, as compact JSON.
        arguments: Bytes,
        /// When it is too late, in Unix milliseconds.
        expires_at_ms: i64,
    },
    /// It has ended.
    End {
        /// Whether it succeeded.
        ok: bool,
        /// How long it took.
        ms: u128,
    },
    /// It begins to run.
    Start {
        /// What is said to the person meanwhile.
        filler: Option<String>,
    },
}

impl Event {
    /// A call begins to run.
    pub fn start(organisation: &str, call: &ToolCall, filler: Option<&str>) -> Self {
        let what = What::Start { filler: filler.map(str::to_owned) };
        Self::new(organisation, &call.id, &call.tool, &call.context, what)
    }

    /// A call waits for the person.
    pub fn confirm(organisation: &str, call: &ToolCall, expires_at_ms: i64) -> Self {
        let what = What::Confirm { arguments: call.arguments.text().clone(), expires_at_ms };
        Self::new(organisation, &call.id, &call.tool, &call.context, what)
    }

    fn new(
        organisation: &str,
        call_id: &CallId,
        tool: &str,
        context: &CallContext,
        what: What,
    ) -> Self {
        Self {
            organisation: organisation.to_owned(),
            session_id: context.session_id.clone(),
            turn_id: context.turn_id.clone(),
            agent_id: context.agent_id.clone(),
            tool: tool.to_owned(),
            call_id: call_id.clone(),
            what,
        }
    }

    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let texts = [&self.session_id, &self.turn_id, &self.agent_id];
        let own = match &self.what {
            What::Confirm { arguments, .. } => arguments.len(),
            What::End { .. } => 0,
            What::Start { filler } => filler.as_ref().map_or(0, String::len),
        };
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        size_of::<Self>() + self.organisation.len() + self.tool.len() + texts + own
    }
}

/// An event with its number: each has a higher one than those before.
#[derive(Debug)]
pub struct Told {
    /// The number.
    pub number: u64,
    /// The event.
    pub event: Event,
}

/// What somebody may hear, and wants to.
#[derive(Debug, Clone)]
pub struct Audience {
    /// Whose organisation and bounds hold.
    pub caller: Arc<Caller>,
    /// The only conversation that is listened to.
    pub session_id: Option<String>,
}

impl Audience {
    fn hears(&self, event: &Event) -> bool {
        let caller = &self.caller;
        let agent = event.agent_id.as_deref();
        *caller.organisation == event.organisation
            && self.session_id.as_ref().is_none_or(|id| event.session_id.as_ref() == Some(id))
            && caller.may_call(&event.tool)
            && (caller.agents.is_empty() || agent.is_some_and(|agent| caller.speaks_for(agent)))
    }
}

/// Tells events. While nobody listens, and nobody has lately, an event costs one atomic read.
#[derive(Debug)]
pub struct Events {
    awake: AtomicBool,
    clock: Arc<dyn Clock>,
    /// Numbers begin anew with each process: an id has this before its number, so that nobody mistakes another one's.
    origin: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The number of the next event.
    next: u64,
    ring: VecDeque<Arc<Told>>,
    ring_bytes: usize,
    /// Those who listen to one conversation, by its id.
    of_session: HashMap<String, Vec<Arc<Listener>>>,
    of_all: Vec<Arc<Listener>>,
    count: usize,
    left_at: Option<Instant>,
}

#[derive(Debug)]
struct Listener {
    audience: Audience,
    inbox: Mutex<Inbox>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Inbox {
    waiting: VecDeque<Arc<Told>>,
    bytes: usize,
    /// Events that it holds at most.
    room: usize,
    lagged: bool,
}

/// So many listen that nobody else may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} streams of events are open, which is the most")]
pub struct Crowded(usize);

/// Where somebody begins to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// After the event of this number: now.
    Now(u64),
    /// After the event of this number, which is the last there was: that after which they asked is no longer remembered.
    Reset(u64),
    /// After the event that they named.
    Resumed,
}

/// One who listens; dropping it ends that.
#[derive(Debug)]
pub struct Subscription {
    events: Arc<Events>,
    listener: Arc<Listener>,
}

/// What has come for one who listens.
#[derive(Debug, Default)]
pub struct Taken {
    /// Events in their order.
    pub events: Vec<Arc<Told>>,
    /// Whether more came after them than was kept: nothing follows any more.
    pub lagged: bool,
}

impl Events {
    /// Nobody listens yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            next: 1,
            ring: VecDeque::new(),
            ring_bytes: 0,
            of_session: HashMap::new(),
            of_all: Vec::new(),
            count: 0,
            left_at: None,
        };
        let origin = random_base62(8, rand::random_iter::<[u8; 32]>().flatten());
        Self { awake: AtomicBool::new(false), clock, origin, state: Mutex::new(state) }
    }

    /// Tells an event, which is made only where somebody may hear of it. Nobody who listens is waited for.
    pub fn tell(&self, make: impl FnOnce() -> Event) {
        if !self.awake.load(Ordering::Acquire) {
            return;
        }
        let event = make();
        let mut state = self.lock();
        if self.forgets(&mut state) {
            self.awake.store(false, Ordering::Release);
            return;
        }
        state.tell(event);
    }

    /// Tells that a call has ended. One that the key may not make is nothing that this key can tell others of.
    pub fn tell_end(&self, organisation: &str, context: &CallContext, outcome: &CallOutcome) {
        if outcome.code() == FailureCode::NotAllowedForKey.as_str() {
            return;
        }
        self.tell(|| {
            let what = What::End { ok: outcome.ended.is_ok(), ms: outcome.duration.as_millis() };
            Event::new(organisation, &outcome.id, &outcome.tool, context, what)
        });
    }

    /// Begins to listen: from now on, or after the event whose id is given. `most` listeners there may be.
    pub fn listen(
        self: &Arc<Self>,
        audience: Audience,
        after: Option<&str>,
        most: usize,
    ) -> Result<(Subscription, Beginning), Crowded> {
        let mut state = self.lock();
        let most = most.min(MOST_LISTENERS);
        if state.count >= most {
            return Err(Crowded(most));
        }
        self.forgets(&mut state);
        let last = state.next - 1;
        let (beginning, missed) = match after.map(|id| self.number(id)) {
            None => (Beginning::Now(last), Vec::new()),
            Some(number) => match number.and_then(|number| state.since(number, &audience)) {
                Some(missed) => (Beginning::Resumed, missed),
                None => (Beginning::Reset(last), Vec::new()),
            },
        };
        let inbox = Inbox {
            bytes: missed.iter().map(|told| told.event.bytes()).sum(),
            room: WAITING + missed.len(),
            waiting: missed.into(),
            lagged: false,
        };
        let listener =
            Arc::new(Listener { audience, inbox: Mutex::new(inbox), woken: Notify::new() });
        state.place(&listener.audience.session_id).push(listener.clone());
        state.count += 1;
        state.left_at = None;
        self.awake.store(true, Ordering::Release);
        drop(state);
        Ok((Subscription { events: self.clone(), listener }, beginning))
    }

    /// An event's id, as listeners are told it and give it back.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.origin)
    }

    fn number(&self, id: &str) -> Option<u64> {
        let digits = id.strip_prefix(self.origin.as_str())?.strip_prefix('-')?;
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Forgets what was told when nobody has listened for long; whether that is so.
    fn forgets(&self, state: &mut State) -> bool {
        let now = self.clock.now();
        let long_ago = |left: Instant| now.saturating_duration_since(left) >= MEMORY;
        if state.count > 0 || state.left_at.is_some_and(|left| !long_ago(left)) {
            return false;
        }
        if state.left_at.take().is_some() {
            (state.ring, state.ring_bytes) = (VecDeque::new(), 0);
            // What comes now has no number: whoever comes back later has missed something.
            state.next += 1;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell(&mut self, event: Event) {
        let told = Arc::new(Told { number: self.next, event });
        self.next += 1;
        let of_session = told.event.session_id.as_ref().and_then(|id| self.of_session.get(id));
        for listener in of_session.into_iter().flatten().chain(&self.of_all) {
            listener.offer(&told);
        }
        self.ring_bytes += told.event.bytes();
        self.ring.push_back(told);
        while self.ring.len() > REMEMBERED || self.ring_bytes > REMEMBERED_BYTES {
            let Some(oldest) = self.ring.pop_front() else { break };
            self.ring_bytes -= oldest.event.bytes();
        }
    }

    /// What was told after this number and may be heard; `None` where not all of it is remembered, or it is not a number
    /// that was told.
    fn since(&self, number: u64, audience: &Audience) -> Option<Vec<Arc<Told>>> {
        let first = self.ring.front().map_or(self.next, |told| told.number);
        let following = number.checked_add(1).filter(|next| (first..=self.next).contains(next))?;
        let missed = self.ring.iter().filter(|told| told.number >= following);
        Some(missed.filter(|told| audience.hears(&told.event)).cloned().collect())
    }

    fn place(&mut self, session_id: &Option<String>) -> &mut Vec<Arc<Listener>> {
        match session_id {
            Some(id) => self.of_session.entry(id.clone()).or_default(),
            None => &mut self.of_all,
        }
    }
}

impl Listener {
    fn offer(&self, told: &Arc<Told>) {
        if !self.audience.hears(&told.event) {
            return;
        }
        let mut inbox = self.lock();
        if inbox.lagged {
            return;
        }
        let bytes = told.event.bytes();
        let is_full = inbox.waiting.len() >= inbox.room || inbox.bytes + bytes > WAITING_BYTES;
        if is_full && !inbox.waiting.is_empty() {
            inbox.lagged = true;
        } else {
            inbox.bytes += bytes;
            inbox.waiting.push_back(told.clone());
        }
        drop(inbox);
        self.woken.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Waits until there is something to take.
    pub async fn ready(&self) {
        loop {
            let woken = self.listener.woken.notified();
            {
                let inbox = self.listener.lock();
                if !inbox.waiting.is_empty() || inbox.lagged {
                    return;
                }
            }
            woken.await;
        }
    }

    /// Takes what has come, `most` events at once.
    pub fn take(&self, most: usize) -> Taken {
        let mut inbox = self.listener.lock();
        let count = inbox.waiting.len().min(most);
        let events: Vec<_> = inbox.waiting.drain(..count).collect();
        inbox.bytes -= events.iter().map(|told| told.event.bytes()).sum::<usize>();
        if inbox.waiting.is_empty() {
            inbox.room = WAITING;
        }
        Taken { events, lagged: inbox.lagged && inbox.waiting.is_empty() }
    }

    /// The number up to which everything was taken that there was to hear; `None` while something waits.
    pub fn position(&self) -> Option<u64> {
        let state = self.events.lock();
        let inbox = self.listener.lock();
        (inbox.waiting.is_empty() && !inbox.lagged).then(|| state.next - 1)
    }

    /// An event's id.
    pub fn id(&self, number: u64) -> String {
        self.events.id(number)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.events.lock();
        let session_id = &self.listener.audience.session_id;
        let place = state.place(session_id);
        place.retain(|one| !Arc::ptr_eq(one, &self.listener));
        let nobody_is_left = place.is_empty();
        if let Some(id) = session_id.as_ref().filter(|_| nobody_is_left) {
            state.of_session.remove(id);
        }
        state.count -= 1;
        if state.count == 0 {
            state.left_at = Some(self.events.clock.now());
        }
    }
}

#[cfg(test)]
mod tests;
