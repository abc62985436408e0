//! Reading values with their places.

use serde::Deserialize;

use super::*;
use crate::config::given::{Entries, OneOf};
use crate::config::yaml::Document;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Shelf {
    label: Given<String>,
    size: Given<u16>,
    colour: Given<Colour>,
    books: Given<Vec<Given<Book>>>,
    notes: Given<Entries<String>>,
    lock: Given<OneOf<Colour, Book>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Book {
    title: Given<String>,
    pages: Given<u32>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Colour {
    Green,
    Red,
}

/// Plain serde, as wire profiles are: one fault for the whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    name: String,
    #[serde(default)]
    numbers: Vec<u8>,
}

const LATER: &Later = &[("Shelf", &["shelves"])];

fn errors<T: de::DeserializeOwned>(text: &str) -> (Given<T>, String) {
    let (document, faults) = Document::parse(text);
    assert_eq!(faults, []);
    let document = document.expect("no faults");
    let report = Report::new("f".into(), Vec::new(), &document);
    let read = read(&report, LATER);
    let (errors, _) = report.into_findings();
    (read, errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(errors::<Shelf>(text).1, expected, "{text}");
}

#[test]
fn a_good_text_gives_values_with_their_places() {
    let text = "label: A\nsize: 3\ncolour: red\nbooks: [{title: T, pages: 9}]\nnotes: {z: 1st, a: 2nd}\nlock: green\n";
    let (shelf, errors) = errors::<Shelf>(text);
    assert_eq!(errors, "");
    let shelf = shelf.get().expect("read");
    assert_eq!(shelf.label.get().map(String::as_str), Some("A"));
    assert_eq!(shelf.colour.get(), Some(&Colour::Red));
    let names: Vec<_> =
        shelf.notes.get().expect("given").0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
    assert!(matches!(shelf.lock.get(), Some(OneOf::Short(Colour::Green))));
}

#[test]
fn null_is_absent() {
    let (shelf, errors) = errors::<Shelf>("label: null\nsize:\n");
    assert_eq!(errors, "");
    let shelf = shelf.get().expect("read");
    assert!(
        shelf.label.node().is_none() && shelf.size.node().is_none() && shelf.books.node().is_none()
    );
}

#[test]
fn every_error_is_told_not_only_the_first() {
    check(
        "label: 1\nsize: big\ncolor: red\ncolour: blue\nbooks:\n  - {title: [], pges: 1}\n  - 7\n  - {pages: -1}\nshelves: 1\n",
        "f:1:8: label: must be text, not a number, put it in quotes\n\
         f:2:7: size: must be a whole number, not text\n\
         f:3:1: color: is not a known key, did you mean `colour`?\n\
         f:4:9: colour: must be `green` or `red`\n\
         f:6:13: books[0].title: must be text, not a list\n\
         f:6:17: books[0].pges: is not a known key, did you mean `pages`?\n\
         f:7:5: books[1]: must be a mapping, not a number\n\
         f:8:13: books[2].pages: is outside of what fits here (u32)\n\
         f:9:1: shelves: is not supported by this version",
    );
}

#[test]
fn the_wrong_shape_is_named() {
    check("[]", "f:1:1: must be a mapping, not a list");
    check("books: {}", "f:1:8: books: must be a list, not a mapping");
    check("notes: []", "f:1:8: notes: must be a mapping, not a list");
    check("lock: {pages: x}", "f:1:15: lock.pages: must be a whole number, not text");
    check("colour: [red]", "f:1:9: colour: must be `green` or `red`");
    check("size: 70000", "f:1:7: size: is outside of what fits here (u16)");
}

#[test]
fn an_unknown_key_without_a_near_one_has_no_hint() {
    check("warehouse: 1", "f:1:1: warehouse: is not a known key");
    check("$x: 1", "f:1:1: $x: is not a known key");
}

#[test]
fn a_value_in_the_wrong_place_is_never_repeated() {
    for text in
        ["size: canary", "books: canary", "books: [canary]", "notes: canary", "label: [canary]"]
    {
        let (_, errors) = errors::<Shelf>(text);
        assert!(!errors.is_empty() && !errors.contains("canary"), "{errors}");
    }
}

#[test]
fn plain_structs_give_one_error_at_its_place() {
    assert_eq!(
        errors::<Plain>("{name: a, numbers: [1, x]}").1,
        "f:1:24: numbers[1]: must be a whole number, not text"
    );
    assert_eq!(errors::<Plain>("{numbers: [1]}").1, "f:1:1: `name` is missing");
    assert_eq!(
        errors::<Plain>("{name: a, nam: 1}").1,
        "f:1:11: nam: is not a known key, did you mean `name`?"
    );
    let (plain, _) = errors::<Plain>("{name: a, numbers: [1]}");
    let plain = plain.get().expect("read");
    assert_eq!((plain.name.as_str(), plain.numbers.as_slice()), ("a", &[1u8][..]));
}
