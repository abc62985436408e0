//! Policies of the API, and the counts of those that only watch.

use sortie::store::records::{PolicyRecord, ShadowCount, ShadowSample};
use sortie::store::{Store, StoreError};

use super::records::NOW;

fn policy(organisation: &str, id: &str, version: u64) -> PolicyRecord {
    PolicyRecord {
        organisation: organisation.to_owned(),
        id: id.to_owned(),
        version,
        body: format!(r#"{{"id":"{id}","priority":{version}}}"#),
        created_at_ms: NOW,
        updated_at_ms: NOW + 1,
    }
}

pub(super) async fn a_policy_changes_from_the_version_that_was_seen(store: &dyn Store) {
    let first = store.revision().await.expect("it works");
    store.put_policy(policy("shop", "b", 1), None).await.expect("it works");
    store.put_policy(policy("shop", "a", 1), None).await.expect("it works");
    store.put_policy(policy("bank", "b", 1), None).await.expect("it works");
    let second = store.revision().await.expect("it works");
    assert!(second > first);
    let again = store.put_policy(policy("shop", "b", 1), None).await;
    assert_eq!(again, Err(StoreError::Conflict));
    let put = |version, expected| store.put_policy(policy("shop", "b", version), Some(expected));
    let (one, other) = tokio::join!(put(2, 1), put(2, 1));
    let both = [one, other];
    assert!(both.contains(&Ok(())) && both.contains(&Err(StoreError::Conflict)), "{both:?}");
    assert_eq!(put(3, 1).await, Err(StoreError::Conflict));
    let gone = store.put_policy(policy("shop", "c", 2), Some(1)).await;
    assert_eq!(gone, Err(StoreError::NotFound));
    let third = store.revision().await.expect("it works");
    assert!(third > second);
    let kept = [policy("bank", "b", 1), policy("shop", "a", 1), policy("shop", "b", 2)];
    assert_eq!(store.policies().await, Ok(kept.to_vec()));

    store.delete_policy("shop", "a").await.expect("it works");
    assert_eq!(store.delete_policy("shop", "a").await, Err(StoreError::NotFound));
    assert!(store.revision().await.expect("it works") > third);
    assert_eq!(store.policies().await.expect("it works").len(), 2);
}

pub(super) async fn counts_of_a_day_add_up(store: &dyn Store) {
    let count = |day, tool: &str, calls| ShadowCount {
        organisation: "shop".to_owned(),
        policy: "p".to_owned(),
        tool: tool.to_owned(),
        day,
        calls,
        matched: 2,
        disagreed: 3,
        unasked: 4,
        approved: 5,
        rejected: 6,
        expired: 7,
    };
    let of_another = ShadowCount { policy: "q".to_owned(), ..count(1, "a", 9) };
    let of_others = ShadowCount { organisation: "bank".to_owned(), ..count(1, "a", 9) };
    let first = vec![count(1, "a", 10), count(1, "b", 1), count(3, "a", 1), of_another, of_others];
    store.count_shadow(first, Vec::new()).await.expect("it works");
    store
        .count_shadow(vec![count(1, "a", 5), count(0, "a", 1)], Vec::new())
        .await
        .expect("it works");
    let (counts, samples) = store.shadow("shop", "p", [1, 2]).await.expect("it works");
    let sum = ShadowCount {
        calls: 15,
        matched: 4,
        disagreed: 6,
        unasked: 8,
        approved: 10,
        rejected: 12,
        expired: 14,
        ..count(1, "a", 0)
    };
    assert_eq!((counts, samples), (vec![sum, count(1, "b", 1)], Vec::new()));
}

pub(super) async fn the_first_twenty_samples_of_a_day_are_kept(store: &dyn Store) {
    let sample = |day, number: usize| ShadowSample {
        organisation: "shop".to_owned(),
        policy: "p".to_owned(),
        day,
        call_id: format!("call_{number:04}"),
        tool: "refund".to_owned(),
    };
    let many = (0..15).map(|number| sample(1, number)).collect();
    store.count_shadow(Vec::new(), many).await.expect("it works");
    let more = (15..40).map(|number| sample(1, number)).chain([sample(2, 7)]).collect();
    store.count_shadow(Vec::new(), more).await.expect("it works");
    let (_, samples) = store.shadow("shop", "p", [1, 2]).await.expect("it works");
    let expected: Vec<_> = (0..20).map(|number| sample(1, number)).chain([sample(2, 7)]).collect();
    assert_eq!(samples, expected);
}
