//! Files that a configuration includes: each for itself, and none at the expense of another.

use std::path::PathBuf;

use super::*;
use crate::config::context::{FoundFile, Include};
use crate::config::file::Standing;
use crate::config::yaml::Fault;

const MAIN: &str = "version: 1\nauth: none\ninclude: [\"d/*.yaml\"]\n";

/// Files by their path; one without text is no UTF-8.
type Files<'a> = &'a [(&'a str, Option<&'a str>)];

/// A tool in the default profile that is signed for with `/s/good`, as an item of a list.
fn item(name: &str) -> String {
    format!(
        "  - {{name: {name}, description: Looks an order up by its number., \
         url: \"https://shop.example.com/{name}\", secret: {{current: {{file: /s/good}}}}}}\n"
    )
}

fn tools(names: &[&str]) -> String {
    format!("owner: shop\ntools:\n{}", names.iter().map(|name| item(name)).collect::<String>())
}

fn include(
    files: Files<'_>,
) -> impl Fn(&std::path::Path) -> Result<Vec<FoundFile>, SourceError> + use<> {
    let found = files.iter().map(|(path, text)| FoundFile {
        path: PathBuf::from(path),
        text: text.map(Arc::from).ok_or_else(|| Fault::of_file("is not UTF-8")),
    });
    let found: Vec<_> = found.collect();
    move |pattern| {
        let Some(text) = pattern.to_str().filter(|text| !text.contains('*')) else {
            return Ok(found.clone());
        };
        let named: Vec<_> =
            found.iter().filter(|one| one.path.to_str() == Some(text)).cloned().collect();
        if named.is_empty() { Err(SourceError::Missing) } else { Ok(named) }
    }
}

fn load_after(
    main: &str,
    files: Files<'_>,
    before: Option<&Snapshot>,
) -> Result<Snapshot, ConfigErrors> {
    let include = include(files);
    let include: &Include<'_> = &include;
    let earlier = before.map(|before| before.earlier([].into()));
    let environment = Environment { include, earlier: earlier.as_ref(), ..environment() };
    parse("sortie.yaml", main, &environment)
}

#[track_caller]
fn load(main: &str, files: Files<'_>) -> Snapshot {
    load_after(main, files, None).unwrap_or_else(|found| panic!("{found}"))
}

/// Names of tools that can be called, and of those of which only the name is known.
fn names(snapshot: &Snapshot) -> (Vec<&str>, Vec<&str>) {
    let mut known: Vec<_> = snapshot.tools.keys().map(|name| name.as_str()).collect();
    let mut unread: Vec<_> = snapshot.unread.keys().map(|name| name.as_str()).collect();
    known.sort_unstable();
    unread.sort_unstable();
    (known, unread)
}

fn errors(snapshot: &Snapshot) -> String {
    let lines: Vec<_> = snapshot.file_errors().map(ToString::to_string).collect();
    lines.join("\n")
}

fn standing(snapshot: &Snapshot) -> Vec<(&str, Standing)> {
    snapshot.files.iter().map(|file| (file.label.as_str(), file.standing)).collect()
}

#[test]
fn an_agent_s_tool_of_a_broken_file_is_no_mistake_of_the_main_file() {
    let main = format!("{MAIN}agents: [{{id: shop, tools: [one, two]}}]\n");
    let two = tools(&["two"]);
    let found = load(&main, &[("d/a.yaml", Some("tools: [")), ("d/b.yaml", Some(&two))]);
    assert_eq!(names(&found), (vec!["two"], vec![]));
    assert!(found.agents.offers(Some("shop"), "one"));
    let texts =
        |found: &[Finding]| -> Vec<String> { found.iter().map(ToString::to_string).collect() };
    let expected = "sortie.yaml:4:29: agents[0].tools[0]: there is no tool named `one`";
    assert_eq!(texts(&found.warnings), [expected]);
    // Its file may be gone as well, which is another team's matter too; `strict` makes it everybody's.
    let gone = load(&main, &[("d/b.yaml", Some(&two))]);
    assert_eq!(texts(&gone.warnings), [expected]);
    let strict = format!("{main}strict: true\n");
    let whole = load_after(&strict, &[("d/b.yaml", Some(&two))], None).expect_err("no `one`");
    assert_eq!(texts(&whole.errors), [expected]);
}

#[test]
fn an_included_file_speaks_for_its_tools() {
    let text = format!(
        "owner: shop\nrunbook: https://wiki.example.com/shop\n{}\n  - {{name: two, owner: own, \
         runbook: here, description: Looks an order up by its number., \
         url: \"https://shop.example.com/\", secret: {{current: {{file: good}}}}}}\n",
        tools(&["one"]).trim_start_matches("owner: shop\n")
    );
    let main = format!("{MAIN}tools:\n{}", item("zero"));
    let found = load_after(&main, &[("conf/a.yaml", Some(&text))], None).expect("valid");
    let about = |name: &str| {
        let tool = found.tool(name).expect("a tool");
        (tool.owner.as_deref(), tool.runbook.as_deref(), tool.file.to_string())
    };
    assert_eq!(about("zero"), (None, None, "sortie.yaml".into()));
    let wiki = Some("https://wiki.example.com/shop");
    assert_eq!(about("one"), (Some("shop"), wiki, "conf/a.yaml".into()));
    // Its own words come first; `good` stands in the folder of the file.
    assert_eq!(about("two"), (Some("own"), Some("here"), "conf/a.yaml".into()));
    assert_eq!(found.tool("two").expect("a tool").unavailable, None);
    let shown = &found.redacted["tools"];
    assert_eq!(shown.as_array().map(Vec::len), Some(3));
    assert_eq!((&shown[1]["owner"], &shown[2]["owner"]), (&"shop".into(), &"own".into()));
}

#[test]
fn a_broken_file_takes_nobody_along() {
    let bad = tools(&["bad", "worse"]).replace("shop.example.com/bad", "10.0.0.1/");
    let (good, no_yaml) = (tools(&["good"]), "tools: [\n");
    let files: Files<'_> = &[
        ("d/a.yaml", Some(&bad)),
        ("d/b.yaml", Some(&good)),
        ("d/c.yaml", Some(no_yaml)),
        ("d/d.yaml", None),
    ];
    let snapshot = load(MAIN, files);
    assert_eq!(names(&snapshot), (vec!["good"], vec!["bad", "worse"]));
    assert_eq!(snapshot.owner("worse"), Some("shop"));
    let told = errors(&snapshot);
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("d/a.yaml:3:69: tools[0].url: 10.0.0.1 is a private"), "{told}");
    assert!(lines[1].starts_with("d/c.yaml:1:8: is not valid YAML"), "{told}");
    assert_eq!((lines[2], lines.len()), ("d/d.yaml:1:1: is not UTF-8", 3));
    let (current, gone) = (Standing::Current, Standing::Unavailable);
    let expected = [
        ("sortie.yaml", current),
        ("d/a.yaml", gone),
        ("d/b.yaml", current),
        ("d/c.yaml", gone),
        ("d/d.yaml", gone),
    ];
    assert_eq!(standing(&snapshot), expected);
    // Where nothing may be lacking, a broken file stops the whole, and so it does beside a broken main file.
    for main in [format!("{MAIN}strict: true\n"), format!("{MAIN}nonsense: 1\n")] {
        let found = load_after(&main, files, None).expect_err("is wrong");
        assert!(found.to_string().ends_with(&told), "{found}");
    }
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_tools() {
    let before = load(MAIN, &[("d/a.yaml", Some(&tools(&["one", "two"])))]);
    let bad = tools(&["two", "three"]).replace("name: three", "nome: three");
    let files: Files<'_> = &[("d/a.yaml", Some(&bad)), ("d/b.yaml", Some(&tools(&["four"])))];
    let after = load_after(MAIN, files, Some(&before)).expect("valid");
    assert_eq!(names(&after), (vec!["four", "one", "two"], vec![]));
    assert_eq!(after.files[1].standing, Standing::Kept);
    assert!(errors(&after).contains("d/a.yaml:4:6: tools[1].nome: is not a known key"));
    // However long it stays broken.
    let later = load_after(MAIN, files, Some(&after)).expect("valid");
    assert_eq!((names(&later), &later.hash), (names(&after), &after.hash));
    // What was good, then broken and then repaired is what stands there.
    let repaired = load_after(MAIN, &[("d/a.yaml", Some(&tools(&["three"])))], Some(&later));
    let repaired = repaired.expect("valid");
    assert_eq!((names(&repaired), errors(&repaired)), ((vec!["three"], vec![]), String::new()));
    // Nothing is kept of a file that is gone.
    let gone = load_after(MAIN, &[], Some(&later)).expect("valid");
    assert_eq!(names(&gone), (vec![], vec![]));
}

#[test]
fn what_is_kept_is_judged_by_the_rules_in_force() {
    let private = tools(&["one"]).replace("https://shop.example.com/", "https://10.0.0.1/");
    let exception = "egress: {exceptions: [{tools: [\"*\"], hosts: [10.0.0.1], cidrs: \
                     [10.0.0.1/32], reason: r, owner: o}]}\n";
    let open = format!("{MAIN}{exception}");
    let before = load(&open, &[("d/a.yaml", Some(&private))]);
    let broken: Files<'_> = &[("d/a.yaml", Some("tools: [\n"))];
    let kept = load_after(&open, broken, Some(&before)).expect("valid");
    assert_eq!(names(&kept), (vec!["one"], vec![]));
    // Closed while the file is broken: its tools go with the exception.
    let closed = load_after(MAIN, broken, Some(&kept)).expect("valid");
    assert_eq!(names(&closed), (vec![], vec!["one"]));
    assert_eq!(closed.files[1].standing, Standing::Unavailable);
    let opened = load_after(&open, broken, Some(&closed)).expect("valid");
    assert_eq!(names(&opened), (vec!["one"], vec![]));
    // Other rules are another route.
    let other = format!("{MAIN}{}", exception.replace("egress: {", "egress: {ipv6: \"off\", "));
    let other = load_after(&other, broken, Some(&kept)).expect("valid");
    assert_ne!(other.tools["one"].route_digest, kept.tools["one"].route_digest);
}

#[test]
fn a_name_is_one_file_s() {
    let (one, two) = (tools(&["same", "one"]), tools(&["two", "same"]));
    let snapshot = load(MAIN, &[("d/b.yaml", Some(&two)), ("d/a.yaml", Some(&one))]);
    assert_eq!(names(&snapshot), (vec!["one", "same"], vec!["two"]));
    assert_eq!(snapshot.tools["same"].file.as_ref(), "d/a.yaml");
    let place =
        "d/b.yaml:4:12: tools[1].name: another tool is named `same` too, in d/a.yaml on line 3";
    assert_eq!(errors(&snapshot), place);
    // The main file comes first.
    let main = format!("{MAIN}tools:\n{}", item("two"));
    let snapshot = load(&main, &[("d/b.yaml", Some(&two))]);
    assert!(errors(&snapshot).ends_with("`two` too, in sortie.yaml on line 5"));
    assert_eq!(names(&snapshot), (vec!["two"], vec!["same"]));
    // A tool that moved to an earlier file is that file's; the rest of the later one is kept.
    let before = load(MAIN, &[("d/b.yaml", Some(&two))]);
    let moved: Files<'_> = &[("d/a.yaml", Some(&one)), ("d/b.yaml", Some(&two))];
    let moved = load_after(MAIN, moved, Some(&before)).expect("valid");
    assert_eq!(names(&moved), (vec!["one", "same", "two"], vec![]));
    assert_eq!(moved.tools["same"].file.as_ref(), "d/a.yaml");
}

#[test]
fn a_wire_format_is_the_file_s_own() {
    let profile = |name: &str| {
        let text = include_str!("../../../../config/profiles/plain-v1.yaml");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text: String = lines.map(|line| format!("    {line}\n")).collect();
        format!("profiles:\n  -\n{}", text.replace("name: plain-v1", &format!("name: {name}")))
    };
    let tool = |name: &str, profile: &str| {
        let secret = ", secret: {current: {file: /s/good}}";
        tools(&[name]).replace(secret, &format!(", profile: {profile}"))
    };
    let own = format!("{}{}", profile("ours"), tool("one", "ours"));
    let other = tool("two", "ours");
    let third = format!("{}{}", profile("ours"), tool("three", "ours"));
    let files: Files<'_> =
        &[("d/a.yaml", Some(&own)), ("d/b.yaml", Some(&other)), ("d/c.yaml", Some(&third))];
    let snapshot = load(MAIN, files);
    assert_eq!(names(&snapshot), (vec!["one"], vec!["three", "two"]));
    let told = errors(&snapshot);
    assert!(told.contains("d/b.yaml:3:"), "{told}");
    assert!(told.contains("d/c.yaml:3:11: profiles[0].name: another profile is named `ours` too, in d/a.yaml on line 3"), "{told}");
    let main = format!("{MAIN}{}", profile("ours"));
    assert_eq!(names(&load(&main, &[("d/b.yaml", Some(&other))])).0, ["two"]);
}

#[test]
fn agents_of_a_file_are_offered_tools_where_the_main_file_binds_agents() {
    let own = format!("{}agents: [{{id: support, tools: [one, later]}}]\n", tools(&["one"]));
    let bound = format!("{MAIN}agents: []\n");
    let before = load(&bound, &[("d/a.yaml", Some(&own))]);
    let offers = |snapshot: &Snapshot| snapshot.agents.offers(Some("support"), "one");
    assert!(offers(&before) && !before.agents.offers(Some("sales"), "one"));
    let told: Vec<_> = before.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["d/a.yaml:4:37: agents[0].tools[1]: there is no tool named `later`"]);
    // Broken, its agents are kept like its tools; at start nobody opens or closes anything in its place.
    let broken: Files<'_> = &[("d/a.yaml", Some("tools: [\n"))];
    assert!(offers(&load_after(&bound, broken, Some(&before)).expect("valid")));
    assert!(!load(&bound, broken).agents.offers(Some("support"), "one"));
    // A file alone does not bind all others.
    let snapshot = load(MAIN, &[("d/a.yaml", Some(&own)), ("d/b.yaml", Some(&tools(&["two"])))]);
    assert!(
        errors(&snapshot).starts_with("d/a.yaml:4:9: agents: needs a list in the main file too")
    );
    assert!(snapshot.agents.offers(None, "two"));
    let twice: Files<'_> = &[
        ("d/a.yaml", Some(&own)),
        ("d/b.yaml", Some("agents: [{id: support, tools: [\"*\"]}]\n")),
    ];
    let snapshot = load(&bound, twice);
    let place = "agents[0].id: another agent has the id `support` too, in d/a.yaml on line 4";
    assert!(errors(&snapshot).ends_with(place), "{}", errors(&snapshot));
    assert!(!snapshot.agents.offers(Some("support"), "two"));
}

#[test]
fn an_agent_of_the_main_file_may_wait_for_tools_of_others() {
    let main = format!("{MAIN}agents: [{{id: support, tools: [one, two]}}]\n");
    let snapshot = load(&main, &[("d/a.yaml", Some(&tools(&["one"])))]);
    let told: Vec<_> = snapshot.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["sortie.yaml:4:37: agents[0].tools[1]: there is no tool named `two`"]);
    let strict = format!("{main}strict: true\n");
    assert!(load_after(&strict, &[("d/a.yaml", Some(&tools(&["one"])))], None).is_err());
    // A broken file's names are names.
    let broken = tools(&["one", "two"]).replace("https", "ftp");
    let snapshot = load(&main, &[("d/a.yaml", Some(&broken))]);
    assert_eq!(snapshot.warnings, []);
}

#[test]
fn policies_are_about_the_tools_of_all_files() {
    let policy = "policies: [{id: careful, match: {tools: [one]}, effect: require_approval}]\n";
    let snapshot =
        load(&format!("{MAIN}{policy}{STORED}"), &[("d/a.yaml", Some(&tools(&["one", "two"])))]);
    let count = |name: &str| snapshot.tools[name].policies.len();
    assert_eq!((count("one"), count("two"), snapshot.warnings.len()), (1, 0, 0));
    let own = load(MAIN, &[("d/a.yaml", Some(policy))]);
    assert!(errors(&own).contains("d/a.yaml:1:1: policies: stands in the main file only"));
}

#[test]
fn only_the_main_file_says_what_holds_for_all() {
    let text = "egress: {mode: shadow}\nauth: none\nversion: 1\nstorage: {}\ntool: []\n";
    let snapshot = load(MAIN, &[("d/a.yaml", Some(text))]);
    let elsewhere = "stands in the main file only, an included file has no say in it";
    let expected = format!(
        "d/a.yaml:1:1: egress: {elsewhere}\nd/a.yaml:2:1: auth: {elsewhere}\n\
         d/a.yaml:3:1: version: {elsewhere}\nd/a.yaml:4:1: storage: stands in the main file only, an included file has no say in it\n\
         d/a.yaml:5:1: tool: is not a known key, did you mean `tools`?"
    );
    assert_eq!(errors(&snapshot), expected);
}

#[test]
fn every_key_of_the_main_file_is_one_of_an_included_file_or_not() {
    let keys = |schema: schemars::Schema| {
        let properties = schema.as_value()["properties"].as_object().expect("keys").clone();
        properties.into_iter().map(|(key, _)| key).collect::<std::collections::BTreeSet<_>>()
    };
    let main = keys(schemars::schema_for!(RawConfig));
    let included = keys(schemars::schema_for!(crate::config::raw::RawIncluded));
    let only: Vec<_> = main.difference(&included).cloned().collect();
    assert_eq!(only, crate::config::raw::MAIN_ONLY);
}

#[test]
fn names_and_patterns_that_lead_nowhere_are_told() {
    let include = |list: &str| format!("version: 1\nauth: none\ninclude: {list}\n");
    let found = load_after(&include("[d/a.yaml]"), &[], None).expect_err("is wrong");
    assert_eq!(found.to_string(), "sortie.yaml:3:11: include[0]: file `d/a.yaml` is not there");
    let snapshot = load(MAIN, &[]);
    let told = snapshot.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told, ["sortie.yaml:3:11: include[0]: no file matches `d/*.yaml`"]);
    for list in ["[\"\"]", "[\"d/**/a.yaml\"]"] {
        let found = load_after(&include(list), &[], None).expect_err("is wrong");
        assert!(found.to_string().contains("include[0]: must be a file or a pattern"), "{found}");
    }
    // A pattern that holds the main file itself does not include it, and two names of a file are one.
    let one = tools(&["one"]);
    let files: Files<'_> =
        &[("./sortie.yaml", Some("x")), ("d/one.yaml", Some(&one)), ("./d/one.yaml", Some(&one))];
    assert_eq!(standing(&load(&include("[\"*.yaml\"]"), files)).len(), 2);
}

#[test]
fn any_change_of_what_is_in_force_is_another_hash() {
    let one = tools(&["one"]);
    let hashes = [
        load(MAIN, &[]),
        load(MAIN, &[("d/a.yaml", Some(&one))]),
        load(MAIN, &[("d/b.yaml", Some(&one))]),
        load(MAIN, &[("d/a.yaml", Some(&tools(&["two"])))]),
        load(MAIN, &[("d/a.yaml", Some("x"))]),
        load(&format!("{MAIN}#"), &[]),
    ]
    .map(|snapshot| snapshot.hash);
    let all: std::collections::BTreeSet<_> = hashes.iter().collect();
    assert_eq!(all.len(), hashes.len(), "{hashes:?}");
}

#[test]
fn a_folder_holds_the_secrets_of_tools_that_name_none() {
    let bare = |name: &str| item(name).replace(", secret: {current: {file: /s/good}}", "");
    let read = |source: &Source| match source.to_string().as_str() {
        "file `/main/one.secret`" => Ok(Secret::new(format!("whsec_{CANARY}_0123456789012345\n"))),
        "file `/main/one.previous`" => Ok(Secret::new(format!("whsec_{CANARY}_abcdefghijklmno"))),
        "file `conf/own/two.secret`" => Ok(Secret::new(format!("whsec_{CANARY}_9876543210123"))),
        "file `conf/own/bad.secret`" => Err(SourceError::Unreadable("not a directory".into())),
        "file `conf/own/bad.previous`" => Err(SourceError::Unreadable("not a directory".into())),
        _ => Err(SourceError::Missing),
    };
    let main = format!("{MAIN}secrets: {{dir: /main}}\ntools:\n{}{}", bare("one"), bare("gone"));
    let own = format!("secrets: {{dir: own}}\ntools:\n{}{}", bare("two"), bare("bad"));
    let shared = format!("tools:\n{}", bare("three"));
    let include =
        include(&[("conf/a.yaml", Some(own.as_str())), ("conf/b.yaml", Some(shared.as_str()))]);
    let with = |strict| Environment { lookup: &read, include: &include, strict, ..environment() };
    let snapshot = parse("sortie.yaml", &main, &with(false)).expect("valid");
    let keys = |name: &str| {
        let tool = &snapshot.tools[name];
        (tool.signing.at(NOW).len(), tool.unavailable.is_none())
    };
    assert_eq!((keys("one"), keys("two")), ((2, true), (1, true)));
    assert_eq!((keys("gone"), keys("bad"), keys("three")), ((0, false), (0, false), (0, false)));
    let told: Vec<_> = snapshot.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        "sortie.yaml:7:5: tools[1]: file `/main/gone.secret` is not there, the tool is unavailable",
        "conf/a.yaml:4:5: tools[1]: file `conf/own/bad.previous` cannot be read: not a directory, the tool is unavailable",
        "conf/a.yaml:4:5: tools[1]: file `conf/own/bad.secret` cannot be read: not a directory, the tool is unavailable",
        "conf/b.yaml:2:5: tools[0]: file `/main/three.secret` is not there, the tool is unavailable",
    ];
    let mut sorted = told.clone();
    sorted[1..3].sort();
    assert_eq!(sorted, expected);
    assert!(!told.iter().any(|line| line.contains(CANARY)));
    assert_eq!(parse("sortie.yaml", &main, &with(true)).expect_err("strict").errors.len(), 4);
    // Without a folder the key has to be named.
    bad(
        "tools:\n  - {name: one, description: Looks an order up by its number., url: \"https://a.example.com/\"}\n",
        "4:5: tools[0].secret: is missing, profile envelope-v1 signs: write {current: {file: PATH}}",
    );
    bad("secrets: {dir: \"\"}\n", "3:16: secrets.dir: must not be empty");
}
