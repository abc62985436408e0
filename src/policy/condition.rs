//! Conditions on a call's arguments: one value against one threshold, by the operators of a policy's `when`.
//!
//! Contract, section 6. Where a number was rounded when it was read, a condition holds if it holds for a neighbour of it:
//! a model chooses the arguments, and digits that no double holds must not lead past a rule.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::model::call::Arguments;
use crate::model::number::Rounded;

/// Whole numbers beyond this have no double of their own: 2^53.
const EXACT: i128 = 1 << 53;
/// Values that a list of thresholds may have.
const MAX_LIST: usize = 256;
/// Bytes of a pointer.
const MAX_POINTER: usize = 256;

/// How a value is compared with a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// A text has it inside, a list has it as an item.
    Contains,
    /// The same number, or the same text in any letter case.
    Equals,
    /// By number.
    GreaterThan,
    /// By number.
    GreaterThanOrEqual,
    /// Equals one of a list, or of a text with commas.
    In,
    /// By number.
    LessThan,
    /// By number.
    LessThanOrEqual,
    /// Not `Contains`.
    NotContains,
    /// Not `Equals`.
    NotEquals,
    /// Not `In`.
    NotIn,
}

/// What a condition says of arguments that do not have its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Absent {
    /// It holds.
    Match,
    /// It does not hold.
    Skip,
}

/// Why something is no condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// A relational operator and a threshold that is no number.
    #[error("must be a number, `{}` compares by number", .0.as_str())]
    NoNumber(Operator),
    /// A list where one value is compared.
    #[error("must be one text, number or boolean, `{}` takes no list", .0.as_str())]
    NoScalar(Operator),
    /// Neither a list nor a text with commas.
    #[error("must be a list of 1 to {MAX_LIST} texts, numbers or booleans, or a text with commas")]
    NoList,
    /// Not a JSON pointer of a value inside the arguments.
    #[error("must be a JSON pointer such as /amount")]
    Pointer,
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pointer: String,
    operator: Operator,
    threshold: Threshold,
    on_absent: Absent,
}

#[derive(Debug, Clone, PartialEq)]
enum Threshold {
    List(Vec<Value>),
    One(Value),
}

impl Operator {
    /// All of them, by name.
    pub const ALL: [Self; 10] = [
        Self::Contains,
        Self::Equals,
        Self::GreaterThan,
        Self::GreaterThanOrEqual,
        Self::In,
        Self::LessThan,
        Self::LessThanOrEqual,
        Self::NotContains,
        Self::NotEquals,
        Self::NotIn,
    ];

    /// The name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Contains => "contains",
            Self::Equals => "equals",
            Self::GreaterThan => "greater_than",
            Self::GreaterThanOrEqual => "greater_than_or_equal",
            Self::In => "in",
            Self::LessThan => "less_than",
            Self::LessThanOrEqual => "less_than_or_equal",
            Self::NotContains => "not_contains",
            Self::NotEquals => "not_equals",
            Self::NotIn => "not_in",
        }
    }

    /// Whether it compares by number alone.
    pub fn is_relational(self) -> bool {
        match self {
            Self::GreaterThan
            | Self::GreaterThanOrEqual
            | Self::LessThan
            | Self::LessThanOrEqual => true,
            Self::Contains
            | Self::Equals
            | Self::In
            | Self::NotContains
            | Self::NotEquals
            | Self::NotIn => false,
        }
    }
}

impl Condition {
    /// Checks what was written. Without `on_absent` a relational operator holds for what is absent or no number, and the
    /// others do not.
    pub fn new(
        pointer: &str,
        operator: Operator,
        threshold: Value,
        on_absent: Option<Absent>,
    ) -> Result<Self, ConditionError> {
        if !is_pointer(pointer) {
            return Err(ConditionError::Pointer);
        }
        let threshold = match operator {
            Operator::In | Operator::NotIn => Threshold::List(list(threshold)?),
            _ if !is_scalar(&threshold) => return Err(ConditionError::NoScalar(operator)),
            _ if operator.is_relational() && Side::threshold(&threshold).number.is_none() => {
                return Err(ConditionError::NoNumber(operator));
            }
            _ => Threshold::One(threshold),
        };
        let default = if operator.is_relational() { Absent::Match } else { Absent::Skip };
        let on_absent = on_absent.unwrap_or(default);
        Ok(Self { pointer: pointer.to_owned(), operator, threshold, on_absent })
    }

    /// Where the value is, as a JSON pointer.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What it says of arguments without its value.
    pub fn on_absent(&self) -> Absent {
        self.on_absent
    }

    /// Whether it holds for these arguments.
    pub fn holds(&self, arguments: &Arguments) -> bool {
        let value = arguments.value().pointer(&self.pointer);
        let compared = value.and_then(|value| self.compare(value, arguments.rounded()));
        compared.unwrap_or(self.on_absent == Absent::Match)
    }

    /// `None` where the two cannot be compared.
    fn compare(&self, value: &Value, rounded: &[Rounded]) -> Option<bool> {
        // A model may send a megabyte: it is read once, however many thresholds there are.
        let value = Side::new(value, &|double| rounded.iter().any(|one| one.double == double));
        let relation = |holds: fn(&Possible) -> bool| match &self.threshold {
            Threshold::One(one) => Some(holds(&Possible::of(&value, &Side::threshold(one))?)),
            Threshold::List(_) => None,
        };
        let thresholds = match &self.threshold {
            Threshold::List(list) => list.as_slice(),
            Threshold::One(one) => std::slice::from_ref(one),
        };
        let mut sides = thresholds.iter().map(Side::threshold);
        match self.operator {
            Operator::Contains => Some(sides.any(|one| contains(&value, &one, rounded))),
            Operator::NotContains => Some(!sides.any(|one| contains(&value, &one, rounded))),
            Operator::Equals | Operator::In => Some(sides.any(|one| equality(&value, &one).equal)),
            Operator::NotEquals | Operator::NotIn => {
                Some(sides.all(|one| equality(&value, &one).different))
            }
            Operator::GreaterThan => relation(|found| found.greater),
            Operator::GreaterThanOrEqual => relation(|found| found.greater || found.equal),
            Operator::LessThan => relation(|found| found.less),
            Operator::LessThanOrEqual => relation(|found| found.less || found.equal),
        }
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ", self.pointer, self.operator.as_str())?;
        match &self.threshold {
            Threshold::One(one) => write!(f, "{one}"),
            Threshold::List(list) => {
                let texts: Vec<_> = list.iter().map(Value::to_string).collect();
                write!(f, "[{}]", texts.join(", "))
            }
        }
    }
}

/// Whether a text is a JSON pointer (RFC 6901) that leads into an object.
fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    text.starts_with('/') && text.len() <= MAX_POINTER && escapes
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

fn list(threshold: Value) -> Result<Vec<Value>, ConditionError> {
    let items = match threshold {
        Value::Array(items) => items,
        Value::String(text) => text.split(',').map(|part| part.trim().into()).collect(),
        _ => return Err(ConditionError::NoList),
    };
    let is_list = (1..=MAX_LIST).contains(&items.len()) && items.iter().all(is_scalar);
    if is_list { Ok(items) } else { Err(ConditionError::NoList) }
}

/// A number, or the two doubles between which it is.
#[derive(Debug, Clone, Copy)]
struct Numeric {
    whole: Option<i128>,
    low: f64,
    high: f64,
}

impl Numeric {
    /// A number, or a text that is one; `is_rounded` knows the doubles that numbers were rounded to.
    fn read(value: &Value, is_rounded: &dyn Fn(f64) -> bool) -> Option<Self> {
        let of_text;
        let (number, is_rounded) = match value {
            Value::Number(number) => {
                let is_double = !number.is_i64() && !number.is_u64();
                (number, is_double && number.as_f64().is_some_and(is_rounded))
            }
            // The parser would take white space around it.
            Value::String(text) if text.trim_ascii().len() == text.len() => {
                of_text = serde_json::from_str(text).ok()?;
                (&of_text, Rounded::read(text).is_some())
            }
            _ => return None,
        };
        let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
        let double = number.as_f64()?;
        let is_between = is_rounded || whole.is_some_and(|whole| whole.abs() > EXACT);
        let (low, high) =
            if is_between { (double.next_down(), double.next_up()) } else { (double, double) };
        Some(Self { whole, low, high })
    }
}

/// How two numbers may stand to each other: more than one is true where one of them was rounded.
#[derive(Debug, Clone, Copy)]
struct Possible {
    less: bool,
    equal: bool,
    greater: bool,
}

impl Possible {
    /// `None` where one of them is no number.
    fn of(value: &Side<'_>, threshold: &Side<'_>) -> Option<Self> {
        let (value, threshold) = (value.number?, threshold.number?);
        if let (Some(value), Some(threshold)) = (value.whole, threshold.whole) {
            let order = value.cmp(&threshold);
            return Some(Self {
                less: order == Ordering::Less,
                equal: order == Ordering::Equal,
                greater: order == Ordering::Greater,
            });
        }
        Some(Self {
            less: value.low < threshold.high,
            equal: value.low <= threshold.high && threshold.low <= value.high,
            greater: value.high > threshold.low,
        })
    }
}

/// One of the two that are compared, as number and as text.
struct Side<'v> {
    value: &'v Value,
    number: Option<Numeric>,
    folded: OnceCell<String>,
}

impl<'v> Side<'v> {
    fn new(value: &'v Value, is_rounded: &dyn Fn(f64) -> bool) -> Self {
        Self { value, number: Numeric::read(value, is_rounded), folded: OnceCell::new() }
    }

    fn threshold(value: &'v Value) -> Self {
        Self::new(value, &|_| false)
    }

    fn folded(&self) -> &str {
        self.folded.get_or_init(|| match self.value {
            Value::String(text) => folded(text),
            other => folded(&other.to_string()),
        })
    }
}

struct Equality {
    equal: bool,
    different: bool,
}

/// By number where both are one, else by text in any letter case.
fn equality(value: &Side<'_>, threshold: &Side<'_>) -> Equality {
    if let Some(possible) = Possible::of(value, threshold) {
        return Equality { equal: possible.equal, different: possible.less || possible.greater };
    }
    let equal = value.folded() == threshold.folded();
    Equality { equal, different: !equal }
}

fn contains(value: &Side<'_>, threshold: &Side<'_>, rounded: &[Rounded]) -> bool {
    match value.value {
        Value::Array(items) => {
            // Zero has two signs and is one number.
            let bits = |double: f64| (double + 0.0).to_bits();
            let doubles: HashSet<u64> = rounded.iter().map(|one| bits(one.double)).collect();
            let is_rounded = |double| doubles.contains(&bits(double));
            items.iter().any(|item| equality(&Side::new(item, &is_rounded), threshold).equal)
        }
        Value::Object(_) => false,
        _ => value.folded().contains(threshold.folded()),
    }
}

/// A text in lower case. Each letter by itself: what a part of a text becomes is a part of what the text becomes.
fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let letters = text.chars().flat_map(char::to_lowercase);
    letters.map(|letter| if letter == 'ς' { 'σ' } else { letter }).collect()
}

#[cfg(test)]
mod tests;
