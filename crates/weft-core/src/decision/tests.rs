//! Decisions among each other: references, supersession, lint, ranking, verdict.

use super::check::{Rule, check};
use super::link::{Found, Names, settle};
use super::rank::{self, Verdict, Weights};
use super::{
    Alternative, Decision, Type, leading_date, read::read, slug, slug_of_path, split_number,
};

fn decision(path: &str, text: &str) -> Decision {
    let n = path
        .bytes()
        .fold(7_u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    Decision {
        id: format!("dec_{n:032x}"),
        path: path.into(),
        record: read(path, text.as_bytes()).expect("record"),
        ..Decision::default()
    }
}

fn adr(title: &str, status: &str) -> String {
    format!("# {title}\n\n## Status\n\n{status}\n\n## Context\n\nText.\n")
}

#[test]
fn decisions_are_found_by_what_people_call_them() {
    let all = [
        decision("doc/adr/0003-use-x.md", &adr("3. Use X", "Accepted")),
        decision("doc/adr/0003-use-y.md", &adr("3. Use Y", "Accepted")),
        decision("doc/adr/0012-z.md", &adr("12. Z", "Accepted")),
    ];
    let names = Names::new(&all);
    for (name, want) in [
        ("doc/adr/0012-z.md", Found::One(2)),
        ("0012-z.md", Found::One(2)),
        ("0012-z", Found::One(2)),
        ("z", Found::One(2)),
        ("12", Found::One(2)),
        ("ADR-0012", Found::One(2)),
        ("ADR 12", Found::One(2)),
        ("3", Found::Many(vec![0, 1])),
        ("use-y", Found::One(1)),
        ("99", Found::Nothing),
        ("", Found::Nothing),
        (&all[1].id, Found::One(1)),
        ("dec_ffffffff", Found::Nothing),
    ] {
        assert_eq!(names.named(name), want, "{name}");
    }
}

#[test]
fn a_proposed_decision_retires_nothing_and_an_accepted_one_does() {
    let mut all = vec![
        decision("a/0001-old.md", &adr("1. Old", "Accepted")),
        decision(
            "a/0002-new.md",
            &adr("2. New", "Proposed\n\nSupersedes [1. Old](0001-old.md)"),
        ),
    ];
    settle(&mut all);
    assert_eq!(all[0].status.name(), "accepted");
    assert!(all[0].superseded_by.is_empty());
    all[1] = decision(
        "a/0002-new.md",
        &adr("2. New", "Accepted\n\nSupersedes [1. Old](0001-old.md)"),
    );
    settle(&mut all);
    assert_eq!(all[0].status.name(), "superseded");
    assert_eq!(all[0].superseded_by, [all[1].id.clone()]);
    let found: Vec<Rule> = check(&all, &[]).iter().map(|f| f.rule).collect();
    assert_eq!(found, [Rule::OneSided]);
}

#[test]
fn the_lint_names_what_does_not_fit() {
    let mut all = vec![
        decision(
            "a/0001-a.md",
            &adr("1. A", "Superseded by [2. B](0002-b.md)"),
        ),
        decision(
            "a/0002-b.md",
            &adr("2. B", "Superseded by [1. A](0001-a.md)"),
        ),
        decision(
            "a/0002-c.md",
            &adr("2. C", "Superseded by [9. Gone](0009-gone.md)"),
        ),
        decision(
            "a/0004-d.md",
            &adr("4. D", "Superseded by [5. E](0005-e.md)"),
        ),
        decision("a/0005-e.md", &adr("5. E", "Proposed")),
    ];
    settle(&mut all);
    let found = check(&all, &[(3, 4)]);
    for rule in [
        Rule::Cyclic,
        Rule::Dangling,
        Rule::ProposedRetires,
        Rule::DuplicateNumber,
        Rule::OneSided,
    ] {
        assert!(
            found.iter().any(|f| f.rule == rule),
            "{rule:?} in {found:#?}"
        );
    }
    assert_eq!(found.iter().filter(|f| f.rule == Rule::Cyclic).count(), 1);
    assert!(
        found
            .iter()
            .any(|f| f.text.contains("0005-e.md is only proposed")),
        "{found:#?}"
    );
}

#[test]
fn decisions_at_odds_on_one_file() {
    let text = |title: &str, other: &str| {
        format!(
            "---\nstatus: accepted\nfiles: [src/queue.rs]\n---\n# {title}\n\n## Considered Options\n\n* {title}\n* {other}\n\n## Decision Outcome\n\nChosen option: \"{title}\"\n"
        )
    };
    let mut all = vec![
        decision("a/1-x.md", &text("Use Kafka", "RabbitMQ")),
        decision("a/2-y.md", &text("Use a table", "Kafka")),
    ];
    settle(&mut all);
    let found = check(&all, &[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].rule, Rule::Conflict);
}

#[test]
fn ranking_verdict_and_the_order_of_replaced_ones() {
    let mut all = vec![
        decision(
            "a/1-redis.md",
            &adr("1. Sessions in Redis", "Superseded by [2. JWT](2-jwt.md)"),
        ),
        decision(
            "a/2-jwt.md",
            &adr(
                "2. Sessions as JWT",
                "Accepted\n\nSupersedes [1. R](1-redis.md)",
            ),
        ),
        decision(
            "a/3-queue.md",
            "---\nstatus: accepted\n---\n# Queue in a table\n\n## Considered Options\n\n* Queue in a table\n* Kafka\n\n## Decision Outcome\n\nChosen option: \"Queue in a table\"\n\n### Kafka\n\n* Bad, because heavy\n",
        ),
    ];
    settle(&mut all);
    let packed: Vec<Vec<u8>> = all.iter().map(|d| rank::pack(&d.record)).collect();
    let views: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    let ask = |q: &str| {
        let query = rank::query_words(q);
        let mut r = rank::rank(&query, &views, &[None, None, None], &Weights::CHOSEN);
        let v = rank::verdict(&query, &all, &r);
        let whole = r.clone();
        rank::with_successors(&all, &mut r, &whole);
        (v, r.iter().map(|x| x.at).collect::<Vec<_>>())
    };
    assert_eq!(
        ask("sessions in redis").0,
        Verdict::Replaced(all[0].id.clone(), all[1].id.clone())
    );
    assert_eq!(ask("sessions in redis").1[0], 1);
    assert_eq!(
        ask("sessions as jwt").0,
        Verdict::Decided(all[1].id.clone())
    );
    assert_eq!(ask("why not kafka").0, Verdict::Rejected(all[2].id.clone()));
    assert_eq!(ask("colour of the logo").0, Verdict::Nothing);
    assert_eq!(ask("").0, Verdict::Nothing);
}

#[test]
fn slugs_numbers_and_dates() {
    assert_eq!(
        slug("Use JWT, don't use cookies!"),
        "use-jwt-dont-use-cookies"
    );
    assert_eq!(slug("???"), "decision");
    assert_eq!(slug_of_path("doc/adr/0003-x.md"), "0003-x");
    assert_eq!(
        slug_of_path("adr/2022-02-03-tests/README.md"),
        "2022-02-03-tests"
    );
    assert_eq!(split_number("0003-x"), (Some(3), "x"));
    assert_eq!(split_number("ADR-0008-replace"), (Some(8), "replace"));
    assert_eq!(split_number("adr-015-ibc"), (Some(15), "ibc"));
    assert_eq!(split_number("20210503-x"), (None, "x"));
    assert_eq!(split_number("2022-02-03-x"), (None, "x"));
    assert_eq!(split_number("2023-06-19_024-event"), (Some(24), "event"));
    assert_eq!(split_number("api_faceting"), (None, "api_faceting"));
    assert_eq!(leading_date("20211503-x"), None);
    assert_eq!(leading_date("é"), None);
}

#[test]
fn alternatives_and_types() {
    let a = Alternative::parse("Kafka: too much to run");
    assert_eq!(
        (a.name.as_str(), a.why_not.as_str()),
        ("Kafka", "too much to run")
    );
    assert_eq!(Alternative::parse("std::fs").name, "std::fs");
    for (name, t) in Type::ALL {
        assert_eq!((Type::parse(name), t.name()), (Some(t), name));
    }
    assert_eq!(Type::parse("x"), None);
}
