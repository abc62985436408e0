//! Makes metrics under the prefix `sortie_` and registers them.

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// Registers metrics; a name that is taken twice is a fault in this file.
pub(super) struct Maker<'a>(pub(super) &'a Registry);

impl Maker<'_> {
    /// Makes it known to the registry.
    pub(super) fn keep<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> C {
        let collector = made.expect("metric options are constants of this file");
        self.0.register(Box::new(collector.clone())).expect("metric names are unique in this file");
        collector
    }

    /// Counters by labels.
    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(Opts::new(name, help).namespace("sortie"), labels))
    }

    /// Gauges by labels.
    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(Opts::new(name, help).namespace("sortie"), labels))
    }

    /// Gauges of 1 whose labels say something.
    pub(super) fn infos(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.keep(GaugeVec::new(Opts::new(name, help).namespace("sortie"), labels))
    }

    /// Histograms by labels.
    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).namespace("sortie").buckets(buckets.to_vec());
        self.keep(HistogramVec::new(options, labels))
    }

    /// One counter.
    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::with_opts(Opts::new(name, help).namespace("sortie")))
    }

    /// One gauge.
    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::with_opts(Opts::new(name, help).namespace("sortie")))
    }

    /// One histogram.
    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).namespace("sortie").buckets(buckets.to_vec());
        self.keep(Histogram::with_opts(options))
    }
}
