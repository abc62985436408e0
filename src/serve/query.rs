//! The parameters of a request's query: known, and each once.

use url::form_urlencoded;

use crate::serve::http::{ApiCode, ApiError};

/// Things of one page, where the request does not say it.
const PAGE: usize = 100;
/// Most things of one page.
const LARGEST_PAGE: usize = 1000;

/// The values of the known parameters of a query. An unknown one, and one that stands twice, are errors.
pub fn parameters<const N: usize>(
    query: Option<&str>,
    known: &[&'static str; N],
) -> Result<[Option<String>; N], ApiError> {
    let mut values = [const { None }; N];
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let place = known.iter().position(|one| *one == name).and_then(|at| values.get_mut(at));
        match place {
            None => {
                let name: String = name.chars().take(64).collect();
                let text =
                    format!("the parameter `{name}` is not known; known are {}", known.join(", "));
                return Err(bad(&text));
            }
            Some(Some(_)) => return Err(bad(&format!("the parameter `{name}` stands twice"))),
            Some(place) => *place = Some(value.into_owned()),
        }
    }
    Ok(values)
}

/// How many things a page has, by `limit`.
pub fn page_size(limit: Option<&str>) -> Result<usize, ApiError> {
    let Some(text) = limit else { return Ok(PAGE) };
    whole(text, 1, LARGEST_PAGE)
        .ok_or_else(|| bad(&format!("`limit` must be a whole number from 1 to {LARGEST_PAGE}")))
}

/// A whole number between two bounds, written in digits alone.
pub fn whole(text: &str, least: usize, most: usize) -> Option<usize> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && (least..=most).contains(number))
}

/// A request whose query is wrong.
pub fn bad(text: &str) -> ApiError {
    ApiError::new(ApiCode::BadRequest, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str; 4] = &["format", "kind", "limit", "cursor"];

    #[track_caller]
    fn check_query(query: &str, expected: Result<[Option<&str>; 4], &str>) {
        let found = parameters(Some(query), KNOWN).map_err(|error| error.message);
        let expected = expected.map(|values| values.map(|value| value.map(str::to_owned)));
        assert_eq!(found, expected.map_err(str::to_owned), "{query}");
    }

    #[test]
    fn parameters_are_known_and_stand_once() {
        check_query("", Ok([None; 4]));
        check_query("limit=5&kind=app", Ok([None, Some("app"), Some("5"), None]));
        check_query("cursor=a%2Bb+", Ok([None, None, None, Some("a+b ")]));
        check_query("limit=5&limit=5", Err("the parameter `limit` stands twice"));
        let unknown = "the parameter `Limit` is not known; known are format, kind, limit, cursor";
        check_query("Limit=5", Err(unknown));
    }

    #[test]
    fn a_page_has_one_thing_at_least() {
        for bad in ["", "0", "1001", "-1", "+5", "1.0", "x", "99999999999999999999"] {
            assert!(page_size(Some(bad)).is_err(), "{bad}");
        }
        assert_eq!(page_size(Some("1000")), Ok(1000));
        assert_eq!(page_size(None), Ok(100));
    }
}
