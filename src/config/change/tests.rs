//! Kinds of changes and their directions.

use super::*;

#[track_caller]
fn check(kind: Kind, old: &Told, new: &Told, expected: &[Direction]) {
    let mut changes = Changes::default();
    changes.compare(kind, "p", old, new);
    let found: Vec<Direction> = changes.into_sorted().iter().map(|one| one.direction).collect();
    assert_eq!(found, expected, "{old:?} {new:?}");
}

#[track_caller]
fn lists(kind: Kind, old: &[&str], new: &[&str], expected: Direction) {
    check(kind, &Told::items(old, "none"), &Told::items(new, "none"), &[expected]);
}

#[test]
fn what_is_the_same_is_no_change() {
    check(Kind::Policy, &Told::number(1_u8, "x"), &Told::number(1_u8, "x"), &[]);
    check(Kind::Ports, &Told::items(["2", "1", "1"], ""), &Told::items(["1", "2"], ""), &[]);
}

#[test]
fn a_wider_entry_is_looser_and_a_part_of_one_tighter() {
    use Direction::{Looser, Neutral, Tighter};
    lists(Kind::ExceptionRanges, &["10.0.0.0/16"], &["10.0.0.0/8"], Looser);
    lists(Kind::ExceptionRanges, &["10.0.0.0/8"], &["10.1.0.0/16"], Tighter);
    lists(Kind::ExceptionRanges, &["10.0.0.0/8"], &["10.0.0.0/8", "10.1.0.0/16"], Neutral);
    lists(Kind::DeniedRanges, &["10.0.0.0/8"], &["10.1.0.0/16"], Looser);
    lists(Kind::DeniedRanges, &[], &["10.1.0.0/16"], Tighter);
    lists(Kind::Ports, &["443"], &["443", "8000-9000"], Looser);
    lists(Kind::Ports, &["1024-65535"], &["8443", "9000-9100"], Tighter);
    lists(Kind::ExceptionHosts, &["*.corp.example"], &["a.corp.example"], Tighter);
    lists(Kind::ExceptionHosts, &["*.a.corp.example"], &["*.corp.example"], Looser);
    lists(Kind::ExceptionHosts, &["a.corp.example"], &["*.a.corp.example"], Looser);
    lists(Kind::ExceptionHosts, &["10.0.0.1"], &["10.0.0.2"], Looser);
    lists(Kind::ExceptionTools, &["a.*"], &["a.b*", "a.c"], Tighter);
    lists(Kind::ExceptionTools, &["a.b"], &["a.*"], Looser);
}

#[test]
fn an_empty_list_of_bounds_bounds_nothing() {
    use Direction::{Looser, Tighter};
    lists(Kind::CallerTools, &[], &["a"], Tighter);
    lists(Kind::CallerTools, &["a"], &[], Looser);
    lists(Kind::CallerTools, &["a"], &["b"], Looser);
    lists(Kind::AllowedHosts, &["*.example.com"], &["a.example.com"], Tighter);
}

#[test]
fn numbers_have_a_direction_and_what_cannot_be_ordered_is_looser() {
    use Direction::{Looser, Neutral, Tighter};
    let number = |n: u32| Told::number(n, n);
    check(Kind::Timeout, &number(1), &number(2), &[Looser]);
    check(Kind::Policy, &number(1), &number(2), &[Tighter]);
    check(Kind::Ipv6, &Told::number(1_u8, "on"), &Told::number(1_u8, "prefer"), &[Neutral]);
    check(Kind::BreakerThreshold, &Told::ratio(0.5), &Told::ratio(0.4), &[Tighter]);
    check(Kind::Timeout, &number(1), &Told::text("x"), &[Looser]);
    check(Kind::Target, &Told::text("a"), &Told::text("b"), &[Looser]);
    check(Kind::Setting, &Told::text("a"), &Told::text("b"), &[Neutral]);
}

#[test]
fn what_differs_out_of_sight_is_said_to_differ() {
    let mut changes = Changes::default();
    changes.compare(Kind::Target, "p", &Told::hidden("1", "h"), &Told::hidden("2", "h"));
    let long = |end: &str| Told::text("x".repeat(300) + end);
    changes.compare(Kind::Setting, "q", &long("a"), &long("b"));
    for change in changes.into_sorted() {
        assert_ne!(change.old, change.new);
    }
}

#[test]
fn kinds_have_names_of_their_own() {
    let mut names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Kind::ALL.len());
}
