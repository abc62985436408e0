//! The table that the bench prints.

use crate::process::Window;

/// Lines that come together while the bench runs.
#[derive(Default)]
pub(crate) struct Report(String);

impl Report {
    pub(crate) fn heading(&mut self, text: &str) {
        self.0 += &format!("\n{text}\n");
    }

    pub(crate) fn line(&mut self, name: &str, value: f64, unit: &str) {
        self.0 += &format!("  {name:<44}{}{unit}\n", number(value));
    }

    /// A figure that somebody promised.
    pub(crate) fn aim(&mut self, name: &str, value: f64, unit: &str, aim: f64, must: f64) {
        let verdict = if value <= aim {
            "met"
        } else if value <= must {
            "aim missed"
        } else {
            "must missed"
        };
        self.0 +=
            &format!("  {name:<44}{}{unit:<4}(aim {aim}, must {must}: {verdict})\n", number(value));
    }

    /// A figure that stays below an aim.
    pub(crate) fn below(&mut self, name: &str, value: f64, unit: &str, aim: f64) {
        let verdict = if value < aim { "met" } else { "aim missed" };
        self.0 += &format!("  {name:<44}{}{unit:<4}(aim < {aim}: {verdict})\n", number(value));
    }

    /// Medians of the rounds, the gateway and the bare client side by side.
    pub(crate) fn windows(&mut self, rounds: &[(Window, Window)]) {
        self.0 += &format!("  {:<44}{:>10}{:>12}\n", "", "gateway", "bare client");
        let mut row = |name: &str, figure: fn(&Window) -> f64| {
            let ours = median(rounds.iter().map(|(ours, _)| figure(ours)));
            let bare = median(rounds.iter().map(|(_, bare)| figure(bare)));
            self.0 += &format!("  {name:<44}{}  {}\n", number(ours), number(bare));
        };
        row("calls/s", |window| window.calls as f64 / window.seconds);
        row("p50, us", |window| window.p50_us);
        row("p99, us", |window| window.p99_us);
        row("CPU a call, us", Window::cpu_us);
    }

    pub(crate) fn print(&self) {
        println!("{}", self.0);
    }
}

/// The middle one.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn number(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:>10.2}") } else { format!("{value:>10.0}") }
}
