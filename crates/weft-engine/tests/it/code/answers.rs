//! Answers, drafts, branches, interruption, purging.

use super::*;

#[test]
fn the_seeds_own_example() {
    let p = place();
    std::fs::create_dir_all(p.root.join("deep/er")).expect("folder");
    write(&p.root, "CODEOWNERS", "/src/billing/ @alice\n");
    commit(&p.root, "owners");
    // From any folder inside.
    let repo = p
        .engine
        .code_repository(&p.root.join("deep/er"))
        .expect("repository");
    assert_eq!(repo.id, p.repo().id);
    let a = p.search("where do we handle refunds?");
    assert!(a.semantic && !a.stale && !a.indexing);
    assert_eq!(a.workstream, "main");
    let h = &a.hits[0];
    assert_eq!(h.target, "src/billing/refunds.ts::processRefund");
    assert_eq!((h.line, h.kind, h.exported), (3, Kind::Function, true));
    assert_eq!(
        h.signature,
        "export async function processRefund(order: Order, cents: number)"
    );
    assert_eq!(h.doc, "Issue a refund through the payment provider.");
    assert_eq!(h.snippet, "await payments.refund(order.id, cents);");
    assert_eq!(h.owner, "alice");
    let s = h.stitch.as_ref().expect("stitch");
    assert_eq!(
        (s.intent.as_str(), s.author.as_str(), s.at.as_str()),
        ("billing and cart", "alice", "2026-10-30T19:24:04Z")
    );
    assert_eq!(h.found_by, ["semantic", "keyword"]);
    assert_eq!(
        p.find("process refund")[0],
        "src/billing/refunds.ts::processRefund"
    );
}

#[test]
fn drafts_are_tagged_by_what_differs_and_by_who_holds_them() {
    let p = place();
    p.sync();
    write(
        &p.root,
        "src/billing/refunds.ts",
        &REFUNDS
            .replace("order: Order, cents: number", "order: Order, euros: number")
            .replace("function auditRefund(order: Order) {}\n", ""),
    );
    write(
        &p.root,
        "src/cart/refund_coupon.ts",
        "export function refundCoupon(code: string): void {}\n",
    );
    let draft = |a: &CodeAnswer, target: &str| {
        a.hits
            .iter()
            .find(|h| h.target == target)
            .unwrap_or_else(|| panic!("{target}: {:?}", a.hits))
            .draft
            .clone()
    };
    let a = p.search("refund");
    let changed = draft(&a, "src/billing/refunds.ts::processRefund").expect("changed");
    assert_eq!(
        (changed.state, changed.agent.as_str()),
        (DraftState::Changed, "")
    );
    assert_eq!(
        changed.head_signature,
        "export async function processRefund(order: Order, cents: number)"
    );
    assert!(a.hits.iter().any(|h| h.signature.contains("euros")));
    assert_eq!(
        draft(&a, "src/cart/refund_coupon.ts::refundCoupon").map(|d| d.state),
        Some(DraftState::Added)
    );
    assert_eq!(
        draft(&a, "src/billing/refunds.ts::auditRefund").map(|d| d.state),
        Some(DraftState::Removed)
    );
    // Held by a claim.
    p.engine
        .claim_drafts(&p.repo(), &["src/cart/".into()], "b1")
        .expect("claim");
    assert_eq!(
        draft(
            &p.search("refund"),
            "src/cart/refund_coupon.ts::refundCoupon"
        )
        .map(|d| d.agent),
        Some("b1".into())
    );
    let rows = p.engine.list_drafts(&p.repo()).expect("drafts");
    assert!(
        rows.iter().any(|r| r.path == "src/cart/refund_coupon.ts"
            && r.agent == "b1"
            && r.state == "added")
    );
    assert_eq!(
        p.engine
            .release_drafts(&p.repo(), &[], Some("b1"))
            .expect("release"),
        1
    );
    // Committed, nothing is a draft.
    commit(&p.root, "done");
    let a = p.search("refund");
    assert!(a.hits.iter().all(|h| h.draft.is_none()), "{:?}", a.hits);
    assert!(!a.stale);
    // A file that is only removed from disk.
    std::fs::remove_file(p.root.join("src/cart/refund_coupon.ts")).expect("remove");
    assert_eq!(
        draft(
            &p.search("refund coupon"),
            "src/cart/refund_coupon.ts::refundCoupon"
        )
        .map(|d| d.state),
        Some(DraftState::Removed)
    );
}

#[test]
fn two_worktrees_show_each_others_drafts() {
    let p = place();
    p.sync();
    let other = p.root.with_file_name("b1");
    git(
        &p.root,
        &[
            "worktree",
            "add",
            "-q",
            other.to_str().expect("path"),
            "-b",
            "feature",
        ],
    );
    write(
        &other,
        "src/cart/gift.ts",
        "export function redeemGiftCard(code: string): void {}\n",
    );
    write(
        &p.root,
        "src/cart/loyalty.ts",
        "export function earnLoyaltyPoints(n: number): void {}\n",
    );
    let here = p.search("redeem gift card");
    let h = here
        .hits
        .iter()
        .find(|h| h.symbol == "redeemGiftCard")
        .expect("the other's draft");
    assert_eq!(
        h.draft.as_ref().map(|d| (d.state, d.agent.as_str())),
        Some((DraftState::Added, "b1"))
    );
    let there = p.engine.code_repository(&other).expect("worktree");
    assert_eq!(there.id, p.repo().id, "one repository");
    let q = CodeQuery {
        query: "earn loyalty points".into(),
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&there, &q, &mut |_, _, _| {})
        .expect("answer");
    assert_eq!(a.workstream, "feature");
    let h = a
        .hits
        .iter()
        .find(|h| h.symbol == "earnLoyaltyPoints")
        .expect("the main draft");
    assert_eq!(h.draft.as_ref().map(|d| d.state), Some(DraftState::Added));
    // C3: a worktree inside of the checkout is no part of it, and its removal leaves nothing behind.
    git(
        &p.root,
        &["worktree", "add", "-q", ".worktrees/a", "-b", "inner"],
    );
    assert!(
        !p.find("applyCoupon")
            .iter()
            .any(|t| t.starts_with(".worktrees"))
    );
    std::fs::remove_dir_all(&other).expect("remove");
    assert!(!p.find("redeemGiftCard").iter().any(|t| t.contains("gift")));
}

#[test]
fn a_captured_write_holds_a_draft() {
    let p = place();
    p.sync();
    write(
        &p.root,
        "src/cart/wish.ts",
        "export function addToWishlist(id: string): void {}\n",
    );
    let path = p.root.join("src/cart/wish.ts");
    let mut turn = crate::support::turn("s-1", "r-1", "add a wish list", "done");
    turn["meta"]["ts_request"] = "2026-11-05T12:00:00Z".into();
    turn["response"]["stop_reason"] = "tool_use".into();
    turn["response"]["message"] = serde_json::json!({"role": "assistant", "content": [
        {"type": "tool_use", "tool_use_id": "t1", "tool_name": "Write", "tool_input": {"file_path": path, "content": "x"}}]});
    p.engine
        .ingest_turn(turn.to_string().as_bytes())
        .expect("turn");
    while p.engine.derive_queued(0, 0).expect("derive") > 0 {}
    let writes = p.engine.store().writes_since(0, 10).expect("writes");
    assert_eq!(writes.len(), 1, "one captured write");
    let h = p.search("add to wishlist");
    let draft = h.hits[0].draft.clone().expect("a draft");
    assert_eq!(
        (draft.state, draft.agent),
        (DraftState::Added, writes[0].agent.clone())
    );
    assert!(!writes[0].agent.is_empty());
    // A claim goes before.
    p.engine
        .claim_drafts(&p.repo(), &["src/cart/wish.ts".into()], "b2")
        .expect("claim");
    assert_eq!(
        p.search("add to wishlist").hits[0]
            .draft
            .as_ref()
            .map(|d| d.agent.as_str()),
        Some("b2")
    );
}

#[test]
fn only_what_changed_is_read_and_a_switch_back_embeds_nothing() {
    let p = place();
    for i in 0..100 {
        write(
            &p.root,
            &format!("src/m{i}.py"),
            &format!(
                "def handler_{i}(x):\n    \"\"\"Handles case {i}.\"\"\"\n    return x + {i}\n"
            ),
        );
    }
    commit(&p.root, "many");
    let first = p.sync();
    assert_eq!((first.files, first.read), (102, 102));
    assert_eq!(p.sync().read, 0);
    git(&p.root, &["checkout", "-q", "-b", "other"]);
    for i in 0..3 {
        write(
            &p.root,
            &format!("src/m{i}.py"),
            &format!("def changed_{i}(x):\n    return {i}\n"),
        );
    }
    commit(&p.root, "three");
    let second = p.sync();
    assert_eq!(second.read, 3);
    // C29: each branch sees its own, and the second costs three files.
    assert!(
        p.find("changed_1")
            .iter()
            .any(|t| t.ends_with("::changed_1"))
    );
    assert!(
        p.find("handler_1")
            .iter()
            .all(|t| !t.ends_with("m1.py::handler_1"))
    );
    // C1: fast switching loses nothing.
    for _ in 0..5 {
        git(&p.root, &["checkout", "-q", "main"]);
        let r = p.sync();
        assert_eq!((r.read, r.embedded), (0, 0));
        git(&p.root, &["checkout", "-q", "other"]);
        assert_eq!(p.sync().embedded, 0);
    }
    git(&p.root, &["checkout", "-q", "main"]);
    let r = p.sync();
    assert_eq!((r.files, r.read), (102, 0));
    for i in [0, 1, 2, 50] {
        assert_eq!(
            p.find(&format!("handler_{i}"))[0],
            format!("src/m{i}.py::handler_{i}")
        );
    }
    // A search of a branch that is not checked out.
    let q = CodeQuery {
        query: "changed_1".into(),
        workstream: Some("other".into()),
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&p.repo(), &q, &mut |_, _, _| {})
        .expect("answer");
    assert_eq!(
        (a.workstream.as_str(), a.hits[0].symbol.as_str()),
        ("other", "changed_1")
    );
    assert!(a.hits[0].draft.is_none());
}

#[test]
fn deleted_and_renamed_files_leave_no_ghost() {
    let p = place();
    p.sync();
    std::fs::rename(
        p.root.join("src/cart/coupons.ts"),
        p.root.join("src/cart/vouchers.ts"),
    )
    .expect("rename");
    assert_eq!(p.find("applyCoupon"), ["src/cart/vouchers.ts::applyCoupon"]);
    commit(&p.root, "renamed");
    let a = p.search("applyCoupon");
    let targets: Vec<&str> = a
        .hits
        .iter()
        .map(|h| h.target.as_str())
        .filter(|t| t.ends_with("applyCoupon"))
        .collect();
    assert_eq!(targets, ["src/cart/vouchers.ts::applyCoupon"]);
}

#[test]
fn staleness_and_status_are_told() {
    let p = place();
    p.sync();
    // C4: behind is behind.
    write(
        &p.root,
        "src/new.ts",
        "export function brandNew(): void {}\n",
    );
    commit(&p.root, "more");
    let s = &p.engine.code_status(&p.repo()).expect("status")[0];
    assert_eq!(s.state, "behind");
    assert_ne!(s.indexed_head, s.head);
    // Another process holds the writer: the last index answers, and says so.
    let lock = p.repo().store().writer(true).expect("lock");
    let q = CodeQuery {
        query: "refund".into(),
        wait: Some(Duration::from_millis(50)),
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&p.repo(), &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(a.stale && !a.indexing && a.semantic);
    assert!(!a.hits.is_empty());
    drop(lock);
    let a = p.search("brandNew");
    assert!(!a.stale);
    assert_eq!(a.hits[0].symbol, "brandNew");
    // C6: nothing stays pending.
    write(
        &p.root,
        "src/untracked.ts",
        "export function untracked(): void {}\n",
    );
    p.sync();
    assert_eq!(p.sync().read, 0);
    let s = &p.engine.code_status(&p.repo()).expect("status")[0];
    assert_eq!((s.state, s.symbols), ("indexed", s.vectors));
}

#[test]
fn nothing_indexed_yet_is_told_and_answers_by_words() {
    let p = place();
    let lock = p.repo().store().writer(true).expect("lock");
    let q = CodeQuery {
        query: "refund".into(),
        wait: Some(Duration::ZERO),
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&p.repo(), &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(a.indexing && !a.stale && !a.semantic && a.hits.is_empty());
    drop(lock);
    assert!(!p.search("refund").indexing);
}

#[test]
fn without_a_provider_words_answer_and_a_note_says_why() {
    let p = place();
    let mut config = Config::default();
    config.embedding.provider = "openai".into();
    let engine = crate::support::open(&p.data, config).expect("engine");
    let repo = engine.code_repository(&p.root).expect("repository");
    let q = CodeQuery {
        query: "where do we handle refunds?".into(),
        ..CodeQuery::default()
    };
    let a = engine
        .code_search(&repo, &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(!a.semantic);
    assert_eq!(a.hits[0].symbol, "processRefund");
    assert!(a.notes[0].contains("OPENAI_API_KEY"), "{:?}", a.notes);
    // C12: a provider that does not answer costs a deadline, not the answer.
    let mut config = Config {
        search_deadline: Duration::from_millis(300),
        ..Config::default()
    };
    config.embedding.provider = "ollama".into();
    config.embedding.target = "http://127.0.0.1:9".into();
    let engine = crate::support::open(&p.data, config).expect("engine");
    let repo = engine.code_repository(&p.root).expect("repository");
    let a = engine
        .code_search(&repo, &q, &mut |_, _, _| {})
        .expect("answer");
    assert_eq!(a.hits[0].symbol, "processRefund");
}

#[test]
fn purged_paths_are_gone_for_good() {
    let p = place();
    write(
        &p.root,
        "secrets/keys.py",
        "def launch_codes():\n    return 'swordfish'\n",
    );
    commit(&p.root, "oops");
    p.sync();
    assert_eq!(p.find("launch_codes").len(), 1);
    let removed = p
        .engine
        .code_purge(&p.repo(), &["secrets/".into()])
        .expect("purge");
    assert!(
        removed.files >= 1 && removed.symbols >= 1 && removed.vectors >= 1,
        "{removed:?}"
    );
    assert!(p.find("launch_codes").is_empty());
    write(
        &p.root,
        "secrets/keys.py",
        "def launch_codes():\n    return 'changed'\n",
    );
    commit(&p.root, "again");
    p.sync();
    assert!(p.find("launch_codes").is_empty());
    assert!(
        p.search("launch codes swordfish")
            .hits
            .iter()
            .all(|h| !h.file.starts_with("secrets"))
    );
    // No file of the index holds the text any more.
    let dir = p.repo().store().dir().to_owned();
    for path in [dir.clone(), dir.join("words")]
        .iter()
        .flat_map(|d| std::fs::read_dir(d).expect("dir"))
        .map(|e| e.expect("entry").path())
        .filter(|p| p.is_file())
    {
        let bytes = std::fs::read(&path).expect("read");
        for word in [&b"launch_codes"[..], b"swordfish", b"launchcodes"] {
            assert!(
                !bytes.windows(word.len()).any(|w| w == word),
                "{}",
                path.display()
            );
        }
    }
    assert_eq!(p.find("processRefund").len(), 1, "the rest is still there");
}

#[test]
fn two_processes_at_once_end_in_one_right_index() {
    let p = place();
    for i in 0..300 {
        write(
            &p.root,
            &format!("src/m{i}.py"),
            &format!("def handler_{i}(x):\n    return {i}\n"),
        );
    }
    commit(&p.root, "many");
    let others: Vec<_> = (0..4)
        .map(|_| {
            let (data, root) = (p.data.clone(), p.root.clone());
            std::thread::spawn(move || {
                // An engine of its own opens everything anew, as another process does.
                let engine = crate::support::open(&data, Config::default()).expect("engine");
                let repo = engine.code_repository(&root).expect("repository");
                sync(&engine, &repo)
            })
        })
        .collect();
    let read: usize = others
        .into_iter()
        .map(|t| t.join().expect("thread").read)
        .sum();
    assert_eq!(read, 302, "each file was read once");
    for i in [0, 150, 299] {
        assert_eq!(
            p.find(&format!("handler_{i}")),
            [format!("src/m{i}.py::handler_{i}")]
        );
    }
}

#[test]
fn an_interrupted_run_goes_on_where_it_stopped() {
    let p = place();
    for i in 0..400 {
        write(
            &p.root,
            &format!("src/m{i}.py"),
            &format!("def handler_{i}(x):\n    return {i}\n"),
        );
    }
    commit(&p.root, "many");
    let mut read = 0;
    // C35: ten restarts do not make the work ten times.
    for _ in 0..10 {
        let engine = crate::support::open(&p.data, Config::default()).expect("engine");
        let repo = engine.code_repository(&p.root).expect("repository");
        let r = engine
            .code_sync(
                &repo,
                SyncOptions {
                    until: Some(Instant::now() + Duration::from_millis(5)),
                    ..SyncOptions::new(&mut |_, _, _| {})
                },
            )
            .expect("sync");
        read += r.read;
    }
    read += p.sync().read;
    assert!((402..=402 * 11 / 10).contains(&read), "{read}");
    let engine = crate::support::open(&p.data, Config::default()).expect("engine");
    let repo = engine.code_repository(&p.root).expect("repository");
    assert_eq!(sync(&engine, &repo).read, 0);
    assert_eq!(p.find("handler_399"), ["src/m399.py::handler_399"]);
}

#[cfg(unix)]
#[test]
fn narrowing_by_paths_and_kinds() {
    let p = place();
    p.sync();
    let q = CodeQuery {
        query: "refund coupon".into(),
        paths: vec!["src/cart/".into()],
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&p.repo(), &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(!a.hits.is_empty() && a.hits.iter().all(|h| h.file.starts_with("src/cart/")));
    let q = CodeQuery {
        query: "refund coupon".into(),
        kinds: vec![Kind::File],
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&p.repo(), &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(!a.hits.is_empty() && a.hits.iter().all(|h| h.kind == Kind::File));
}

#[test]
fn secrets_reach_neither_the_index_nor_an_answer() {
    let p = place();
    let key = format!("sk-ant-api03-{}", "a1B2".repeat(20));
    write(
        &p.root,
        "src/config.py",
        &format!("PAYMENT_KEY = \"{key}\"\n\ndef connect():\n    return client(\"{key}\")\n"),
    );
    commit(&p.root, "oops");
    let a = p.search("payment key connect client");
    assert!(a.hits.iter().any(|h| h.symbol == "PAYMENT_KEY"));
    assert!(!format!("{a:?}").contains("a1B2a1B2"), "{a:?}");
    let dir = p.repo().store().dir().to_owned();
    for path in [dir.clone(), dir.join("words")]
        .iter()
        .flat_map(|d| std::fs::read_dir(d).expect("dir"))
        .map(|e| e.expect("entry").path())
        .filter(|p| p.is_file())
    {
        let bytes = std::fs::read(&path).expect("read").to_ascii_lowercase();
        assert!(
            !bytes.windows(12).any(|w| w == b"a1b2a1b2a1b2"),
            "{}",
            path.display()
        );
    }
}

#[test]
fn many_worktrees_cost_what_one_costs() {
    // C2.
    let p = place();
    for i in 0..300 {
        write(
            &p.root,
            &format!("src/m{i}.py"),
            &format!("def handler_{i}(x):\n    return {i}\n"),
        );
    }
    commit(&p.root, "many");
    let first = p.sync();
    let mut embedded = first.embedded;
    for n in 0..5 {
        let other = p.root.with_file_name(format!("wt{n}"));
        git(
            &p.root,
            &[
                "worktree",
                "add",
                "-q",
                "-b",
                &format!("b{n}"),
                other.to_str().expect("path"),
            ],
        );
        let repo = p.engine.code_repository(&other).expect("worktree");
        let r = sync(&p.engine, &repo);
        assert_eq!((r.files, r.read), (302, 0));
        embedded += r.embedded;
    }
    assert_eq!(embedded, first.embedded);
}

#[test]
fn a_server_answers_at_once_while_the_first_index_is_made() {
    // C13: the call returns in time, says that it is indexing, and the work goes on behind it.
    let p = place();
    for i in 0..2_000 {
        write(
            &p.root,
            &format!("src/m{i}.py"),
            &format!("def handler_{i}(x):\n    \"\"\"Handles case {i}.\"\"\"\n    return {i}\n"),
        );
    }
    commit(&p.root, "many");
    let q = CodeQuery {
        query: "handler_7".into(),
        background: true,
        wait: Some(Duration::from_millis(20)),
        ..CodeQuery::default()
    };
    let repo = p.repo();
    let from = Instant::now();
    let a = p
        .engine
        .code_search(&repo, &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(a.indexing, "{a:?}");
    assert!(from.elapsed() < Duration::from_secs(2));
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let a = p
            .engine
            .code_search(&repo, &q, &mut |_, _, _| {})
            .expect("answer");
        if !a.indexing {
            assert_eq!(a.hits[0].symbol, "handler_7");
            break;
        }
        assert!(Instant::now() < until, "the first index never ended");
    }
}

#[test]
fn two_repositories_both_answer_after_a_restart() {
    // C11.
    let p = place();
    p.sync();
    let other = p.root.with_file_name("other");
    std::fs::create_dir(&other).expect("dir");
    git(&other, &["init", "-q"]);
    write(&other, "lib.py", "def only_in_the_other():\n    pass\n");
    commit(&other, "one");
    sync(&p.engine, &p.engine.code_repository(&other).expect("other"));
    let engine = crate::support::open(&p.data, Config::default()).expect("engine");
    for (root, name) in [(&p.root, "processRefund"), (&other, "only_in_the_other")] {
        let repo = engine.code_repository(root).expect("repository");
        assert_eq!(sync(&engine, &repo).read, 0);
        let q = CodeQuery {
            query: name.into(),
            ..CodeQuery::default()
        };
        let a = engine
            .code_search(&repo, &q, &mut |_, _, _| {})
            .expect("answer");
        assert_eq!(a.hits[0].symbol, name);
    }
}
