//! Code search over real git repositories.

mod answers;
mod hostile;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_engine::code::{CodeQuery, DraftState, Kind, SyncOptions};
use weft_engine::{CodeAnswer, CodeRepo, CodeSync, Config, Engine};

/// A repository and a store of its own.
pub(crate) struct Place {
    pub(crate) _tmp: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) engine: Arc<Engine>,
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args([
            "-c",
            "user.name=alice",
            "-c",
            "user.email=alice@example.org",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_DATE", "2026-10-30T19:24:04Z")
        .env("GIT_COMMITTER_DATE", "2026-10-30T19:24:04Z")
        .output()
        .expect("git runs");
    assert!(
        out.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let full = root.join(path);
    std::fs::create_dir_all(full.parent().expect("parent")).expect("folder");
    std::fs::write(full, text).expect("write");
}

pub(crate) fn commit(root: &Path, message: &str) -> String {
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "--allow-empty", "-m", message]);
    git(root, &["rev-parse", "HEAD"])
}

pub(crate) const REFUNDS: &str = "import { payments } from './p';\n/** Issue a refund through the payment provider. */\nexport async function processRefund(order: Order, cents: number) {\n  await payments.refund(order.id, cents);\n}\nfunction auditRefund(order: Order) {}\n";

pub(crate) fn place() -> Place {
    let tmp = tempfile::tempdir().expect("dir");
    let root = tmp.path().canonicalize().expect("path").join("shop");
    std::fs::create_dir(&root).expect("root");
    git(&root, &["init", "-q", "-b", "main"]);
    write(&root, "src/billing/refunds.ts", REFUNDS);
    write(
        &root,
        "src/cart/coupons.ts",
        "export function applyCoupon(code: string): void {}\n",
    );
    commit(&root, "billing and cart");
    let data = tmp.path().join("data");
    let engine = crate::support::open(&data, Config::default()).expect("engine");
    Place {
        root,
        data,
        engine,
        _tmp: tmp,
    }
}

impl Place {
    pub(crate) fn repo(&self) -> CodeRepo {
        self.engine.code_repository(&self.root).expect("repository")
    }

    pub(crate) fn sync(&self) -> CodeSync {
        sync(&self.engine, &self.repo())
    }

    pub(crate) fn search(&self, query: &str) -> CodeAnswer {
        let q = CodeQuery {
            query: query.into(),
            ..CodeQuery::default()
        };
        self.engine
            .code_search(&self.repo(), &q, &mut |_, _, _| {})
            .expect("answer")
    }

    pub(crate) fn find(&self, query: &str) -> Vec<String> {
        let q = CodeQuery {
            query: query.into(),
            limit: 50,
            ..CodeQuery::default()
        };
        let found = self
            .engine
            .code_find(&self.repo(), &q, &mut |_, _, _| {})
            .expect("found");
        found.hits.into_iter().map(|h| h.target).collect()
    }
}

pub(crate) fn sync(engine: &Engine, repo: &CodeRepo) -> CodeSync {
    engine
        .code_sync(repo, SyncOptions::new(&mut |_, _, _| {}))
        .expect("sync")
}
