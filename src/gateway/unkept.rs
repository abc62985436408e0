//! Calls that leave nothing behind: at a desk, or outside of their key's bounds.

use std::sync::Arc;

use crate::exec::Presence;
use crate::gateway::asking::{Malformed, hold, resolve_names};
use crate::gateway::{Gateway, Way};
use crate::model::call::ToolCall;
use crate::model::outcome::CallOutcome;
use crate::net::epoch::Epoch;
use crate::policy::identity::Caller;

impl Gateway {
    /// Runs one call for whoever sits at this machine: it is not kept, and nobody is asked.
    pub async fn call_at_desk(
        self: &Arc<Self>,
        epoch: Arc<Epoch>,
        caller: Arc<Caller>,
        mut call: ToolCall,
    ) -> Result<CallOutcome, Malformed> {
        resolve_names(&epoch, &caller, &mut call)?;
        hold(&caller, &mut call);
        Ok(self.run_unkept(&epoch, &caller, &call).await)
    }

    /// Runs a call that has no place among the open ones.
    pub(super) async fn run_unkept(
        self: &Arc<Self>,
        epoch: &Epoch,
        caller: &Caller,
        call: &ToolCall,
    ) -> CallOutcome {
        let presence = Presence::until(self.cut_off.clone());
        let way = Way { epoch, call, caller, presence: &presence, live: None, leave: None };
        let ended = self.run(&way, self.clock.unix_ms()).await;
        let (outcome, spans) = ended.unwrap_or_else(|_| {
            unreachable!("without a place it neither waits nor binds anything")
        });
        self.export(&way, &outcome, spans);
        outcome
    }
}
