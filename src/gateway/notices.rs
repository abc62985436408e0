//! What people are told: a body for the operator's server, and a mail for people, one notice for each way that wants it.

use std::fmt::Write;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::notifications::Recipients;
use crate::config::snapshot::{Snapshot, Tool};
use crate::config::storage::Capture;
use crate::model::approval::{Approval, ApprovalKind};
use crate::model::id::random_base62;
use crate::model::notice::{Event, Sink};
use crate::model::outcome_text::ApprovalBody;
use crate::model::time::{TimeText, rfc3339};
use crate::policy::mail::MailAddress;
use crate::store::records::{CallRecord, Notice};

/// Longer arguments are left out of what is told: whoever decides sees them where they decide.
const MOST_ARGUMENTS: usize = 32 * 1024;
/// Letters and digits of a notice's id.
const ID_LENGTH: usize = 24;

/// Makes notices, as a configuration wants them.
#[derive(Debug, Clone, Copy)]
pub struct Teller<'a> {
    snapshot: &'a Snapshot,
    now_ms: i64,
}

/// A mail in the outbox. The sender and the server are those of the configuration that delivers it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailBody {
    /// Who gets it.
    pub to: Vec<String>,
    /// One line.
    pub subject: String,
    /// Plain text.
    pub text: String,
}

/// What a server is told, as Standard Webhooks has it.
#[derive(Serialize)]
struct WebhookBody<'d, T> {
    r#type: &'static str,
    timestamp: TimeText,
    data: &'d T,
}

#[derive(Serialize)]
struct ApprovalData<'a> {
    #[serde(flatten)]
    approval: ApprovalBody<'a>,
    organisation: &'a str,
    agent_id: Option<&'a str>,
    session_id: Option<&'a str>,
    end_user: Option<&'a str>,
    arguments: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct CallData<'a> {
    call_id: &'a str,
    organisation: &'a str,
    tool: &'a str,
    status: &'static str,
    code: Option<&'a str>,
    agent_id: Option<&'a str>,
    session_id: Option<&'a str>,
    run_id: Option<&'a str>,
    created_at: TimeText,
    finished_at: Option<TimeText>,
}

#[derive(Serialize)]
struct ToolData<'a> {
    tool: &'a str,
    owner: Option<&'a str>,
    runbook: Option<&'a str>,
}

#[derive(Serialize)]
struct OverlapData<'a> {
    tool: &'a str,
    previous_until: TimeText,
}

#[derive(Serialize)]
struct RejectedData<'a> {
    errors: &'a [String],
}

/// A mail's subject and text.
struct Letter {
    subject: String,
    text: String,
}

impl<'a> Teller<'a> {
    /// By the ways of this configuration, at this time in Unix milliseconds.
    pub fn new(snapshot: &'a Snapshot, now_ms: i64) -> Self {
        Self { snapshot, now_ms }
    }

    /// A call waits for a person.
    pub fn approval_requested(&self, approval: &Approval) -> Vec<Notice> {
        let data = self.approval_data(approval);
        let letter = || {
            let mut text = format!("The tool {} waits for a decision.\n\n", approval.tool);
            lines(&mut text, approval);
            if let Some(arguments) = data.arguments {
                let _ = writeln!(text, "Arguments: {arguments}");
            }
            let (id, until) = (&approval.id, rfc3339(approval.expires_at_ms));
            let _ = writeln!(text, "\nUndecided at {}, it is refused. To decide:", until.as_str());
            let _ = writeln!(text, "  sortie approvals show {id}");
            let _ = writeln!(text, "  sortie approvals approve {id}");
            Letter { subject: format!("Approval needed: {}", approval.tool), text }
        };
        self.about_approval(Event::ApprovalRequested, approval, &data, letter)
    }

    /// A call does not wait any more.
    pub fn approval_decided(&self, approval: &Approval) -> Vec<Notice> {
        let data = self.approval_data(approval);
        let letter = || {
            let (tool, status) = (&approval.tool, approval.status.as_str());
            let mut text = format!("The call of the tool {tool} is {status}.\n\n");
            lines(&mut text, approval);
            if let Some(by) = &approval.decided_by {
                let _ = writeln!(text, "By: {}", by.name.as_ref().unwrap_or(&by.id));
            }
            if let Some(reason) = &approval.reason {
                let _ = writeln!(text, "Reason: {reason}");
            }
            Letter { subject: format!("Approval {status}: {tool}"), text }
        };
        self.about_approval(Event::ApprovalDecided, approval, &data, letter)
    }

    /// A call that had waited is over.
    pub fn call_finished(&self, record: &CallRecord) -> Vec<Notice> {
        let (status, code) = (record.phase.as_str(), record.code.as_deref());
        let data = CallData {
            call_id: record.id.as_str(),
            organisation: &record.organisation,
            tool: &record.tool,
            status,
            code,
            agent_id: record.context.agent_id.as_deref(),
            session_id: record.context.session_id.as_deref(),
            run_id: record.context.run_id.as_ref().map(|run| run.as_str()),
            created_at: rfc3339(record.created_at_ms),
            finished_at: record.finished_at_ms.map(rfc3339),
        };
        let letter = || {
            let (tool, id, code) = (&record.tool, record.id.as_str(), code.unwrap_or_default());
            Letter {
                subject: format!("Call {status}: {tool}"),
                text: format!("The call {id} of the tool {tool} is over: {status}, {code}.\n"),
            }
        };
        self.told(Event::CallFinished, Some(&record.organisation), &data, Some(letter))
    }

    /// A tool has been failing and is not called for a while.
    pub fn tool_failing(&self, tool: &Tool) -> Vec<Notice> {
        let name = tool.name.as_str();
        let (owner, runbook) = (tool.owner.as_deref(), tool.runbook.as_deref());
        let letter = || {
            let mut text = format!(
                "The tool {name} has been failing: it is not called until a try succeeds.\n\n"
            );
            for (word, value) in [("Owner", owner), ("Runbook", runbook)] {
                if let Some(value) = value {
                    let _ = writeln!(text, "{word}: {value}");
                }
            }
            let _ = writeln!(text, "See: sortie status {name}");
            Letter { subject: format!("Tool is failing: {name}"), text }
        };
        let data = ToolData { tool: name, owner, runbook };
        self.told(Event::ToolFailing, None, &data, Some(letter))
    }

    /// A reload kept the configuration before.
    pub fn config_rejected(&self, errors: &[String]) -> Vec<Notice> {
        let letter = || Letter {
            subject: "Configuration rejected".into(),
            text: format!(
                "The new configuration is not taken, the one before stays in force.\n\n{}\n",
                errors.join("\n")
            ),
        };
        self.told(Event::ConfigRejected, None, &RejectedData { errors }, Some(letter))
    }

    /// A tool's previous key stops signing at this Unix second.
    pub fn overlap_ending(&self, tool: &str, until: i64) -> Vec<Notice> {
        let previous_until = rfc3339(until.saturating_mul(1000));
        let letter = || Letter {
            subject: format!("Signing key ends: {tool}"),
            text: format!(
                "The previous signing key of the tool {tool} stops signing at {}. From then on its server has to take \
                 the current one.\n",
                rfc3339(until.saturating_mul(1000)).as_str()
            ),
        };
        let data = OverlapData { tool, previous_until };
        self.told(Event::OverlapEnding, None, &data, Some(letter))
    }

    /// The person of a conversation is asked in it: nobody else gets mail for them.
    fn about_approval(
        &self,
        event: Event,
        approval: &Approval,
        data: &ApprovalData<'_>,
        letter: impl FnOnce() -> Letter,
    ) -> Vec<Notice> {
        let letter = (approval.kind == ApprovalKind::Operator).then_some(letter);
        self.told(event, Some(&approval.organisation), data, letter)
    }

    fn approval_data<'d>(&self, approval: &'d Approval) -> ApprovalData<'d> {
        let tool = self.snapshot.tool(&approval.tool);
        let capture = tool.map_or(self.snapshot.storage.capture, |tool| tool.capture);
        let text = approval
            .arguments
            .as_ref()
            .filter(|text| capture == Capture::Full && text.len() <= MOST_ARGUMENTS);
        ApprovalData {
            approval: ApprovalBody::from(approval),
            organisation: &approval.organisation,
            agent_id: approval.agent_id.as_deref(),
            session_id: approval.session_id.as_deref(),
            end_user: approval.end_user.as_deref(),
            arguments: text.and_then(|text: &Bytes| serde_json::from_slice(text).ok()),
        }
    }

    /// One notice for each way that wants to hear of it.
    fn told<T: Serialize>(
        &self,
        event: Event,
        organisation: Option<&str>,
        data: &T,
        letter: Option<impl FnOnce() -> Letter>,
    ) -> Vec<Notice> {
        let ways = &self.snapshot.notifications;
        let mut notices = Vec::new();
        if ways.webhook.as_ref().is_some_and(|sink| sink.events.contains(&event)) {
            let timestamp = rfc3339(self.now_ms);
            let body = WebhookBody { r#type: event.as_str(), timestamp, data };
            let body = serde_json::to_string(&body).expect("texts and numbers are JSON");
            notices.push(self.notice(Sink::Webhook, event, body));
        }
        if let Some(sink) = ways.mail.as_ref().filter(|sink| sink.events.contains(&event))
            && let Some(letter) = letter
        {
            let to = self.recipients(&sink.to, organisation);
            if !to.is_empty() {
                let Letter { subject, text } = letter();
                let body = MailBody { to, subject, text };
                let body = serde_json::to_string(&body).expect("texts are JSON");
                notices.push(self.notice(Sink::Smtp, event, body));
            }
        }
        notices
    }

    fn notice(&self, sink: Sink, event: Event, body: String) -> Notice {
        let random = random_base62(ID_LENGTH, rand::random_iter::<[u8; 32]>().flatten());
        Notice {
            sink: sink.as_str().into(),
            event: event.as_str().into(),
            message_id: format!("msg_{random}"),
            body,
            created_at_ms: self.now_ms,
        }
    }

    /// What is about no organisation is told to the admins of all.
    fn recipients(&self, to: &Recipients, organisation: Option<&str>) -> Vec<String> {
        let mut addresses: Vec<&MailAddress> = match to {
            Recipients::Listed(list) => list.iter().collect(),
            Recipients::Admins => {
                let all = self.snapshot.organisations.iter();
                let about = all.filter(|one| organisation.is_none_or(|id| one.id == id));
                about.flat_map(|one| &one.admins).collect()
            }
        };
        addresses.sort_unstable();
        addresses.dedup();
        addresses.into_iter().map(ToString::to_string).collect()
    }
}

/// What a person needs to know about a call.
fn lines(text: &mut String, approval: &Approval) {
    let facts = [
        ("Call", Some(approval.call_id.as_str())),
        ("Approval", Some(approval.id.as_str())),
        ("Agent", approval.agent_id.as_deref()),
        ("End user", approval.end_user.as_deref()),
        ("Policy", Some(approval.policy.as_str())),
        ("Rule", approval.rule.as_deref()),
        ("Message", approval.message.as_deref()),
        ("Arguments digest", Some(approval.arguments_digest.as_str())),
    ];
    for (word, value) in facts {
        if let Some(value) = value {
            let _ = writeln!(text, "{word}: {value}");
        }
    }
}
