//! Agents and the tools that they are offered.

use super::*;

const TOOLS: &str = "\
tools:
  - {name: lookup, description: Looks an order up by its number., profile: plain-v1, url: https://shop.example.com/l}
  - {name: orders.get, description: Looks an order up by its number., profile: plain-v1, url: https://shop.example.com/o}
";

fn agents(list: &str) -> String {
    with_head(&format!("agents:\n{list}{TOOLS}{STORED}"))
}

#[track_caller]
fn check_warnings(list: &str, expected: &str) {
    assert_eq!(lines(&good(&agents(list)).warnings), expected);
}

#[test]
fn an_agent_has_the_tools_that_it_is_offered() {
    let snapshot =
        good(&agents("  - {id: support, tools: ['orders.*']}\n  - {id: idle, tools: []}\n"));
    let offers = |agent, tool| snapshot.agents.offers(agent, tool);
    assert!(offers(Some("support"), "orders.get"));
    assert!(!offers(Some("support"), "lookup") && !offers(Some("idle"), "lookup"));
    assert!(!offers(None, "orders.get") && !offers(Some("sales"), "orders.get"));
    assert!(snapshot.agents.knows("idle") && !snapshot.agents.knows("sales"));
}

#[test]
fn without_the_key_every_agent_has_every_tool() {
    let snapshot = good(&with_head(TOOLS));
    assert!(snapshot.agents.offers(None, "lookup") && snapshot.agents.knows("anybody"));
}

#[test]
fn a_pattern_without_tools_is_a_warning_and_a_name_without_one_an_error() {
    check_warnings(
        "  - {id: support, tools: ['refund.*', '*']}\n",
        "4:27: agents[0].tools[0]: `refund.*` matches no tool",
    );
    check_errors(
        &agents("  - {id: support, tools: [lookup, refund, 'a b']}\n"),
        "4:35: agents[0].tools[1]: there is no tool named `refund`\n\
         4:43: agents[0].tools[2]: a bound is 1 to 128 visible ASCII characters, \
         in which `*` stands for any run of characters",
    );
}

#[test]
fn a_tool_with_errors_of_its_own_is_still_a_tool() {
    let tools = "tools: [{name: lookup, description: Looks an order up by its number., profile: plain-v1}]\n";
    bad(
        &format!("agents: [{{id: a, tools: [lookup]}}]\n{tools}"),
        "4:9: tools[0].url: is missing, write the tool's https URL",
    );
}

#[test]
fn an_agent_has_one_id_and_says_its_tools() {
    check_errors(
        &agents(
            "  - {id: a, tools: []}\n  - {id: a, tools: []}\n  - {id: a*, tools: []}\n  - {id: ''}\n  - {tools: []}\n",
        ),
        "5:10: agents[1].id: another agent has the id `a` too, on line 4\n\
         6:10: agents[2].id: an agent's id is 1 to 128 visible ASCII characters and no pattern\n\
         7:5: agents[3].tools: is missing, write for example [\"orders.*\"], or [\"*\"] for all\n\
         7:10: agents[3].id: an agent's id is 1 to 128 visible ASCII characters and no pattern\n\
         8:5: agents[4].id: is missing, it is what a call gives as `agent_id`",
    );
    let empty = "is empty, list an agent or leave it out: then every agent has every tool";
    bad("agents: []\n", &format!("3:9: agents: {empty}"));
    bad("agents:\n", &format!("3:7: agents: {empty}"));
}
