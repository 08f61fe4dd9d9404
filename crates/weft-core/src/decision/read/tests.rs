//! What records of every format say.

use super::*;

fn get(path: &str, text: &str) -> Record {
    read(path, text.as_bytes()).expect("record")
}

#[test]
fn adr_tools() {
    let r = get(
        "doc/adr/0003-use-x.md",
        "# 3. Use X\n\nDate: 2020-01-31\n\n## Status\n\nSuperceded by [12. Title](0012-title.md)\n\nAmends [2. Y](0002-y.md)\n\n## Context\n\nIt was rejected by nobody. Status: Rejected\n\n## Decision\n\nUse `src/x.rs`.\n\n## Consequences\n\nNone.\n",
    );
    assert_eq!(
        (r.format, r.number, r.title.as_str()),
        (Format::AdrTools, Some(3), "Use X")
    );
    assert_eq!(
        (r.status, r.date.as_deref()),
        (Some(Status::Superseded), Some("2020-01-31"))
    );
    assert_eq!(r.superseded_by[0].to, "0012-title.md");
    assert_eq!(r.mentions, ["src/x.rs"]);
    assert!(r.rationale.starts_with("## Context") && !r.rationale.contains("Superceded"));
}

#[test]
fn madr_4() {
    let r = get(
        "docs/decisions/0005-a.md",
        "---\nstatus: superseded by ADR-0123\ndate: 2024-02-01\ndecision-makers: [Ann, \"Bob, jr\"]\n---\n# Use A\n\n## Context and Problem Statement\n\nx\n\n## Considered Options\n\n* Use A\n* Kafka\n* Files\n\n## Decision Outcome\n\nChosen option: \"Use A\", because it is small.\n\n## Pros and Cons of the Options\n\n### Kafka\n\n* Good, because known\n* Bad, because heavy\n* Bad, because slow\n",
    );
    assert_eq!(
        (r.format, r.status),
        (Format::Madr4, Some(Status::Superseded))
    );
    assert_eq!(r.superseded_by[0].to, "ADR-0123");
    assert_eq!(r.made_by, ["Ann", "Bob, jr"]);
    let names: Vec<_> = r
        .alternatives
        .iter()
        .map(|a| (a.name.as_str(), a.why_not.as_str()))
        .collect();
    assert_eq!(names, [("Kafka", "heavy; slow"), ("Files", "")]);
}

#[test]
fn madr_2_and_log4brains() {
    let text = "# Use B\n\n- Status: accepted\n- Date: 2020-10-16\n- Tags: dev\n- Deciders: Ann, Bob\n\n## Considered Options\n\n1. B\n2. C\n\n## Decision Outcome\n\nChosen option: B\n";
    let r = get("docs/adr/20201016-use-b.md", text);
    assert_eq!(
        (r.format, r.number, r.status),
        (Format::Log4brains, None, Some(Status::Accepted))
    );
    assert_eq!(r.made_by, ["Ann", "Bob"]);
    assert_eq!(r.alternatives.len(), 1);
    let r = get("docs/adr/0004-use-b.md", &text.replace("- Tags: dev\n", ""));
    assert_eq!((r.format, r.number), (Format::Madr2, Some(4)));
}

#[test]
fn other_shapes() {
    let r = get(
        "adr/x.md",
        "# ADR\n\n| | |\n|--|--|\n| Date | 2023-08-28 |\n| Status | Approved |\n\n## What\nText\n",
    );
    assert_eq!(
        (r.status, r.date.as_deref(), r.title.as_str()),
        (Some(Status::Accepted), Some("2023-08-28"), "x")
    );
    let r = get("ofep/x.md", "# Thing\n\n## State: APPROVED\n\nText\n");
    assert_eq!(r.status, Some(Status::Accepted));
    let r = get(
        "adr/2023-09-09_027-net.md",
        "---\nslug: 27\ntitle: |\n  27. Network model\nauthors: [a, b]\n---\n\n## Status\n\nDraft\n",
    );
    assert_eq!(
        (r.title.as_str(), r.number, r.status),
        ("Network model", Some(27), Some(Status::Proposed))
    );
    let r = get(
        "adr/7-y.adoc",
        "= 7. Use Y\n\n== Status\n\nAccepted\n\n== Context\n\nz\n",
    );
    assert_eq!(
        (r.format, r.status, r.title.as_str()),
        (Format::Asciidoc, Some(Status::Accepted), "Use Y")
    );
    let r = get("adr/2022-02-03-tests/README.md", "# Decision\n\nWe test.\n");
    assert_eq!(
        (r.title.as_str(), r.date.as_deref()),
        ("tests", Some("2022-02-03"))
    );
    let r = get(
        "a.md",
        "# Use Z\n\n**Status:** ✅ Accepted\n\n27 July 2022\n\n## Status of things\n\nDeprecated\n",
    );
    assert_eq!(
        (r.status, r.date.as_deref()),
        (Some(Status::Accepted), Some("2022-07-27"))
    );
    let r = get(
        "a.md",
        "Use Z\n=====\n\nStatus\n------\n\nRejected\n\nContext\n-------\n\nq\n",
    );
    assert_eq!(
        (r.title.as_str(), r.status, r.format),
        ("Use Z", Some(Status::Rejected), Format::AdrTools)
    );
}

#[test]
fn what_is_no_record() {
    let e = |path: &str, b: &[u8]| read(path, b).expect_err("refused");
    assert_eq!(e("a.md", b" \n"), RecordError::Empty);
    assert_eq!(e("a.md", b"\xff\xfe"), RecordError::NotText);
    assert_eq!(
        e("a.md", b"# a\n<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> b\n"),
        RecordError::Conflict(2)
    );
    assert_eq!(
        e("a.md", b"---\nstatus: \"{proposed | rejected}\"\n---\n# {short title, representative of solved problem}\n"),
        RecordError::Template
    );
    assert!(matches!(
        e("a.md", &vec![b'x'; MAX_BYTES + 1]),
        RecordError::TooLarge(_)
    ));
}

#[test]
fn no_text_makes_it_stumble() {
    for odd in [
        "---",
        "---\n---\n",
        "#",
        "# \n",
        "|",
        "| |",
        "[](",
        "* :",
        "```\n## Status\nAccepted",
        "é: ü",
        "## Status",
        "Status:",
        "---\nstatus:\n---\n",
        "---\nstatus: |\n",
        "1.",
        "`",
        "# a](\n",
        "\u{feff}---\nstatus: accepted\n---\n# T\n",
    ] {
        if let Ok(r) = read("x/y.md", odd.as_bytes()) {
            let _ =
                super::super::edit::set_status(odd, &r, Status::Superseded, Some(("b.md", "B")));
            let _ = super::super::edit::add_supersedes(odd, &r, "b.md", "B");
            let _ = super::super::edit::reaffirm(odd, &r, "2026-01-01");
        }
    }
}

/// A small generator, so that a failure can be had again.
fn next(seed: &mut u64, n: usize) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed % n as u64) as usize
}

#[test]
fn torn_and_mixed_records_make_nothing_stumble() {
    use super::super::{Status, edit, state};
    const PIECES: [&str; 40] = [
        "–",
        "—",
        "é",
        "日本",
        "語ab",
        "|",
        "[",
        "](",
        ")",
        "---\n",
        "\n",
        "\n\n",
        "# ",
        "## Status\n",
        "status: ",
        "\"",
        "\\\"",
        "superseded by ",
        "20201031",
        "2020-13-45",
        "Date: ",
        "| Status | ",
        "* Status: ",
        "**",
        "`",
        "12. ",
        "ADR-0012",
        "\r\n",
        "## Considered Options\n",
        "* ",
        "### ",
        "Chosen option: \"",
        "accepted",
        "✅ ",
        "⌛️",
        "= ",
        "<!--",
        "```",
        "files: [a, ",
        "\u{feff}",
    ];
    let samples = [
        "# 3. X\n\nDate: 2020-01-31\n\n## Status\n\nAccepted\n\nSupersedes [2. Y](0002-y.md)\n\n## Context\n\nz\n",
        "---\nstatus: \"accepted\"\ndate: 2024-02-01\nfiles: [a.rs, b.rs]\n---\n# T\n\n## Considered Options\n\n* A\n* B\n",
        "# T\n\n| Status | Approved |\n| Date | 1 May 2020 |\n\n## What\n\nx\n",
    ];
    let mut seed = 0x9E37_79B9_7F4A_7C15;
    for round in 0..6_000 {
        let mut text: Vec<char> = samples[round % samples.len()].chars().collect();
        for _ in 0..1 + next(&mut seed, 6) {
            let at = next(&mut seed, text.len() + 1);
            if next(&mut seed, 3) == 0 {
                let to = (at + next(&mut seed, 12)).min(text.len());
                text.drain(at..to);
            } else {
                let piece = PIECES[next(&mut seed, PIECES.len())];
                text.splice(at..at, piece.chars());
            }
        }
        let text: String = text.into_iter().collect();
        let path = ["d/0001-é.md", "d/20201031–x.adoc", "ADR-é/README.md"][next(&mut seed, 3)];
        let _ = state::date(&text);
        let _ = without_number(&text);
        let Ok(r) = read(path, text.as_bytes()) else {
            continue;
        };
        let by = Some(("0012-ü.md", "12. Ü"));
        for new in [
            edit::set_status(&text, &r, Status::Superseded, by),
            edit::set_status(&text, &r, Status::Deprecated, None),
            edit::add_supersedes(&text, &r, "b.md", "B"),
            edit::reaffirm(&text, &r, "2026-01-01").unwrap_or_default(),
        ] {
            let _ = read(path, new.as_bytes());
        }
        let _ = super::super::rank::pack(&r);
        let _ = super::super::rank::pieces(&r);
    }
}
