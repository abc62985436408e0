//! YAML text to values with places, and what is refused.

use super::*;

fn tree(text: &str) -> Document {
    let (document, faults) = Document::parse(text);
    assert_eq!(faults, [], "{text}");
    document.expect("no faults")
}

#[track_caller]
fn check_scalar(text: &str, expected: Kind) {
    let document = tree(&format!("[{text}]"));
    let item = document.child(document.root(), "0").expect("one item");
    assert_eq!(document.kind(item), &expected, "{text}");
}

#[track_caller]
fn check_fault(text: &str, expected: &str) {
    let (_, faults) = Document::parse(text);
    let faults: Vec<_> = faults
        .iter()
        .map(|fault| {
            let Position { line, column } = fault.position;
            format!("{line}:{column}: {}: {}", fault.path, fault.message)
        })
        .collect();
    assert_eq!(faults.join("\n"), expected, "{text}");
}

#[track_caller]
fn check_place(text: &str, steps: &[&str], path: &str, line: usize, column: usize) {
    let document = tree(text);
    let node =
        steps.iter().fold(document.root(), |at, step| document.child(at, step).expect("is there"));
    assert_eq!(
        (document.path(node).as_str(), document.position(node)),
        (path, Position { line, column })
    );
}

#[test]
fn plain_scalars_follow_the_core_schema() {
    check_scalar("on", Kind::Text("on".into()));
    check_scalar("no", Kind::Text("no".into()));
    check_scalar("true", Kind::Bool(true));
    check_scalar("~", Kind::Null);
    check_scalar("null", Kind::Null);
    check_scalar("12", Kind::Integer(12));
    check_scalar("-12", Kind::Integer(-12));
    check_scalar("0x1F", Kind::Integer(31));
    check_scalar("0o17", Kind::Integer(15));
    check_scalar("18446744073709551615", Kind::Integer(18_446_744_073_709_551_615));
    check_scalar(
        "18446744073709551616",
        Kind::Float(18_446_744_073_709_551_616.0, "18446744073709551616".into()),
    );
    check_scalar("1.5e3", Kind::Float(1500.0, "1.5e3".into()));
    check_scalar("1.2.3", Kind::Text("1.2.3".into()));
    check_scalar("2027-03-01", Kind::Text("2027-03-01".into()));
    check_scalar(".inf", Kind::Text(".inf".into()));
    check_scalar("10s", Kind::Text("10s".into()));
}

#[test]
fn quoted_scalars_are_text() {
    check_scalar("\"12\"", Kind::Text("12".into()));
    check_scalar("'true'", Kind::Text("true".into()));
    check_scalar("\"\\u00e9\"", Kind::Text("é".into()));
}

#[test]
fn json_is_yaml() {
    check_place(
        "{\"tools\": [{\"url\": \"https://x\"}]}",
        &["tools", "0", "url"],
        "tools[0].url",
        1,
        20,
    );
}

#[test]
fn values_know_their_path_and_place() {
    let text = "a:\n  - b: 1\n  - c: {d é: [2, 3]}\n";
    check_place(text, &["a", "1", "c", "d é", "1"], "a[1].c[\"d é\"][1]", 3, 18);
    check_place(text, &["a", "1"], "a[1]", 3, 5);
    check_place(text, &[], "", 1, 1);
}

#[test]
fn an_alias_is_a_copy_with_its_own_path() {
    check_place("a: &x {b: 1}\nc: *x\n", &["c", "b"], "c.b", 1, 11);
}

#[test]
fn an_empty_text_is_an_empty_mapping() {
    for text in ["", "\n", "# nothing\n", "---\n# nothing\n", "~", "---\nnull\n...\n"] {
        let document = tree(text);
        assert_eq!(document.kind(document.root()), &Kind::Map(Vec::new()), "{text:?}");
    }
}

#[test]
fn duplicate_keys_are_all_told_and_the_tree_stands() {
    let text = "a: 1\nb: {c: 1, c: 2}\na: 2\n";
    check_fault(
        text,
        "2:11: b.c: stands twice, first on line 2\n3:1: a: stands twice, first on line 1",
    );
    assert!(Document::parse(text).0.is_some());
}

#[test]
fn what_yaml_has_beyond_plain_data_is_refused() {
    check_fault("a: !!int 1\n", "1:10: : tags are not supported, quote what is meant as text");
    check_fault(
        "a: *b\n",
        "1:4: : no anchor of this name stands before the alias, quote a text that begins with `*`",
    );
    check_fault("a: &b [*b]\n", "1:8: : the alias stands inside of what it names");
    check_fault("a: {}\n<<: {}\n", "2:1: : merge keys are not supported, repeat the entries");
    check_fault("[a]: 1\n", "1:1: : a key must be plain text");
    check_fault("a: 1\n---\nb: 2\n", "2:1: : a second document begins here, one is read");
}

#[test]
fn broken_syntax_is_one_fault_with_its_place() {
    check_fault("a: [1, 2\nb: 3\n", "2:2: : is not valid YAML: illegal placement of ':' indicator");
}

#[test]
fn deep_nesting_is_refused_and_64_levels_are_not() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    tree(&nested(64));
    check_fault(&nested(65), "1:65: : values are nested more than 64 deep");
    assert!(Document::parse(&nested(100_000)).0.is_none());
    let block: String = (0..70).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    check_fault(&block, "65:65: : values are nested more than 64 deep");
}

#[test]
fn aliases_cannot_multiply_without_end() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(",")));
    }
    check_fault(&text, "6:42: : there are more than 1048576 values, aliases counted");
}

#[test]
fn a_large_text_is_refused_before_it_is_read() {
    let text = format!("a: \"{}\"", "x".repeat(MAX_BYTES));
    check_fault(&text, "1:1: : the file is larger than 8 MiB");
}

mod merged {
    use super::super::*;

    fn json(document: &Document, node: NodeId) -> serde_json::Value {
        match document.kind(node) {
            Kind::List(items) => items.iter().map(|item| json(document, *item)).collect(),
            Kind::Map(entries) => entries
                .iter()
                .map(|(key, value)| {
                    (document.text(*key).unwrap_or_default().to_owned(), json(document, *value))
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Kind::Text(text) => text.as_str().into(),
            Kind::Integer(number) => i64::try_from(*number).expect("small").into(),
            Kind::Null => serde_json::Value::Null,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn check(texts: &[&str], expected: &str) {
        let (document, faults) = Document::merged(texts);
        assert_eq!(faults, []);
        let document = document.expect("a tree");
        let (expected, _) = Document::parse(expected);
        let expected = expected.expect("a tree");
        assert_eq!(json(&document, document.root()), json(&expected, expected.root()));
    }

    #[test]
    fn mappings_go_deep_and_the_rest_is_replaced() {
        check(
            &["{a: {b: 1, c: 2}, d: [1, 2]}", "{a: {c: 3, e: 4}, d: [5]}"],
            "{a: {b: 1, c: 3, e: 4}, d: [5]}",
        );
        check(&["{a: {b: 1}}", "{a: ~}"], "{a: ~}");
        check(&["{a: 1}", "", "{a: {b: 1}}", "{a: {c: 1}}"], "{a: {b: 1, c: 1}}");
    }

    #[test]
    fn lists_of_names_go_item_by_item() {
        let base = "{tools: [{name: a, url: x, n: 1}, {name: b}]}";
        check(
            &[base, "{tools: [{name: c}, {name: a, url: y}]}"],
            "{tools: [{name: a, url: y, n: 1}, {name: b}, {name: c}]}",
        );
        check(&[base, "{tools: []}"], "{tools: []}");
        check(
            &["{auth: {keys: [{name: a}]}}", "{auth: {keys: [{name: b}]}}"],
            "{auth: {keys: [{name: a}, {name: b}]}}",
        );
        check(
            &["{agents: [{id: a, tools: [x]}]}", "{agents: [{id: a, tools: [y]}]}"],
            "{agents: [{id: a, tools: [y]}]}",
        );
        // Not everything with a name is one: a schema's lists are the schema's.
        let enums = |name: &str| {
            format!("{{tools: [{{name: a, parameters: {{tools: [{{name: {name}}}]}}}}]}}")
        };
        check(&[&enums("x"), &enums("y")], &enums("y"));
        // A name that stands twice in one text stays twice, to be told.
        check(
            &[base, "{tools: [{name: b, n: 1}, {name: b}]}"],
            "{tools: [{name: a, url: x, n: 1}, {name: b, n: 1}, {name: b}]}",
        );
        check(&[base, "{tools: [1, {}]}"], "{tools: [{name: a, url: x, n: 1}, {name: b}, 1, {}]}");
    }

    #[test]
    fn another_place_of_a_secret_stands_for_the_first() {
        check(&["{key: {file: a, prefix: p}}", "{key: {env: B}}"], "{key: {prefix: p, env: B}}");
        check(&["{key: {file: a}}", "{key: {file: b}}"], "{key: {file: b}}");
        check(&["{key: {file: a}}", "{key: {prefix: p}}"], "{key: {file: a, prefix: p}}");
        // Names that only look like one.
        check(
            &["{properties: {file: {t: 1}}}", "{properties: {env: {t: 2}}}"],
            "{properties: {file: {t: 1}, env: {t: 2}}}",
        );
    }

    #[test]
    fn every_value_keeps_its_place_and_its_text() {
        let (document, _) = Document::merged(&[
            "tools:\n- name: a\n  url: x\n",
            "tools:\n- name: b\n- name: a\n  url: y\n",
        ]);
        let document = document.expect("a tree");
        let place = |path: &[&str]| {
            let node = path.iter().try_fold(document.root(), |at, step| document.child(at, step));
            let node = node.expect("a value");
            let Position { line, column } = document.position(node);
            (document.file(node), line, column, document.path(node))
        };
        assert_eq!(place(&["tools", "0", "name"]), (1, 3, 9, "tools[1].name".into()));
        assert_eq!(place(&["tools", "0", "url"]), (1, 4, 8, "tools[1].url".into()));
        assert_eq!(place(&["tools", "1", "name"]), (1, 2, 9, "tools[0].name".into()));
        assert_eq!(place(&["tools", "0"]), (0, 2, 3, "tools[0]".into()));
    }

    #[test]
    fn faults_of_all_texts_are_told_with_their_text() {
        let (document, faults) = Document::merged(&["a: 1\na: 2\n", "b: [\n", "c: *d\n"]);
        assert!(document.is_none());
        let places: Vec<_> = faults.iter().map(|fault| (fault.file, fault.position.line)).collect();
        assert_eq!(places, [(0, 2), (1, 1), (2, 1)]);
    }
}
