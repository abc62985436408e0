//! What the validator's errors say to the model, and to the author of a schema.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::model::json;
use crate::model::outcome::Problem;
use crate::policy::truncate::shorten;

/// Bytes of one message or pointer: patterns, lists and argument names may be long.
pub const MESSAGE_LIMIT: usize = 200;

/// One error of the validator, as problems: one per unknown argument.
pub fn problems_of(error: &ValidationError<'_>, arguments: &Value) -> Vec<Problem> {
    let at = error.instance_path().as_str();
    let keyword = error.kind().keyword();
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().map(|name| unknown_argument(at, name, keyword)).collect()
        }
        ValidationErrorKind::Required { property } => {
            let name = json::pointer_step(property.as_str().unwrap_or_default());
            vec![problem(format!("{at}/{name}"), keyword, "is required".into())]
        }
        ValidationErrorKind::FalseSchema => match arguments.pointer(at) {
            // An object that may have no members at all: the error holds one of them, not the object.
            Some(Value::Object(members)) if error.instance().as_object() != Some(members) => {
                let names = members.keys();
                names.map(|name| unknown_argument(at, name, "additionalProperties")).collect()
            }
            _ => vec![problem(at.to_owned(), keyword, expectation(error))],
        },
        _ => vec![problem(at.to_owned(), keyword, expectation(error))],
    }
}

/// An argument that the schema has no place for.
pub fn unknown_argument(at: &str, name: &str, keyword: &str) -> Problem {
    problem(format!("{at}/{}", json::pointer_step(name)), keyword, "is not a known argument".into())
}

/// A problem within its bounds.
pub fn problem(pointer: String, keyword: &str, message: String) -> Problem {
    Problem {
        pointer: shorten(pointer, MESSAGE_LIMIT),
        keyword: keyword.to_owned(),
        message: shorten(message, MESSAGE_LIMIT),
    }
}

/// What would be right, from the schema alone: the value may be somebody's secret.
pub fn expectation(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as Kind;
    match error.kind() {
        Kind::AdditionalItems { limit } => format!("must have at most {limit} items"),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "must have no further properties".into()
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            alternatives(error, context).unwrap_or_else(|| misfit(error))
        }
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "cannot be checked against its pattern".into()
        }
        Kind::Constant { expected_value } => format!("must be {expected_value}"),
        Kind::Contains
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::Custom { .. }
        | Kind::FromUtf8 { .. }
        | Kind::Referencing(_) => misfit(error),
        Kind::Enum { options } => one_of(options),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::FalseSchema => "must not be given".into(),
        Kind::Format { format } => format!("must be a valid {format}"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::MaxLength { limit } => format!("must be at most {limit} characters long"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} properties"),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::MinLength { limit } => format!("must be at least {limit} characters long"),
        Kind::MinProperties { limit } => format!("must have at least {limit} properties"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::Not { .. } => "must not fit the schema under not".into(),
        Kind::OneOfMultipleValid { .. } => "must fit only one schema of oneOf".into(),
        Kind::Pattern { pattern } => format!("must match {pattern}"),
        Kind::PropertyNames { error } => {
            format!("must have fitting property names: each {}", expectation(error))
        }
        Kind::Required { property } => format!("must have {property}"),
        Kind::Type { kind: TypeKind::Single(kind) } => format!("must be {}", with_article(*kind)),
        Kind::Type { kind: TypeKind::Multiple(kinds) } => {
            let kinds: Vec<_> = kinds.iter().map(with_article).collect();
            format!("must be {}", kinds.join(" or "))
        }
        Kind::UnevaluatedItems { .. } => "must have no further items".into(),
        Kind::UniqueItems => "must not have the same item twice".into(),
    }
}

fn misfit(error: &ValidationError<'_>) -> String {
    format!("must fit {}", error.kind().keyword())
}

/// `must be a string or must be null`, where each branch objects once to the value itself.
fn alternatives(
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
) -> Option<String> {
    let clauses = branches.iter().map(|branch| match branch.as_slice() {
        [only] if only.instance_path() == error.instance_path() => Some(expectation(only)),
        _ => None,
    });
    let clauses: Option<Vec<_>> = clauses.collect();
    clauses.filter(|clauses| !clauses.is_empty()).map(|clauses| clauses.join(" or "))
}

fn one_of(options: &Value) -> String {
    match options.as_array().map(Vec::as_slice) {
        Some([only]) => format!("must be {only}"),
        Some(several) => {
            let several: Vec<_> = several.iter().map(Value::to_string).collect();
            format!("must be one of {}", several.join(", "))
        }
        None => format!("must be {options}"),
    }
}

fn with_article(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "an array",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

#[cfg(test)]
mod tests;
