//! A circuit by its rules one by one, and by every order of what can happen to it.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const SETTINGS: Settings = Settings {
    consecutive: 3,
    failure_ratio: 0.5,
    min_calls: 10,
    window: secs(60),
    open_for: secs(30),
    max_open_for: secs(100),
};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One call from leave to verdict.
fn call(breaker: &mut Breaker, verdict: Verdict, now: Duration) -> Option<State> {
    let ticket = breaker.permit(now).expect("the circuit lets it pass");
    breaker.record(ticket, verdict, now)
}

fn opened(now: Duration) -> Breaker {
    let mut breaker = Breaker::new(SETTINGS);
    call(&mut breaker, Verdict::Failure, now);
    call(&mut breaker, Verdict::Failure, now);
    assert_eq!(call(&mut breaker, Verdict::Failure, now), Some(State::Open));
    breaker
}

#[test]
fn failures_in_a_row_open_it() {
    let mut breaker = opened(secs(1));
    assert_eq!(breaker.permit(secs(1)), Err(Refused { wait: secs(30) }));
    assert_eq!(breaker.permit(secs(30)), Err(Refused { wait: secs(1) }));
}

#[test]
fn a_success_between_them_begins_the_row_anew() {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..3 {
        call(&mut breaker, Verdict::Failure, secs(1));
        call(&mut breaker, Verdict::Failure, secs(1));
        call(&mut breaker, Verdict::Success, secs(1));
    }
    assert_eq!(breaker.state(), State::Closed);
    // The tenth call: now the ratio counts.
    assert_eq!(call(&mut breaker, Verdict::Failure, secs(1)), Some(State::Open));
}

#[test]
fn half_of_the_calls_of_the_window_open_it_and_older_ones_do_not_count() {
    let mut breaker = Breaker::new(SETTINGS);
    for now in [secs(0), secs(61)] {
        for _ in 0..4 {
            call(&mut breaker, Verdict::Success, now);
            assert_eq!(call(&mut breaker, Verdict::Failure, now), None, "{now:?}");
        }
    }
    call(&mut breaker, Verdict::Success, secs(62));
    assert_eq!(call(&mut breaker, Verdict::Failure, secs(62)), Some(State::Open));
}

#[test]
fn answers_and_ignored_calls_are_nothing_while_it_is_closed() {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..100 {
        assert_eq!(call(&mut breaker, Verdict::Answered, secs(1)), None);
        assert_eq!(call(&mut breaker, Verdict::Ignored, secs(1)), None);
    }
    call(&mut breaker, Verdict::Failure, secs(1));
    call(&mut breaker, Verdict::Failure, secs(1));
    call(&mut breaker, Verdict::Answered, secs(1));
    assert_eq!(call(&mut breaker, Verdict::Failure, secs(1)), Some(State::Open));
}

#[test]
fn one_probe_decides_and_the_others_wait() {
    for (verdict, state) in [
        (Verdict::Answered, Some(State::Closed)),
        (Verdict::Failure, Some(State::Open)),
        (Verdict::Ignored, None),
        (Verdict::Success, Some(State::Closed)),
    ] {
        let mut breaker = opened(secs(0));
        let probe = breaker.permit(secs(30)).unwrap();
        assert!(probe.is_probe() && probe.began_probing());
        assert_eq!(breaker.state(), State::HalfOpen);
        assert_eq!(breaker.permit(secs(30)), Err(Refused { wait: PROBE_WAIT }));
        assert_eq!(breaker.record(probe, verdict, secs(31)), state, "{verdict:?}");
    }
}

#[test]
fn a_probe_that_says_nothing_leaves_its_place_to_the_next() {
    let mut breaker = opened(secs(0));
    let probe = breaker.permit(secs(30)).unwrap();
    breaker.record(probe, Verdict::Ignored, secs(31));
    let next = breaker.permit(secs(31)).unwrap();
    assert!(next.is_probe() && !next.began_probing());
}

#[test]
fn each_failed_probe_doubles_the_wait_up_to_the_bound_and_a_success_ends_that() {
    let mut breaker = opened(secs(0));
    let mut now = secs(30);
    for wait in [secs(60), secs(100), secs(100)] {
        assert_eq!(call(&mut breaker, Verdict::Failure, now), Some(State::Open));
        assert_eq!(breaker.permit(now), Err(Refused { wait }));
        now += wait;
    }
    assert_eq!(call(&mut breaker, Verdict::Success, now), Some(State::Closed));
    for _ in 0..2 {
        call(&mut breaker, Verdict::Failure, now);
    }
    assert_eq!(call(&mut breaker, Verdict::Failure, now), Some(State::Open));
    assert_eq!(breaker.permit(now), Err(Refused { wait: secs(30) }));
}

#[test]
fn what_began_before_it_opened_neither_closes_nor_reopens_it() {
    let mut breaker = Breaker::new(SETTINGS);
    let early: Vec<_> = (0..4).map(|_| breaker.permit(secs(0)).unwrap()).collect();
    for _ in 0..3 {
        call(&mut breaker, Verdict::Failure, secs(0));
    }
    let [success, failure, late, answered] = <[Ticket; 4]>::try_from(early).unwrap();
    assert_eq!(breaker.record(success, Verdict::Success, secs(1)), None);
    assert_eq!(breaker.state(), State::Open);
    let probe = breaker.permit(secs(30)).unwrap();
    assert_eq!(breaker.record(failure, Verdict::Failure, secs(31)), None);
    assert_eq!(breaker.record(answered, Verdict::Answered, secs(31)), None);
    assert_eq!(breaker.state(), State::HalfOpen);
    assert_eq!(breaker.record(probe, Verdict::Success, secs(32)), Some(State::Closed));
    breaker.record(late, Verdict::Failure, secs(33));
    assert_eq!((breaker.state(), breaker.record), (State::Closed, Record::new(&SETTINGS)));
}

#[test]
fn it_can_be_opened_for_longer_and_never_for_less() {
    let mut breaker = Breaker::new(SETTINGS);
    assert_eq!(breaker.force_open(secs(3600)), Some(State::Open));
    assert_eq!(breaker.force_open(secs(60)), None);
    assert_eq!(breaker.permit(secs(0)), Err(Refused { wait: secs(3600) }));
    assert_eq!(breaker.reset(), Some(State::Closed));
    assert_eq!(breaker.reset(), None);
    assert!(breaker.permit(secs(0)).is_ok_and(|ticket| !ticket.is_probe()));
}

#[test]
fn forced_open_under_a_probe_it_waits_for_that_probe() {
    let mut breaker = opened(secs(0));
    let probe = breaker.permit(secs(30)).unwrap();
    assert_eq!(breaker.force_open(secs(40)), Some(State::Open));
    assert_eq!(breaker.permit(secs(50)), Err(Refused { wait: PROBE_WAIT }));
    assert_eq!(breaker.record(probe, Verdict::Success, secs(50)), None);
    assert!(breaker.permit(secs(50)).unwrap().is_probe());
}

/// Something that happens to a circuit; a number says to which of the calls that run, the oldest first.
#[derive(Debug, Clone, Copy)]
enum Step {
    Force,
    Pass(Duration),
    Permit,
    Record(usize, Verdict),
    Reset,
}

/// A circuit and the calls that run.
#[derive(Debug)]
struct Course {
    breaker: Breaker,
    running: Vec<Ticket>,
    now: Duration,
}

impl Clone for Course {
    fn clone(&self) -> Self {
        let copy = |ticket: &Ticket| Ticket { ..*ticket };
        let running = self.running.iter().map(copy).collect();
        Self { breaker: self.breaker.clone(), running, now: self.now }
    }
}

impl Course {
    fn new(settings: Settings) -> Self {
        Self { breaker: Breaker::new(settings), running: Vec::new(), now: Duration::ZERO }
    }

    /// Lets it happen and checks what must hold; false where it cannot happen.
    fn take(&mut self, step: Step) -> bool {
        let before = self.breaker.clone();
        match step {
            Step::Force => drop(self.breaker.force_open(self.now + secs(5))),
            Step::Pass(time) => self.now += time,
            Step::Permit => self.permit(&before),
            Step::Record(index, verdict) => {
                if index >= self.running.len() {
                    return false;
                }
                let ticket = self.running.remove(index);
                let stale = ticket.epoch != before.epoch;
                let changed = self.breaker.record(ticket, verdict, self.now);
                assert_eq!(changed.is_some(), before.state() != self.breaker.state());
                if stale {
                    let after = (&self.breaker.phase, &self.breaker.record);
                    assert_eq!(after, (&before.phase, &before.record), "an old call changed it");
                }
            }
            Step::Reset => drop(self.breaker.reset()),
        }
        let probes = self.running.iter().filter(|ticket| ticket.is_probe()).count();
        assert!(probes <= 1, "two probes");
        assert_eq!(self.breaker.probing, probes == 1);
        self.check_not_stuck();
        true
    }

    fn permit(&mut self, before: &Breaker) {
        match self.breaker.permit(self.now) {
            Ok(ticket) => {
                match before.phase {
                    Phase::Closed => assert!(!ticket.is_probe()),
                    Phase::HalfOpen => assert!(ticket.is_probe() && !ticket.began_probing()),
                    Phase::Open { until } => {
                        assert!(self.now >= until, "an open circuit let a call pass");
                        assert!(ticket.is_probe() && ticket.began_probing());
                    }
                }
                self.running.push(ticket);
            }
            Err(Refused { wait }) => {
                assert!(!wait.is_zero());
                assert_ne!(before.state(), State::Closed);
                assert_eq!(self.breaker, *before);
                if !before.probing {
                    assert!(self.breaker.clone().permit(self.now + wait).is_ok());
                }
            }
        }
    }

    /// Whatever happened: once the calls that run have ended and the longest wait is over, one may call.
    fn check_not_stuck(&self) {
        let mut later = self.clone();
        for ticket in later.running.drain(..) {
            later.breaker.record(ticket, Verdict::Ignored, self.now);
        }
        let wait = self.breaker.settings.max_open_for.max(secs(5));
        assert!(later.breaker.permit(self.now + wait).is_ok(), "stuck: {self:?}");
    }

    /// What tells two courses apart for everything that can still happen.
    fn key(&self) -> impl Eq + std::hash::Hash + use<> {
        let breaker = &self.breaker;
        let phase = match &breaker.phase {
            Phase::Closed => (0, 0, Some(format!("{:?}", breaker.record))),
            Phase::HalfOpen => (1, 0, None),
            Phase::Open { until } => (2, until.saturating_sub(self.now).as_secs(), None),
        };
        let tickets: Vec<_> = self
            .running
            .iter()
            .map(|ticket| (ticket.epoch == breaker.epoch, ticket.is_probe()))
            .collect();
        let now = matches!(breaker.phase, Phase::Closed).then_some(self.now);
        (phase, now, breaker.open_for, breaker.probing, tickets)
    }
}

/// Every order of these steps, as deep as that; courses that cannot differ any more are followed once.
fn explore(settings: Settings, depth: usize) -> usize {
    let mut steps = vec![Step::Permit, Step::Force, Step::Reset];
    steps.extend([secs(1), secs(4)].map(Step::Pass));
    for verdict in [Verdict::Answered, Verdict::Failure, Verdict::Ignored, Verdict::Success] {
        steps.extend([0, 1, 2].map(|index| Step::Record(index, verdict)));
    }
    let mut seen = HashSet::new();
    let mut level = vec![Course::new(settings)];
    for _ in 0..depth {
        let mut next = Vec::new();
        for course in &level {
            for step in &steps {
                let mut taken = course.clone();
                let crowded = taken.running.len() == 3 && matches!(step, Step::Permit);
                if !crowded && taken.take(*step) && seen.insert(taken.key()) {
                    next.push(taken);
                }
            }
        }
        level = next;
    }
    seen.len()
}

#[test]
fn no_order_of_events_breaks_it() {
    let quick = Settings {
        consecutive: 1,
        failure_ratio: 0.5,
        min_calls: 2,
        window: secs(10),
        open_for: secs(2),
        max_open_for: secs(8),
    };
    assert!(explore(quick, 12) > 10_000);
    let patient = Settings { consecutive: 2, min_calls: 3, ..quick };
    assert!(explore(patient, 11) > 10_000);
}

fn step() -> impl Strategy<Value = Step> {
    let verdict = prop_oneof![
        Just(Verdict::Answered),
        Just(Verdict::Failure),
        Just(Verdict::Ignored),
        Just(Verdict::Success),
    ];
    prop_oneof![
        1 => Just(Step::Force),
        1 => Just(Step::Reset),
        4 => (0_u64..40_000).prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
        10 => Just(Step::Permit),
        12 => (0_usize..6, verdict).prop_map(|(index, verdict)| Step::Record(index, verdict)),
    ]
}

proptest! {
    #[test]
    fn no_long_course_breaks_it(
        steps in proptest::collection::vec(step(), 0..100),
        consecutive in 1_u32..6,
        failure_ratio in 0.01_f64..=1.0,
        min_calls in 1_u32..20,
    ) {
        let settings = Settings { consecutive, failure_ratio, min_calls, ..SETTINGS };
        let mut course = Course::new(settings);
        for step in steps {
            course.take(step);
        }
    }
}
