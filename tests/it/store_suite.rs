//! What the store promises, shown on each store alike.

mod approvals;
mod calls;
mod notices;
mod policies;
pub(crate) mod records;
mod survival;
mod sweep;

use sortie::config::snapshot::{Roots, TlsSettings, TlsVersion};
use sortie::store::postgres::PostgresStore;
use sortie::store::sqlite::SqliteStore;

use crate::support::postgres::Postgres;

/// Each case as a test of its own on each store.
macro_rules! suite {
    ($($file:ident { $($case:ident)* })*) => {
        mod in_memory {
            $($(
                #[tokio::test]
                async fn $case() {
                    let store = super::SqliteStore::memory().expect("it works");
                    super::$file::$case(&store).await;
                }
            )*)*
        }

        mod in_a_file {
            $($(
                #[tokio::test]
                async fn $case() {
                    let folder = tempfile::tempdir().expect("it works");
                    let store = super::SqliteStore::open(&folder.path().join("sortie.db")).expect("it works");
                    super::$file::$case(&store).await;
                }
            )*)*
        }

        mod in_postgres {
            $($(
                #[tokio::test]
                async fn $case() {
                    let Some(server) = super::Postgres::shared() else { return };
                    let store = super::connect(&server.database().await).await;
                    super::$file::$case(&store).await;
                }
            )*)*
        }
    };
}

/// A store in a database that is there.
pub(crate) async fn connect(url: &str) -> PostgresStore {
    PostgresStore::open(url, &tls()).await.expect("it works")
}

pub(crate) fn tls() -> TlsSettings {
    TlsSettings { min_version: TlsVersion::V12, roots: Roots::Webpki, extra_ca: None }
}

suite! {
    approvals {
        a_call_does_not_start_on_less_than_a_good_approval
        a_call_starts_once_on_an_approval
        a_call_waits_with_its_approval_and_what_people_are_told
        a_decision_says_who_and_why_and_keeps_the_call
        a_run_that_sent_nothing_leaves_its_approval_good
        what_ended_unsent_starts_again_unless_its_names_are_taken
        what_was_approved_can_be_taken_back_until_it_is_used
        after_one_yes_a_call_can_wait_for_another
        an_approval_shows_the_arguments_only_while_they_are_kept
        approvals_are_filtered_the_newest_first
        of_two_deciders_at_the_same_instant_one_decides
        past_its_time_nobody_decides
        what_is_pending_is_counted_by_tool
        what_is_not_there_cannot_be_decided
    }
    calls {
        a_conversation_and_a_run_are_found_among_many_others
        a_bound_call_makes_no_room_for_one_that_was_not_sent
        a_call_is_found_again_as_it_was
        a_call_that_ended_takes_the_place_of_its_beginning
        a_call_that_was_not_sent_makes_room
        a_lost_call_is_buried_once
        a_name_with_a_nul_is_nobody_s
        an_identity_is_bound_once
        an_identity_leads_to_its_call
        another_organisation_sees_nothing
        calls_are_filtered_and_the_newest_are_told_oldest_first
        calls_are_walked_through_each_once
        of_two_at_the_same_instant_one_is_bound
        what_was_let_go_is_free
    }
    notices {
        a_notice_is_claimed_once_and_again_after_the_lease
        a_notice_is_not_due_before_it_was_made
        the_audit_trail_is_told_newest_first
    }
    policies {
        a_policy_changes_from_the_version_that_was_seen
        counts_of_a_day_add_up
        the_first_twenty_samples_of_a_day_are_kept
    }
    survival { it_works_now }
    sweep {
        a_call_is_forgotten_after_its_time_and_its_approvals_with_it
        a_decision_is_kept_as_long_as_its_call
        many_calls_are_swept_to_the_last
        names_are_free_when_the_time_of_replay_is_over
        of_too_many_calls_the_oldest_go
        the_trail_and_the_counts_go_after_their_time
    }
}
