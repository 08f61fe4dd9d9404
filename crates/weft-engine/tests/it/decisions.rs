//! Decisions over real folders and repositories: recording, supersession, staleness, import, export.

use std::path::Path;
use std::sync::Arc;

use weft_engine::decisions::decision::check::Rule;
use weft_engine::decisions::decision::rank::Verdict;
use weft_engine::decisions::decision::{Alternative, Decision, Status};
use weft_engine::decisions::{
    DecisionAnswer, DecisionQuery, ImportRecords, NewDecision, Recorded, Replacement,
};
use weft_engine::{Config, DecisionError, Decisions, Engine};

use crate::code::{Place, commit, git, place, write};

fn at(p: &Place) -> Decisions<'_> {
    p.engine.decisions_at(&p.root).expect("decisions")
}

fn new(title: &str, rationale: &str) -> NewDecision {
    NewDecision {
        title: title.into(),
        rationale: rationale.into(),
        made_by: "ann".into(),
        accept: true,
        ..NewDecision::default()
    }
}

fn record(d: &Decisions<'_>, n: NewDecision) -> Decision {
    match d.record(n).expect("recorded") {
        Recorded::New(d) => *d,
        Recorded::Near(d) => panic!("near {}", d.path),
    }
}

fn ask(d: &Decisions<'_>, query: &str) -> DecisionAnswer {
    d.search(&DecisionQuery {
        query: query.into(),
        ..DecisionQuery::default()
    })
    .expect("answer")
}

fn stale(d: &Decisions<'_>) -> Vec<String> {
    let (loaded, _) = d.current().expect("current");
    let all: Vec<usize> = (0..loaded.all.len()).collect();
    let mut out: Vec<String> = d
        .stale(&loaded, &all)
        .expect("stale")
        .values()
        .map(|s| s.text())
        .collect();
    out.sort();
    out
}

fn status_of(d: &Decisions<'_>, name: &str) -> (Status, Vec<String>) {
    let (loaded, _) = d.current().expect("current");
    let x = &loaded.all[loaded.find(name).expect(name)];
    (x.status, x.superseded_by.clone())
}

#[test]
fn recording_searching_and_the_near_duplicate_guard() {
    let p = place();
    let d = at(&p);
    let jwt = record(
        &d,
        NewDecision {
            files: vec!["src/billing/refunds.ts".into()],
            alternatives: vec![Alternative::parse("Cookies: need a session store")],
            ..new(
                "Use JWT for authentication",
                "Stateless tokens work with our edge deployment.",
            )
        },
    );
    assert_eq!(
        (jwt.status, jwt.path.as_str()),
        (Status::Accepted, "0001-use-jwt-for-authentication.md")
    );
    assert_eq!(
        jwt.record.rationale,
        "Stateless tokens work with our edge deployment."
    );
    let near = d
        .record(new("Using JWT for authentication", "again"))
        .expect("answer");
    assert!(matches!(near, Recorded::Near(n) if n.id == jwt.id));
    record(
        &d,
        NewDecision {
            force: true,
            ..new("Using JWT for authentication", "again")
        },
    );
    let a = ask(&d, "authentication and session management");
    assert_eq!(a.hits[0].decision.id, jwt.id, "{a:#?}");
    assert!(a.hits[0].similarity.is_some_and(|s| s > 0.3 && s <= 1.0));
    let a = ask(&d, "why not cookies");
    assert_eq!(a.verdict, Verdict::Rejected(jwt.id.clone()));
    assert_eq!(
        a.hits[0].rejected.as_ref().map(|r| r.name.as_str()),
        Some("Cookies")
    );
    assert_eq!(ask(&d, "colour of the logo").verdict, Verdict::Nothing);
    for odd in [
        "\"",
        "*",
        "AND",
        "don't",
        "src/main.rs",
        "--no-verify",
        "数据库",
        &"x ".repeat(3_000),
    ] {
        ask(&d, odd);
    }
    for bad in [
        new("", "x"),
        new("x", " "),
        NewDecision {
            files: vec!["../x".into()],
            ..new("Y z", "w")
        },
    ] {
        assert!(matches!(d.record(bad), Err(DecisionError::Bad(_))));
    }
}

#[test]
fn supersession_is_written_on_both_ends_and_a_proposed_one_retires_nothing() {
    let p = place();
    let d = at(&p);
    let old = record(&d, new("Sessions in Redis", "Fast."));
    let proposed = record(
        &d,
        NewDecision {
            accept: false,
            supersedes: vec![old.id.clone()],
            ..new("Tokens without state", "No store.")
        },
    );
    assert_eq!(proposed.status, Status::Proposed);
    assert_eq!(status_of(&d, &old.id).0, Status::Accepted);
    let refused = d.supersede(&old.id, Replacement::Existing(proposed.id.clone()), "bob");
    assert!(matches!(refused, Err(DecisionError::Conflict(t)) if t.contains("only proposed")));
    d.set_status(&proposed.id, Status::Accepted, "bob", "")
        .expect("accepted");
    assert_eq!(
        status_of(&d, &old.id),
        (Status::Superseded, vec![proposed.id.clone()])
    );
    let circle = d.supersede(&proposed.id, Replacement::Existing(old.id.clone()), "bob");
    assert!(
        matches!(circle, Err(DecisionError::Conflict(_))),
        "{circle:?}"
    );
    let a = ask(&d, "sessions in redis");
    assert_eq!(
        a.verdict,
        Verdict::Replaced(old.id.clone(), proposed.id.clone())
    );
    assert_eq!(a.hits[0].decision.id, proposed.id);
    let kinds: Vec<String> = d
        .events(&proposed.id)
        .expect("events")
        .iter()
        .map(|e| e.kind.clone())
        .collect();
    assert_eq!(kinds, ["recorded", "accepted"]);
    assert!(d.check(&d.current().expect("current").0).is_empty());
    assert!(matches!(
        d.set_status(&old.id, Status::Accepted, "", ""),
        Err(DecisionError::Conflict(_))
    ));
}

#[test]
fn a_changed_symbol_makes_a_decision_stale_until_it_is_reaffirmed() {
    let p = place();
    let d = at(&p);
    let linked = |target: &str, title: &str| NewDecision {
        files: vec![target.into()],
        ..new(title, "Because.")
    };
    record(
        &d,
        linked("src/billing/refunds.ts", "Refund through the provider"),
    );
    let symbol = record(
        &d,
        linked(
            "src/billing/refunds.ts::processRefund",
            "Cents are whole numbers",
        ),
    );
    record(&d, linked("src/cart/**", "Coupons stay simple"));
    record(&d, linked("src/later.ts", "A file that will come"));
    assert!(stale(&d).is_empty());
    // White space, a new name, a move: no change.
    let text = crate::code::REFUNDS;
    write(
        &p.root,
        "src/billing/refunds.ts",
        &text.replace("  await", "      await"),
    );
    commit(&p.root, "format");
    assert!(stale(&d).is_empty(), "{:?}", stale(&d));
    write(
        &p.root,
        "src/billing/refunds.ts",
        &text.replace("processRefund", "refundOrder"),
    );
    commit(&p.root, "rename the function");
    assert!(stale(&d).is_empty(), "{:?}", stale(&d));
    std::fs::create_dir_all(p.root.join("src/money")).expect("folder");
    git(
        &p.root,
        &["mv", "src/billing/refunds.ts", "src/money/refund.ts"],
    );
    write(&p.root, "src/later.ts", "export const x = 1;\n");
    commit(&p.root, "move the file");
    assert!(stale(&d).is_empty(), "{:?}", stale(&d));
    git(
        &p.root,
        &["mv", "src/money/refund.ts", "src/billing/refunds.ts"],
    );
    // The other symbol: the file's decision is stale, the symbol's is not.
    write(
        &p.root,
        "src/billing/refunds.ts",
        &text.replace(
            "auditRefund(order: Order) {}",
            "auditRefund(order: Order) { log(order); }",
        ),
    );
    commit(&p.root, "audit refunds");
    let now = stale(&d);
    assert_eq!(now.len(), 1, "{now:?}");
    assert!(
        now[0].contains("src/billing/refunds.ts changed (auditRefund)")
            && now[0].contains("audit refunds"),
        "{now:?}"
    );
    write(
        &p.root,
        "src/billing/refunds.ts",
        &text.replace("cents)", "cents + 1)"),
    );
    commit(&p.root, "round up");
    write(
        &p.root,
        "src/cart/coupons.ts",
        "export function applyCoupon(code: string): number { return 1; }\n",
    );
    commit(&p.root, "coupons count");
    let now = stale(&d);
    assert_eq!(now.len(), 3, "{now:?}");
    assert!(
        now.iter()
            .any(|s| s.contains("::processRefund changed") && s.contains("round up")),
        "{now:?}"
    );
    assert!(
        now.iter().any(|s| s.contains("src/cart/coupons.ts")),
        "{now:?}"
    );
    let hit = ask(&d, "cents are whole numbers");
    assert!(hit.hits[0].stale.is_some());
    d.reaffirm(&symbol.id, "bob", "still whole")
        .expect("reaffirmed");
    assert_eq!(stale(&d).len(), 2);
    write(
        &p.root,
        "src/billing/refunds.ts",
        "export const nothing = 1;\n",
    );
    commit(&p.root, "drop refunds");
    assert!(
        stale(&d)
            .iter()
            .any(|s| s.contains("::processRefund was removed")),
        "{:?}",
        stale(&d)
    );
}

#[test]
fn a_reaffirmation_in_a_record_reaches_other_clones() {
    let p = place();
    write(
        &p.root,
        "doc/adr/0001-refunds.md",
        "---\nstatus: accepted\nfiles: [src/billing/refunds.ts]\n---\n# Refunds\n\nWhole cents.\n",
    );
    commit(&p.root, "decide");
    let clone = |name: &str| {
        let folder = p.root.parent().expect("parent");
        git(
            folder,
            &["clone", "-q", p.root.to_str().expect("path"), name],
        );
        let engine = crate::support::open(
            &p.data.with_file_name(format!("{name}-data")),
            Config::default(),
        )
        .expect("engine");
        (engine, folder.join(name))
    };
    write(
        &p.root,
        "src/billing/refunds.ts",
        &crate::code::REFUNDS.replace("cents)", "cents * 3)"),
    );
    commit(&p.root, "triple");
    let (before, there) = clone("before");
    assert_eq!(
        stale(&before.decisions_at(&there).expect("decisions")).len(),
        1
    );
    at(&p)
        .reaffirm("1", "ann", "still whole")
        .expect("reaffirmed");
    assert!(stale(&at(&p)).is_empty());
    commit(&p.root, "reaffirm");
    git(&there, &["pull", "-q"]);
    assert!(stale(&before.decisions_at(&there).expect("decisions")).is_empty());
    let (after, there) = clone("after");
    assert!(stale(&after.decisions_at(&there).expect("decisions")).is_empty());
    write(&there, "src/billing/refunds.ts", "export const none = 1;\n");
    commit(&there, "drop");
    assert_eq!(
        stale(&after.decisions_at(&there).expect("decisions")).len(),
        1
    );
}

#[test]
fn work_that_is_committed_after_the_decision_is_no_change() {
    let p = place();
    let d = at(&p);
    write(
        &p.root,
        "src/billing/refunds.ts",
        &crate::code::REFUNDS.replace("cents)", "cents * 2)"),
    );
    record(
        &d,
        NewDecision {
            files: vec!["src/billing/refunds.ts".into()],
            ..new("Refund twice", "Kind.")
        },
    );
    assert!(stale(&d).is_empty());
    commit(&p.root, "refund twice");
    assert!(stale(&d).is_empty(), "{:?}", stale(&d));
}

const ADR: &str = "# 1. Use Postgres\n\nDate: 2020-01-31\n\n## Status\n\nAccepted\n\nSee <https://x>, and [0007](0007-x.md)\n\n## Context\n\nA database.\n\n## Decision\n\nPostgres.\n\n## Consequences\n\nNone.\n";

#[test]
fn a_folder_of_the_repository_is_the_truth() {
    let p = place();
    write(&p.root, "doc/adr/0001-use-postgres.md", ADR);
    write(&p.root, "doc/adr/README.md", "# Index\n");
    commit(&p.root, "adr");
    let d = at(&p);
    assert_eq!(d.folders, ["doc/adr"]);
    // Source code in a folder of such a name is no decision.
    write(&p.root, "decisions/engine.py", "x = 1\n");
    write(
        &p.root,
        "doc/adr/template.md",
        "# NUMBER. TITLE\n\n## Status\n\nSTATUS\n",
    );
    let d = at(&p);
    assert_eq!(d.folders, ["doc/adr"]);
    assert!(d.current().expect("current").1.problems.is_empty());
    let sqlite = record(
        &d,
        NewDecision {
            supersedes: vec!["1".into()],
            ..new("Use SQLite", "Small.")
        },
    );
    assert_eq!(sqlite.path, "doc/adr/0002-use-sqlite.md");
    // M31: only the state changes.
    let old = std::fs::read_to_string(p.root.join("doc/adr/0001-use-postgres.md")).expect("old");
    assert_eq!(
        old,
        ADR.replace(
            "Accepted",
            "Superseded by [2. Use SQLite](0002-use-sqlite.md)"
        )
    );
    assert_eq!(status_of(&d, "1").0, Status::Superseded);
    // M35: edited by hand, renamed, merged.
    let id = d.current().expect("current").0.all[0].id.clone();
    git(&p.root, &["add", "-A"]);
    git(
        &p.root,
        &[
            "mv",
            "doc/adr/0001-use-postgres.md",
            "doc/adr/0009-postgres.md",
        ],
    );
    let (loaded, sync) = d.current().expect("current");
    assert_eq!((sync.renamed, loaded.all.len()), (1, 2), "{sync:?}");
    assert!(
        loaded
            .all
            .iter()
            .any(|x| x.id == id && x.path == "doc/adr/0009-postgres.md")
    );
    write(
        &p.root,
        "doc/adr/0002-use-sqlite.md",
        "---\nstatus: rejected\n---\n# Use SQLite after all\n\nNo.\n",
    );
    assert_eq!(status_of(&d, "2").0, Status::Rejected);
    assert_eq!(
        ask(&d, "sqlite").hits[0].decision.record.title,
        "Use SQLite after all"
    );
    let whole = std::fs::read(p.root.join("doc/adr/0009-postgres.md")).expect("read");
    let torn = [
        b"<<<<<<< HEAD\n".as_slice(),
        &whole,
        b"=======\nx\n>>>>>>> other\n",
    ]
    .concat();
    std::fs::write(p.root.join("doc/adr/0009-postgres.md"), torn).expect("write");
    let (loaded, sync) = d.current().expect("current");
    assert_eq!(loaded.all.len(), 2, "what was read before stays");
    assert!(
        sync.problems
            .iter()
            .any(|(_, r)| r.contains("merge conflict")),
        "{sync:?}"
    );
    std::fs::write(p.root.join("doc/adr/0009-postgres.md"), whole).expect("write");
    assert!(d.current().expect("current").1.problems.is_empty());
    std::fs::remove_file(p.root.join("doc/adr/0009-postgres.md")).expect("remove");
    assert_eq!(d.current().expect("current").0.all.len(), 1);
}

#[test]
fn a_rebuilt_index_and_another_clone_give_the_same_ids() {
    let p = place();
    write(&p.root, "doc/adr/0001-use-postgres.md", ADR);
    write(&p.root, "doc/adr/0002-undated.md", "# Undated\n\nText.\n");
    commit(&p.root, "adr");
    let ids = |d: &Decisions<'_>| -> Vec<(String, i64)> {
        d.current()
            .expect("current")
            .0
            .all
            .iter()
            .map(|x| (x.id.clone(), x.created_at))
            .collect()
    };
    let first = ids(&at(&p));
    let clone = p.root.parent().expect("parent").join("clone");
    git(
        p.root.parent().expect("parent"),
        &["clone", "-q", p.root.to_str().expect("path"), "clone"],
    );
    let other =
        crate::support::open(&p.data.with_file_name("other"), Config::default()).expect("engine");
    // A clone has an origin, and so another repository id, unless it is the same remote; times agree.
    let second = ids(&other.decisions_at(&clone).expect("decisions"));
    assert_eq!(
        first.iter().map(|x| x.1).collect::<Vec<_>>(),
        second.iter().map(|x| x.1).collect::<Vec<_>>()
    );
    assert_eq!(first[1].1, 1_793_388_244_000_000, "no date: the commit's");
    let Place {
        engine,
        data,
        root,
        _tmp,
    } = p;
    drop(engine);
    weft_store_remove(&data);
    let again = crate::support::open(&data, Config::default()).expect("engine");
    assert_eq!(ids(&again.decisions_at(&root).expect("decisions")), first);
}

fn weft_store_remove(data: &Path) {
    for f in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = std::fs::remove_file(data.join(f));
    }
}

const DRY: ImportRecords = ImportRecords {
    dry_run: true,
    redact: false,
};

/// M33 and M34: five formats in one folder, two of one day, numbers that repeat.
fn mixed(dir: &Path) {
    for (path, text) in [
        (
            "adr-tools/0001-a.md",
            "# 1. A\n\n## Status\n\nSuperceded by [2. B](0002-b.md)\n\n## Context\n\nx\n\n## Decision\n\ny\n",
        ),
        (
            "adr-tools/0002-b.md",
            "# 2. B\r\n\r\n## Status\r\n\r\nAccepted\r\n\r\nSupercedes [1. A](0001-a.md)\r\n\r\n## Context\r\n\r\nx\r\n",
        ),
        (
            "madr/0001-c.md",
            "---\nstatus: accepted\ncustom: kept\n---\n# C\n\n## Context and Problem Statement\n\nx\n",
        ),
        (
            "log4brains/20201016-d.md",
            "# D\n\n- Status: accepted\n- Date: 2020-10-16\n- Tags: x\n\n## Context and Problem Statement\n\nx\n",
        ),
        (
            "log4brains/20201016-e.md",
            "# E\n\n- Status: draft\n- Date: 2020-10-16\n- Tags: x\n\n## Decision Outcome\n\nx\n",
        ),
        (
            "folders/use-f/README.md",
            "# Decision\n\nStatus: Accepted\n\nx\n",
        ),
        ("ascii/0003-g.adoc", "= G\n\n== Status\n\nRejected\n\nx\n"),
        (
            "rfcs/0004-h.md",
            "# Summary\n\nThe word deprecated stands in prose.\n",
        ),
        ("template.md", "# NUMBER. TITLE\n"),
    ] {
        write(dir, path, text);
    }
    std::fs::write(dir.join("madr/0002-broken.md"), b"\xff\xfe\x00").expect("write");
    std::fs::write(
        dir.join("madr/0005-big.md"),
        format!("# Big\n\n{}", "word ".repeat(60_000)),
    )
    .expect("write");
}

#[test]
fn import_takes_over_every_format_and_export_gives_it_back() {
    let p = place();
    let from = p.data.with_file_name("from");
    mixed(&from);
    let d = p.engine.decisions_named("archive").expect("workspace");
    let dry = d.import(&from, DRY).expect("import");
    assert_eq!((dry.new, d.current().expect("current").0.all.len()), (9, 0));
    let r = d.import(&from, ImportRecords::default()).expect("import");
    assert_eq!((r.new, r.skipped.len()), (9, 2), "{r:?}");
    assert!(
        r.skipped[0].1.contains("untouched template") && r.skipped[1].0.contains("broken"),
        "{r:?}"
    );
    for (format, n) in [
        ("adr-tools", 2),
        ("madr-4", 1),
        ("log4brains", 2),
        ("asciidoc", 1),
        ("rfc", 1),
    ] {
        assert_eq!(r.formats.get(format), Some(&n), "{r:?}");
    }
    let (loaded, _) = d.current().expect("current");
    let titles: Vec<&str> = loaded.all.iter().map(|x| x.record.title.as_str()).collect();
    assert_eq!(titles, ["A", "B", "G", "use f", "D", "E", "C", "Big", "h"]);
    assert!(matches!(
        loaded.find("1"),
        Err(DecisionError::Ambiguous { .. })
    ));
    let again = d.import(&from, ImportRecords::default()).expect("import");
    assert_eq!(
        (again.new, again.changed, again.unchanged, again.renamed),
        (0, 0, 9, 0)
    );
    let to = p.data.with_file_name("to");
    assert_eq!(d.export(&to, false).expect("export").written, 9);
    for x in &loaded.all {
        assert_eq!(
            std::fs::read(to.join(&x.path)).expect("out"),
            std::fs::read(from.join(&x.path)).expect("in")
        );
    }
    let e = p.engine.decisions_named("second").expect("workspace");
    e.import(&to, ImportRecords::default()).expect("import");
    let back = e.current().expect("current").0;
    assert_eq!(
        back.all
            .iter()
            .map(|x| (&x.path, &x.record, x.status))
            .collect::<Vec<_>>(),
        loaded
            .all
            .iter()
            .map(|x| (&x.path, &x.record, x.status))
            .collect::<Vec<_>>()
    );
    // A rename and a change are followed.
    std::fs::rename(from.join("madr/0001-c.md"), from.join("madr/0008-c.md")).expect("rename");
    write(
        &from,
        "log4brains/20201016-d.md",
        "# D\n\n- Status: deprecated\n- Date: 2020-10-16\n- Tags: x\n\n## Decision Outcome\n\nx\n",
    );
    let r = d.import(&from, ImportRecords::default()).expect("import");
    assert_eq!((r.new, r.changed, r.renamed), (0, 1, 1));
    assert_eq!(status_of(&d, "20201016-d").0, Status::Deprecated);
    // A file of the same name with another text is not replaced.
    assert!(matches!(
        d.export(&to, false),
        Err(DecisionError::Conflict(_))
    ));
    assert!(
        d.check(&loaded)
            .iter()
            .all(|f| f.rule != Rule::DuplicateNumber)
    );
}

#[test]
fn secrets_are_taken_out_and_a_purge_removes_for_good() {
    let p = place();
    let d = at(&p);
    let key = format!("sk-ant-api03-{}", "a1B2".repeat(24));
    let x = record(
        &d,
        new(
            "Rotate keys monthly",
            &format!("The old one was {key} and leaked."),
        ),
    );
    assert!(!x.record.rationale.contains(&key), "{}", x.record.rationale);
    // An imported record stays as it is unless told otherwise, but nothing of it is ever shown or found.
    let from = p.data.with_file_name("leaky");
    write(&from, "1-leak.md", &format!("# Leaky\n\nUse {key}.\n"));
    for redact in [false, true] {
        let e = p
            .engine
            .decisions_named(if redact { "clean" } else { "verbatim" })
            .expect("workspace");
        let how = ImportRecords {
            redact,
            ..ImportRecords::default()
        };
        assert_eq!(e.import(&from, how).expect("import").with_secrets, 1);
        let (loaded, _) = e.current().expect("current");
        assert!(
            !e.with_text(&loaded, 0)
                .expect("text")
                .record
                .rationale
                .contains(&key)
        );
        let kept = String::from_utf8(e.text_of(&loaded.all[0]).expect("record")).expect("text");
        assert_eq!(kept.contains(&key), !redact);
    }
    d.purge(&x.id, "ann", "leaked").expect("purged");
    assert!(d.current().expect("current").0.all.is_empty());
    assert_eq!(
        d.events(&x.id)
            .expect("events")
            .last()
            .map(|e| e.kind.as_str()),
        Some("purged")
    );
    write(&p.root, "doc/adr/0001-a.md", ADR);
    let refused = at(&p).purge("1", "ann", "");
    assert!(matches!(refused, Err(DecisionError::Conflict(_))));
}

#[test]
fn two_that_record_at_once_get_two_numbers() {
    let p = place();
    write(&p.root, "doc/adr/0001-use-postgres.md", ADR);
    let engines: Vec<Arc<Engine>> = (0..4)
        .map(|_| crate::support::open(&p.data, Config::default()).expect("engine"))
        .collect();
    std::thread::scope(|s| {
        for (i, e) in engines.iter().enumerate() {
            let root = &p.root;
            s.spawn(move || {
                for n in 0..3 {
                    let word = ["alpha", "beta", "gamma", "delta"][i];
                    let title = format!("{word} {}", ["one", "two", "three"][n]);
                    record(&e.decisions_at(root).expect("decisions"), new(&title, "x"));
                }
            });
        }
    });
    let (loaded, _) = at(&p).current().expect("current");
    let mut numbers: Vec<u32> = loaded.all.iter().filter_map(|x| x.record.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=13).collect::<Vec<_>>());
}

#[test]
fn m17_cjk_is_found_and_m20_a_missing_leg_is_told() {
    let p = place();
    record(&at(&p), new("数据库连接池泄漏", "连接没有归还。"));
    assert_eq!(
        ask(&at(&p), "连接池").hits[0].decision.record.title,
        "数据库连接池泄漏"
    );
    let mut config = Config {
        search_deadline: std::time::Duration::from_millis(500),
        ..Config::default()
    };
    // Nothing listens on the discard port.
    config.embedding.provider = "ollama".into();
    config.embedding.target = "http://127.0.0.1:9".into();
    let engine = crate::support::open(&p.data, config).expect("engine");
    let a = ask(&engine.decisions_at(&p.root).expect("decisions"), "连接池");
    assert!(
        a.hits.len() == 1 && a.hits[0].similarity.is_none(),
        "{a:#?}"
    );
    assert!(!a.no_vectors.is_empty());
}

#[test]
fn ten_thousand_decisions_are_imported_and_searched() {
    let p = place();
    let from = p.data.with_file_name("many");
    std::fs::create_dir(&from).expect("folder");
    for i in 0..10_000 {
        let text = format!(
            "# {i}. Choice about part{} of thing{}\n\n## Status\n\nAccepted\n\n## Context\n\nPart {i} needs it.\n",
            i % 97,
            i
        );
        std::fs::write(from.join(format!("{i:05}-choice.md")), text).expect("write");
    }
    let d = p.engine.decisions_named("many").expect("workspace");
    assert_eq!(
        d.import(&from, ImportRecords::default())
            .expect("import")
            .new,
        10_000
    );
    let a = ask(&d, "thing4242");
    assert_eq!(a.searched, 10_000);
    assert!(
        a.hits[0].decision.record.title.contains("thing4242"),
        "{:?}",
        a.hits[0].decision.record.title
    );
    assert!(matches!(
        d.current().expect("current").0.find("choice"),
        Err(DecisionError::Ambiguous { .. })
    ));
}
