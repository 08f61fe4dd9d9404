//! One search over all three corpora, opening what it finds, and why code is as it is.

use serde_json::json;
use weft_engine::decisions::NewDecision;
use weft_engine::everything::{AllAnswer, AllQuery, Corpus};
use weft_engine::show::{ShowError, Shown};
use weft_engine::why::{Why, WhyOptions};
use weft_engine::{EmbedOptions, Filter};

use crate::code::{Place, REFUNDS, commit, git, place, write};

fn all(p: &Place, query: &str, filter: Filter) -> AllAnswer {
    let q = AllQuery {
        query: query.into(),
        limit: 10,
        folder: Some(p.root.clone()),
        filter,
        ..AllQuery::default()
    };
    p.engine
        .search_everything(&q, &mut |_, _, _| {})
        .expect("answer")
}

fn references(a: &AllAnswer) -> Vec<&str> {
    a.hits.iter().map(|h| h.reference.as_str()).collect()
}

/// A turn in the repository in which an agent edits a file.
fn edit(p: &Place, session: &str, id: &str, prompt: &str, tool: &str, input: serde_json::Value) {
    let turn = json!({
        "provider": "anthropic",
        "agent_name": "claude",
        "request": {"model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100, "tools": [{"name": "Edit"}],
            "messages": [{"role": "user", "content": prompt}]},
        "response": {"model": "claude-sonnet-4-5", "done": true, "stop_reason": "tool_use",
            "message": {"role": "assistant", "content": [
                {"type": "text", "text": format!("I will do it: {prompt}")},
                {"type": "tool_use", "tool_use_id": format!("toolu_{id}"), "tool_name": tool, "tool_input": input}]},
            "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
        "meta": {"request_id": id, "ts_request": "2026-10-30T10:00:00Z"},
        "session": {"harness_id": "claude", "harness_session_id": session, "cwd": p.root.to_str().expect("path"),
            "metadata": {"gitBranch": "main"}}
    });
    p.engine
        .ingest_turn(turn.to_string().as_bytes())
        .expect("ingested");
    // The result of a call comes with the next request; only then is the call known to have run.
    let next = json!({
        "provider": "anthropic",
        "agent_name": "claude",
        "request": {"model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100, "tools": [{"name": "Edit"}],
            "messages": [{"role": "user", "content": prompt},
                {"role": "assistant", "content": [
                    {"type": "text", "text": format!("I will do it: {prompt}")},
                    {"type": "tool_use", "id": format!("toolu_{id}"), "name": tool, "input": input}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": format!("toolu_{id}"), "content": "ok"}]}]},
        "response": {"model": "claude-sonnet-4-5", "done": true, "stop_reason": "end_turn",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
        "meta": {"request_id": format!("{id}-2"), "ts_request": "2026-10-30T10:00:05Z"},
        "session": {"harness_id": "claude", "harness_session_id": session, "cwd": p.root.to_str().expect("path")}
    });
    p.engine
        .ingest_turn(next.to_string().as_bytes())
        .expect("ingested");
}

fn settle(p: &Place) {
    while p.engine.derive_queued(0, 0).expect("derived") > 0 {}
    p.engine
        .embed_pass(EmbedOptions::default())
        .expect("embedded");
}

fn decide(p: &Place, title: &str, rationale: &str, files: &[&str]) {
    let new = NewDecision {
        title: title.into(),
        rationale: rationale.into(),
        files: files.iter().map(|f| (*f).to_owned()).collect(),
        accept: true,
        ..NewDecision::default()
    };
    p.engine
        .decisions_at(&p.root)
        .expect("decisions")
        .record(new)
        .expect("recorded");
}

#[test]
fn every_corpus_gets_its_clearly_right_answer_in() {
    let p = place();
    for i in 0..12 {
        edit(
            &p,
            "s1",
            &format!("r{i}"),
            &format!("talk number {i}: refunds go through the payment provider"),
            "Bash",
            json!({"command": "ls"}),
        );
    }
    settle(&p);
    decide(
        &p,
        "Refunds go through the payment provider",
        "The provider keeps the books.",
        &["src/billing/"],
    );
    let a = all(
        &p,
        "refunds through the payment provider",
        Filter::default(),
    );
    let corpora: Vec<Corpus> = a.hits.iter().take(5).map(|h| h.corpus).collect();
    for c in [Corpus::Spans, Corpus::Code, Corpus::Decisions] {
        assert!(
            corpora.contains(&c),
            "{c:?} is not among the first of {:?}",
            references(&a)
        );
    }
    assert_eq!(a.asked.len(), 3);
    for odd in [
        "don't",
        "src/main.rs",
        "--no-verify",
        "foo-bar",
        "\"",
        "*",
        "AND",
        "连接池",
        &"long paste ".repeat(300),
    ] {
        all(&p, odd, Filter::default());
    }
}

#[test]
fn identifiers_messages_tickets_and_commits_come_first() {
    let p = place();
    edit(
        &p,
        "s1",
        "a",
        "The build says: error TS2345 argument of type X, see SHOP-481",
        "Bash",
        json!({"command": "tsc"}),
    );
    edit(
        &p,
        "s1",
        "b",
        "Talk about types and builds and errors in general",
        "Bash",
        json!({"command": "tsc"}),
    );
    settle(&p);
    decide(
        &p,
        "Types are checked in the build",
        "It finds errors early.",
        &[],
    );
    let head = git(&p.root, &["rev-parse", "HEAD"]);
    assert_eq!(
        all(&p, "processRefund", Filter::default()).hits[0].reference,
        "src/billing/refunds.ts::processRefund"
    );
    for q in ["SHOP-481", "error TS2345 argument of type"] {
        let a = all(&p, q, Filter::default());
        assert!(
            a.hits[0].exact && a.hits[0].corpus == Corpus::Spans,
            "{q}: {:?}",
            references(&a)
        );
    }
    let a = all(
        &p,
        &format!("what did {} do", &head[..9]),
        Filter::default(),
    );
    assert_eq!(a.hits[0].reference, format!("commit:{}", &head[..12]));
}

#[test]
fn filters_narrow_and_missing_parts_are_told() {
    let p = place();
    let input = json!({"file_path": p.root.join("src/cart/coupons.ts"), "old_string": "a", "new_string": "export function applyCoupon(code: string): void { check(code) }"});
    edit(
        &p,
        "s1",
        "a",
        "make coupons check their code",
        "Edit",
        input,
    );
    edit(
        &p,
        "s2",
        "b",
        "make coupons colourful",
        "Bash",
        json!({"command": "ls"}),
    );
    settle(&p);
    let of = |f: Filter| {
        all(&p, "coupons", f)
            .hits
            .iter()
            .filter(|h| h.corpus == Corpus::Spans)
            .count()
    };
    assert!(
        of(Filter::default()) >= 2,
        "{:?}",
        all(&p, "coupons", Filter::default())
    );
    let tool = |t: &str| Filter {
        tool: Some(t.into()),
        ..Filter::default()
    };
    assert_eq!((of(tool("edit")) > 0, of(tool("Read"))), (true, 0));
    let file = |f: &str| Filter {
        file: Some(f.into()),
        ..Filter::default()
    };
    assert!(of(file("src/cart/coupons.ts")) > 0 && of(file("src/billing/refunds.ts")) == 0);
    assert!(
        of(Filter {
            branch: Some("other".into()),
            ..Filter::default()
        }) == 0
    );
    let since = Filter {
        since: Some(i64::MAX / 2),
        ..Filter::default()
    };
    assert!(all(&p, "coupons", since).hits.is_empty());
    let a = p
        .engine
        .search_everything(
            &AllQuery {
                query: "coupons".into(),
                limit: 5,
                corpora: vec![Corpus::Code],
                ..AllQuery::default()
            },
            &mut |_, _, _| {},
        )
        .expect("answer");
    assert!(
        a.hits.is_empty() && a.coverage[0].1.contains("no repository"),
        "{:?}",
        a.coverage
    );
}

#[test]
fn a_hit_can_be_opened() {
    let p = place();
    edit(
        &p,
        "s1",
        "a",
        "tell me about coupons",
        "Bash",
        json!({"command": "ls"}),
    );
    settle(&p);
    decide(
        &p,
        "Coupons stay simple",
        "No stacking.",
        &["src/cart/coupons.ts"],
    );
    let a = all(&p, "coupons", Filter::default());
    for h in &a.hits {
        let shown = p.engine.show(&h.reference, &p.root).expect(&h.reference);
        match (h.corpus, shown) {
            (
                Corpus::Spans,
                Shown::Span {
                    around, session, ..
                },
            ) => assert!(session.is_some() && !around.is_empty()),
            (Corpus::Code, Shown::Code(s)) => assert!(s.text.contains("applyCoupon"), "{s:?}"),
            (Corpus::Decisions, Shown::Decision { decision, .. }) => {
                assert_eq!(decision.record.rationale, "No stacking.")
            }
            (c, s) => panic!("{c:?}: {s:?}"),
        }
    }
    let open = |r: &str| p.engine.show(r, &p.root);
    assert!(
        matches!(open("src/cart/coupons.ts:1"), Ok(Shown::Code(s)) if s.symbol == "applyCoupon")
    );
    assert!(matches!(open("1"), Ok(Shown::Decision { .. })));
    assert!(
        matches!(open(&git(&p.root, &["rev-parse", "HEAD"])), Ok(Shown::Commit(_, files)) if files.len() == 2)
    );
    for bad in [
        "nothing",
        "span:x",
        "session:x",
        "decision:x",
        "commit:0000000",
        "../../etc/passwd",
        "/etc/passwd",
        "dec_ffffffff",
    ] {
        assert!(open(bad).is_err(), "{bad}");
    }
}

fn why(p: &Place, target: &str) -> Why {
    p.engine
        .why(target, &p.root, WhyOptions::default())
        .expect(target)
}

#[test]
fn why_names_commits_calls_and_decisions_across_renames() {
    let p = place();
    let changed = REFUNDS.replace(
        "await payments.refund(order.id, cents);",
        "await payments.refund(order.id, Math.round(cents));",
    );
    let full = p.root.join("src/billing/refunds.ts");
    let input = json!({"file_path": full, "old_string": "  await payments.refund(order.id, cents);",
        "new_string": "  await payments.refund(order.id, Math.round(cents));"});
    edit(
        &p,
        "s1",
        "a",
        "round the cents before refunding",
        "Edit",
        input,
    );
    let patch = format!(
        "*** Begin Patch\n*** Update File: {}\n@@\n-function auditRefund(order: Order) {{}}\n+function auditRefund(order: Order) {{ audit.log(order.id); }}\n*** End Patch",
        full.display()
    );
    edit(
        &p,
        "s2",
        "b",
        "log refunds for the audit",
        "apply_patch",
        json!({"input": patch}),
    );
    settle(&p);
    decide(
        &p,
        "Refund whole cents",
        "Providers reject fractions.",
        &["src/billing/refunds.ts::processRefund"],
    );
    decide(
        &p,
        "Audit everything",
        "The law.",
        &["src/billing/refunds.ts::auditRefund"],
    );
    write(&p.root, "src/billing/refunds.ts", &changed);
    let second = commit(&p.root, "round cents");
    std::fs::create_dir_all(p.root.join("src/money")).expect("folder");
    git(
        &p.root,
        &["mv", "src/billing/refunds.ts", "src/money/refunds.ts"],
    );
    commit(&p.root, "move refunds");
    let w = why(&p, "src/money/refunds.ts::processRefund");
    let subjects: Vec<&str> = w.commits.iter().map(|c| c.subject.as_str()).collect();
    assert_eq!(subjects, ["round cents", "billing and cart"]);
    assert_eq!(w.spans.len(), 1, "{:#?}", w.spans);
    assert_eq!(w.spans[0].prompt, "round the cents before refunding");
    assert_eq!(
        (w.spans[0].commit.as_str(), w.spans[0].resume.as_str()),
        (second.as_str(), "claude --resume s1")
    );
    let titles: Vec<&str> = w
        .decisions
        .iter()
        .map(|d| d.decision.record.title.as_str())
        .collect();
    assert_eq!(titles, ["Refund whole cents"]);
    assert!(
        w.decisions[0].stale.is_some(),
        "the symbol changed after the decision"
    );
    // By line, as a whole file, and what is not known.
    assert_eq!(
        why(&p, "src/money/refunds.ts:4").source.symbol,
        "processRefund"
    );
    let file = why(&p, "src/money/refunds.ts");
    assert_eq!((file.spans.len(), file.decisions.len()), (2, 2));
    let other = why(&p, "src/cart/coupons.ts::applyCoupon");
    assert!(other.spans.is_empty() && other.decisions.is_empty());
    assert!(
        other
            .notes
            .iter()
            .any(|n| n.contains("no captured agent call"))
            && other
                .notes
                .iter()
                .any(|n| n.contains("no decision governs"))
    );
    write(
        &p.root,
        "src/new.ts",
        "export function fresh() { return 1; }\n",
    );
    assert!(
        why(&p, "src/new.ts::fresh")
            .notes
            .iter()
            .any(|n| n.contains("no commit has it"))
    );
    for bad in [
        "src/none.ts",
        "src/money/refunds.ts::nothing",
        "",
        "::x",
        "../x",
    ] {
        let e = p.engine.why(bad, &p.root, WhyOptions::default());
        assert!(
            matches!(
                e,
                Err(ShowError::NoFile(_) | ShowError::NoSymbol { .. } | ShowError::Unknown(_))
            ),
            "{bad}: {e:?}"
        );
    }
}

#[test]
fn calls_of_other_repositories_are_not_evidence() {
    let (p, other) = (place(), place());
    let written = |root: &std::path::Path| {
        json!({"file_path": root.join("src/cart/coupons.ts"), "old_string": "x",
            "new_string": "export function applyCoupon(code: string): void {}"})
    };
    // The agent ran here and wrote there.
    edit(
        &p,
        "s9",
        "z",
        "write it elsewhere",
        "Edit",
        written(&other.root),
    );
    settle(&p);
    let spans = || why(&p, "src/cart/coupons.ts").spans.len();
    assert_eq!(spans(), 0);
    edit(&p, "s9", "y", "write it here", "Edit", written(&p.root));
    settle(&p);
    assert_eq!(spans(), 1);
}
