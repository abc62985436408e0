//! Numbers that were rounded when they were read, against a schema that is asked about the rounded ones.

use std::collections::HashMap;

use serde_json::{Number, Value};

use crate::model::number::Rounded;

/// From here on every double is whole.
const ALL_WHOLE: f64 = 4_503_599_627_370_496.0;
/// The largest double that is not.
const LARGEST_FRACTION: f64 = 4_503_599_627_370_495.5;
/// A prime, as large as a double still holds each whole number: a multiple of nothing.
const LARGE_PRIME: f64 = 9_007_199_254_740_881.0;

/// The arguments with other numbers in place of the rounded ones: the doubles on both sides, between which the number lies
/// as it was written, and one that is whole only where that is. A schema that takes all of them takes that number too.
pub fn stand_ins(value: &Value, rounded: &[Rounded]) -> impl Iterator<Item = Value> {
    let kinds: [fn(&Rounded) -> f64; 3] = [
        |number| number.double.next_down(),
        |number| number.double.next_up(),
        divisible_by_nothing,
    ];
    kinds.into_iter().map(|pick| {
        // Of two numbers that became one double the one that is not whole counts.
        let whole = rounded.iter().filter(|number| number.is_whole);
        let ordered = whole.chain(rounded.iter().filter(|number| !number.is_whole));
        let others = ordered.map(|number| (number.double.to_bits(), pick(number)));
        replaced(value, &others.collect())
    })
}

/// Between large neighbours nothing tells whole numbers from others, nor multiples.
fn divisible_by_nothing(number: &Rounded) -> f64 {
    let size = match (number.is_whole, number.double.abs() >= ALL_WHOLE) {
        (_, false) => return number.double,
        (true, true) => LARGE_PRIME,
        (false, true) => LARGEST_FRACTION,
    };
    size.copysign(number.double)
}

/// The value with other numbers; they are found by the bits of the double.
fn replaced(value: &Value, others: &HashMap<u64, f64>) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| replaced(item, others)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), replaced(value, others))).collect()
        }
        Value::Number(number) if number.is_f64() => {
            let other = number.as_f64().and_then(|double| others.get(&double.to_bits()));
            let other = other.copied().and_then(Number::from_f64);
            other.map_or_else(|| value.clone(), Value::Number)
        }
        other => other.clone(),
    }
}
