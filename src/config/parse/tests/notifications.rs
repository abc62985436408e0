//! `notifications` and `organisations`.

use super::*;
use crate::config::notifications::Recipients;
use crate::model::notice::Event;
use crate::policy::mail::MailTls;

/// Secrets of ways by which people are told.
fn told(source: &Source) -> Result<Secret, SourceError> {
    match source.to_string().trim_matches('`') {
        "file `/s/hook" => Ok(Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")),
        "file `/s/smtp" => Ok(Secret::new(format!("smtps://a:{CANARY}@mail.example.com\n"))),
        "file `/s/http" => Ok(Secret::new(format!("https://a:{CANARY}@mail.example.com\n"))),
        _ => lookup(source),
    }
}

fn parse_told(fragment: &str) -> Result<Snapshot, ConfigErrors> {
    parse("f", &with_head(fragment), &Environment { lookup: &told, ..environment() })
}

#[track_caller]
fn right(fragment: &str) -> Snapshot {
    parse_told(fragment).unwrap_or_else(|found| panic!("{found}\n{fragment}"))
}

#[track_caller]
fn wrong(fragment: &str, expected: &str) {
    let found = parse_told(fragment).expect_err("is wrong");
    assert_eq!(lines(&found.errors), expected, "{fragment}");
    assert!(!found.to_string().contains(CANARY), "{found}");
}

#[test]
fn nobody_is_told_where_nothing_is_said() {
    for text in ["", "notifications: {webhook: null, smtp: null}\n", "notifications:\n"] {
        let found = right(text).notifications;
        assert!(found.webhook.is_none() && found.mail.is_none(), "{text}");
    }
}

#[test]
fn a_server_is_told_what_it_wants() {
    let found = right(
        "notifications: {webhook: {url: \"https://hooks.example.com/a?b=c\", secret: {file: /s/hook},\n  \
         events: [call.finished, approval.requested, call.finished]}}\n",
    );
    let webhook = found.notifications.webhook.expect("a webhook");
    assert_eq!(webhook.endpoint.to_string(), "https://hooks.example.com/a?b=c");
    assert!(webhook.keys.is_some());
    assert_eq!(webhook.events, [Event::ApprovalRequested, Event::CallFinished]);
    let redacted = found.redacted.pointer("/notifications/webhook/url").expect("the url");
    assert_eq!(redacted, "https://hooks.example.com/a?***");
}

#[test]
fn plain_http_stays_on_this_machine() {
    let with = |url: &str| {
        format!("notifications: {{webhook: {{url: \"{url}\", secret: {{file: /s/hook}}}}}}\n")
    };
    for url in ["http://127.0.0.1:8700/a", "http://[::1]/"] {
        let webhook = right(&with(url)).notifications.webhook.expect("a webhook");
        assert_eq!(webhook.events, Event::ALL);
    }
    for url in ["http://10.0.0.1/", "http://hooks.example.com/", "http://localhost.example.com/"] {
        wrong(
            &with(url),
            "3:32: notifications.webhook.url: must be https; plain http only to a loopback address such as 127.0.0.1",
        );
    }
}

#[test]
fn people_are_told_by_mail() {
    let found = right(
        "organisations: [{id: default, admins: [ada@example.com, bob@example.com]}]\n\
         notifications: {smtp: {url: {file: /s/smtp}, from: sortie@example.com, to: admins}}\n",
    );
    let mail = found.notifications.mail.expect("mail");
    let server = mail.server.expect("a server");
    assert_eq!(
        (server.host.as_str(), server.port, server.tls),
        ("mail.example.com", 465, MailTls::Whole)
    );
    assert_eq!((mail.to, mail.events.len()), (Recipients::Admins, 6));
    let admins: Vec<_> = found.organisations[0].admins.iter().map(|one| one.as_str()).collect();
    assert_eq!(admins, ["ada@example.com", "bob@example.com"]);
    assert_eq!(found.warnings, []);
    let listed =
        right("notifications: {smtp: {url: \"smtp://127.0.0.1:2525\", from: a@b, to: [c@d]}}\n");
    let Some(Recipients::Listed(to)) = listed.notifications.mail.map(|mail| mail.to) else {
        panic!("a list")
    };
    assert_eq!(to.iter().map(|one| one.as_str()).collect::<Vec<_>>(), ["c@d"]);
    let nobody =
        right("notifications: {smtp: {url: \"smtp://127.0.0.1\", from: a@b, to: admins}}\n");
    assert_eq!(
        lines(&nobody.warnings),
        "3:64: notifications.smtp.to: nobody of `default` gets mail, it has no `organisations.admins`"
    );
}

#[test]
fn a_secret_that_is_gone_keeps_notifications_waiting() {
    let found = right(
        "notifications: {webhook: {url: \"https://h.example.com/\", secret: {file: gone}}, smtp: {url: {file: gone}, from: a@b, to: [c@d]}}\n",
    );
    let (webhook, mail) = (found.notifications.webhook, found.notifications.mail);
    assert!(webhook.is_some_and(|webhook| webhook.keys.is_none()));
    assert!(mail.is_some_and(|mail| mail.server.is_none()));
    let message = "file `gone` is not there, nobody is told this way until it can be read";
    let expected = format!(
        "3:66: notifications.webhook.secret: {message}\n3:93: notifications.smtp.url: {message}"
    );
    assert_eq!(lines(&found.warnings), expected);
}

#[test]
fn what_is_wrong_is_told_without_secrets() {
    wrong(
        "notifications: {webhook: {url: \"https://h.example.com/\", secret: {file: /s/good}}, smtp: {url: {file: /s/http}, from: a, to: [b]}}\n",
        "3:66: notifications.webhook.secret: the secret must be `whsec_` and standard base64 with padding\n\
         3:96: notifications.smtp.url: must be smtps://USER:PASSWORD@HOST:465 or smtp://HOST:587\n\
         3:119: notifications.smtp.from: must be a mail address such as ada@example.com\n\
         3:126: notifications.smtp.to: must be a mail address such as ada@example.com",
    );
    wrong(
        "notifications: {webhook: {}, smtp: {}}\n",
        "3:26: notifications.webhook.url: is missing, write where notifications go\n\
         3:26: notifications.webhook.secret: is missing, write {file: PATH} or {env: NAME}\n\
         3:36: notifications.smtp.url: is missing, write {file: PATH}, or smtp://HOST:587 without a password\n\
         3:36: notifications.smtp.from: is missing, write the sender's mail address\n\
         3:36: notifications.smtp.to: is missing, write `admins` or a list of mail addresses",
    );
}

#[test]
fn a_caller_is_of_an_organisation_that_there_is() {
    let with = |organisations: &str, organisation: &str| {
        format!(
            "version: 1\nauth: {{keys: [{{name: a, {organisation}scopes: [agent], key: {{env: GOOD}}}}]}}\n{organisations}"
        )
    };
    let two = "organisations: [{id: shop}, {id: clinic, admins: [a@b]}]\n";
    let found = good(&with(two, "organisation: clinic, "));
    let ids: Vec<_> = found.organisations.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["shop", "clinic"]);
    let Authentication::Known(known) = &found.authentication else { panic!("keys") };
    assert_eq!(&*known.keys.all()[0].caller.organisation, "clinic");
    assert_eq!(good(&with("", "")).organisations.len(), 1);
    check_errors(
        &with(two, "organisation: clinc, "),
        "2:39: auth.keys[0].organisation: must be `shop` or `clinic`, not `clinc`",
    );
    check_errors(
        &with(two, ""),
        "2:15: auth.keys[0].organisation: is missing, must be `shop` or `clinic`",
    );
}
