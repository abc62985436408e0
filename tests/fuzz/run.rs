//! Mutates the corpus of a target and runs it, on the stable toolchain: `run TARGET|all [--seconds N] [--seed N] [--trace]`.
//!
//! The same seed gives the same inputs. What makes a target panic is shrunk and kept in `artifacts/`; `--trace` keeps each
//! input there before it runs, for the panics that cannot be caught.
#![expect(clippy::disallowed_methods, reason = "a tool of its own, bounded by the clock")]

mod mutate;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutate::{Mutator, Random};
use targets::{TARGETS, Target};

/// A slower input is reported.
const SLOW: Duration = Duration::from_secs(1);

/// Runs spent on making one input smaller.
const SHRINK_RUNS: usize = 5000;

struct Options {
    target: String,
    seconds: u64,
    seed: u64,
    trace: bool,
}

fn options() -> Result<Options, String> {
    let mut words = std::env::args().skip(1);
    let target = words.next().ok_or("name a target, or `all`")?;
    let mut options = Options { target, seconds: 60, seed: 1, trace: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse().ok());
            value.ok_or(format!("`{word}` needs a number"))
        };
        match word.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--trace" => options.trace = true,
            _ => return Err(format!("`{word}` is not known")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let chosen: Vec<_> = TARGETS
        .iter()
        .filter(|(name, _)| options.target == "all" || options.target == *name)
        .collect();
    if chosen.is_empty() {
        let known: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no target `{}`; there are {}", options.target, known.join(", "));
        return ExitCode::from(2);
    }
    let witness = Witness::install();
    let mut failures = 0;
    for (name, target) in chosen {
        failures += Campaign::new(name, *target, &witness).run(&options);
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sees panics instead of the terminal: where, and with which words.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Option<(String, String)>>>);

impl Witness {
    fn install() -> Self {
        let witness = Self::default();
        let seen = witness.clone();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let words = info.payload_as_str().unwrap_or_default().chars().take(400).collect();
            *seen.0.lock().expect("held for one line") = Some((place, words));
        }));
        witness
    }

    /// Runs the target; the panic, if there was one.
    fn watch(&self, target: Target, data: &[u8]) -> Option<(String, String)> {
        let ended = catch_unwind(AssertUnwindSafe(|| target(data)));
        let seen = self.0.lock().expect("held for one line").take();
        ended.err().and(seen)
    }
}

/// One target, its corpus, and what went wrong so far.
struct Campaign<'a> {
    name: &'a str,
    target: Target,
    witness: &'a Witness,
    corpus: Vec<Vec<u8>>,
    artifacts: PathBuf,
    /// By the place of the panic: each is reported once.
    found: BTreeMap<String, PathBuf>,
}

impl<'a> Campaign<'a> {
    fn new(name: &'a str, target: Target, witness: &'a Witness) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files: Vec<_> = std::fs::read_dir(root.join("corpus").join(name))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        files.sort_unstable();
        let corpus = files.iter().filter_map(|file| std::fs::read(file).ok()).collect();
        let artifacts = root.join("artifacts").join(name);
        Self { name, target, witness, corpus, artifacts, found: BTreeMap::new() }
    }

    fn run(mut self, options: &Options) -> usize {
        let started = Instant::now();
        let length = Duration::from_secs(options.seconds);
        let corpus = std::mem::take(&mut self.corpus);
        let mut mutator = Mutator::new(Random::new(options.seed), &corpus);
        let mut inputs = corpus.iter().cloned();
        let mut runs = 0_u64;
        let mut slowest = Duration::ZERO;
        // The corpus as it is comes first.
        while started.elapsed() < length {
            let input = inputs.next().unwrap_or_else(|| mutator.next());
            if options.trace {
                self.keep("current", &input);
            }
            let before = Instant::now();
            if let Some((place, words)) = self.witness.watch(self.target, &input) {
                self.report(place, &words, input);
            } else if before.elapsed() > slowest.max(SLOW) {
                slowest = before.elapsed();
                let path = self.keep("slow", &input);
                println!("{}: {slowest:.1?} for {}", self.name, path.display());
            }
            runs += 1;
        }
        println!("{}: {runs} runs, {} faults", self.name, self.found.len());
        self.found.len()
    }

    fn report(&mut self, place: String, words: &str, input: Vec<u8>) {
        if self.found.contains_key(&place) {
            return;
        }
        let small = self.shrink(&place, input);
        let path = self.keep(&format!("panic-{}", self.found.len()), &small);
        println!("{}: {place}: {words}\n  {}", self.name, path.display());
        self.found.insert(place, path);
    }

    /// Leaves pieces out while the panic stays at its place.
    fn shrink(&self, place: &str, mut input: Vec<u8>) -> Vec<u8> {
        let mut left = SHRINK_RUNS;
        let mut size = input.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < input.len() && left > 0 {
                left -= 1;
                let mut smaller = input.clone();
                smaller.drain(at..input.len().min(at + size));
                let seen = self.witness.watch(self.target, &smaller);
                if seen.is_some_and(|(seen, _)| seen == place) {
                    input = smaller;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        input
    }

    fn keep(&self, name: &str, input: &[u8]) -> PathBuf {
        let path = self.artifacts.join(name);
        let written =
            std::fs::create_dir_all(&self.artifacts).and_then(|()| std::fs::write(&path, input));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
        }
        path
    }
}
