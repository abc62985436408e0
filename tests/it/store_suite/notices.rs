//! Notices and the audit trail.

use sortie::store::Store;
use sortie::store::records::AuditEntry;

use super::records::{MINUTE, NOW, notice};

pub(super) async fn a_notice_is_claimed_once_and_again_after_the_lease(store: &dyn Store) {
    store.notify(vec![notice(1), notice(2), notice(3)]).await.expect("it works");
    let now = NOW + MINUTE;
    let claim = |at| store.claim_notices(at, at + MINUTE, 2);
    let (one, other) = tokio::join!(claim(now), claim(now));
    let mut both = [one.expect("it works"), other.expect("it works")].concat();
    both.sort_by_key(|one| one.id);
    let told: Vec<_> = both.iter().map(|one| (one.notice.clone(), one.tries)).collect();
    assert_eq!(told, [(notice(1), 0), (notice(2), 0), (notice(3), 0)]);
    assert!(claim(now + MINUTE - 1).await.expect("it works").is_empty());

    store.drop_notice(both[0].id).await.expect("it works");
    store.put_off_notice(both[1].id, now + 5 * MINUTE).await.expect("it works");
    let again = claim(now + MINUTE).await.expect("it works");
    let again: Vec<_> = again.into_iter().map(|one| (one.notice, one.tries)).collect();
    assert_eq!(again, [(notice(3), 1)]);
    assert!(claim(now + MINUTE).await.expect("it works").is_empty());
    let last = claim(now + 5 * MINUTE).await.expect("it works");
    let last: Vec<_> = last.into_iter().map(|one| (one.notice, one.tries)).collect();
    assert_eq!(last, [(notice(2), 1), (notice(3), 2)]);
}

pub(super) async fn a_notice_is_not_due_before_it_was_made(store: &dyn Store) {
    store.notify(vec![notice(1)]).await.expect("it works");
    assert!(store.claim_notices(NOW, NOW + MINUTE, 9).await.expect("it works").is_empty());
}

pub(super) async fn the_audit_trail_is_told_newest_first(store: &dyn Store) {
    let entry = |number: i64, organisation: &str| AuditEntry {
        at_ms: NOW + number,
        organisation: organisation.to_owned(),
        actor: "ops".to_owned(),
        action: "policy.created".to_owned(),
        subject: (number != 2).then(|| "big-refunds".to_owned()),
        before: None,
        after: Some("sha256:00".to_owned()),
        detail: Some(r#"{"é":1}"#.to_owned()),
    };
    let entries = [(1, "shop"), (2, "shop"), (3, "shop"), (4, "bank")];
    store
        .audit(entries.map(|(number, whose)| entry(number, whose)).to_vec())
        .await
        .expect("it works");
    let told = store.audited("shop", NOW + 2, 9).await;
    assert_eq!(told, Ok(vec![entry(3, "shop"), entry(2, "shop")]));
    assert_eq!(store.audited("shop", NOW, 1).await, Ok(vec![entry(3, "shop")]));
    assert_eq!(store.audited("nobody", NOW, 9).await, Ok(Vec::new()));
}
