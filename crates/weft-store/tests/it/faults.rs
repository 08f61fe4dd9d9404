//! What befalls a database server: each time every acknowledged turn is there afterwards, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_store::{PgStore, StoreError};
use weft_testkit::{Postgres, own_postgres};

use crate::support::{key, lease, on, session, shared, turn};

/// Waits until the server answers a question with `wanted`: other sessions need their time.
fn until(server: &Postgres, dsn: &str, sql: &str, wanted: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let said = server.psql(dsn, sql).unwrap();
        if said == wanted {
            return;
        }
        assert!(Instant::now() < end, "{sql}: {said}, not {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_database_that_does_not_answer_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    for (dsn, kind) in [
        (
            "postgres://u@127.0.0.1:1/db?sslmode=disable",
            "does not answer",
        ),
        ("postgres://u@127.0.0.1:1/db", "does not answer"),
        ("postgres://", "invalid PostgreSQL DSN"),
    ] {
        let e = PgStore::open(dsn, dir.path()).expect_err("nothing there");
        assert!(e.to_string().contains(kind), "{e}");
    }
    assert!(began.elapsed() < Duration::from_secs(8));
    let Some(server) = weft_testkit::postgres() else {
        return;
    };
    let e = PgStore::open(&server.dsn("nowhere"), dir.path()).expect_err("no database");
    assert!(
        matches!(e, StoreError::Refused(_)) && e.hint().is_some(),
        "{e}"
    );
    let e = PgStore::open(
        &format!("postgres://nobody@127.0.0.1:{}/postgres", server.port()),
        dir.path(),
    )
    .expect_err("no such user");
    assert!(matches!(e, StoreError::Refused(_)), "{e}");
}

#[test]
fn a_restart_under_load_loses_nothing_that_was_acknowledged() {
    let Some(mut server) = own_postgres(&[("fsync", "on")]) else {
        return;
    };
    let dsn = server.database().unwrap();
    let h = on(&dsn);
    let stop = AtomicBool::new(false);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|t| {
                let (store, stop) = (h.store.clone(), &stop);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let id = format!("r{t}-{n}");
                        // A client that was told nothing sends the turn again.
                        while store.insert_turn(turn(&format!("s{t}"), &id, n)).is_err() {
                            if stop.load(Ordering::Relaxed) {
                                return done;
                            }
                            std::thread::sleep(Duration::from_millis(20));
                        }
                        done.push(id);
                    }
                    done
                })
            })
            .collect();
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(400));
            server.stop(round % 2 == 0);
            std::thread::sleep(Duration::from_millis(100));
            server.start_again().unwrap();
        }
        std::thread::sleep(Duration::from_millis(400));
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    });
    let mut stored: Vec<String> = (0..4)
        .flat_map(|t| h.store.raw_turns(&key(&format!("s{t}"))).unwrap())
        .map(|t| t.request_id)
        .collect();
    let rows = stored.len();
    stored.sort();
    stored.dedup();
    assert_eq!(rows, stored.len(), "a turn is stored twice");
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|id| stored.binary_search(id).is_err())
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    assert!(acknowledged.len() > 50, "{}", acknowledged.len());
}

#[test]
fn a_reached_connection_limit_is_busy_and_passes() {
    let Some(server) = own_postgres(&[
        ("max_connections", "8"),
        ("superuser_reserved_connections", "2"),
    ]) else {
        return;
    };
    let dsn = server.database().unwrap();
    server
        .psql("postgres", "CREATE ROLE app LOGIN SUPERUSER")
        .unwrap();
    server
        .psql("postgres", "ALTER ROLE app NOSUPERUSER")
        .unwrap();
    server
        .psql(
            &dsn,
            "GRANT ALL ON SCHEMA public TO app; GRANT CREATE ON DATABASE t0 TO app",
        )
        .unwrap();
    let app = dsn.replace("weft@", "app@");
    let h = on(&app);
    h.store.close_idle();
    // Others hold every connection for a while.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let (server, app) = (&server, &app);
            scope.spawn(move || {
                // A connection that was just closed may still count.
                while server.psql(app, "SELECT pg_sleep(4)").is_err() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
        until(
            &server,
            &dsn,
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND query LIKE '%pg_sleep%'",
            "6",
        );
        let began = Instant::now();
        // What waits long enough gets one.
        h.store.insert_turn(turn("s", "r1", 1)).unwrap();
        assert!(began.elapsed() > Duration::from_millis(100));
    });
    server
        .psql(&dsn, "ALTER ROLE app CONNECTION LIMIT 0")
        .unwrap();
    h.store.close_idle();
    let e = h.store.insert_turn(turn("s", "r2", 1)).expect_err("full");
    assert!(
        matches!(&e, StoreError::Busy(t) if t.contains("connection limit")),
        "{e}"
    );
    assert!(e.is_write_only() && e.hint().is_some());
    server
        .psql(&dsn, "ALTER ROLE app CONNECTION LIMIT -1")
        .unwrap();
    h.store.insert_turn(turn("s", "r2", 1)).unwrap();
    assert_eq!(h.store.count_turns().unwrap(), 2);
}

#[test]
fn a_statement_that_takes_too_long_is_stopped_and_told() {
    let Some((h, dsn)) = shared() else { return };
    h.store.insert_turn(turn("s", "r1", 1)).unwrap();
    let server = weft_testkit::postgres().unwrap();
    let hurried = on(&format!("{dsn}&options=-c%20statement_timeout=400"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.psql(&dsn, "BEGIN; LOCK TABLE raw_turns IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(3); COMMIT").unwrap();
        });
        until(
            server,
            &dsn,
            "SELECT count(*) FROM pg_locks WHERE relation = 'raw_turns'::regclass AND mode = 'AccessExclusiveLock' AND granted",
            "1",
        );
        let e = hurried
            .store
            .insert_turn(turn("s", "r2", 1))
            .expect_err("locked");
        assert!(
            matches!(&e, StoreError::Busy(t) if t.contains("timeout")),
            "{e}"
        );
        // Whoever has the time gets through.
        h.store.insert_turn(turn("s", "r3", 1)).unwrap();
    });
    hurried.store.insert_turn(turn("s", "r2", 1)).unwrap();
    assert_eq!(h.store.count_turns().unwrap(), 3);
}

#[test]
fn a_deadlock_is_tried_again() {
    let Some((h, dsn)) = shared() else { return };
    let server = weft_testkit::postgres().unwrap();
    for n in ["a", "b"] {
        h.store.upsert_session(session(n, "", 1)).unwrap();
    }
    let deadlocks = || {
        let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        server.psql(&dsn, sql).unwrap()
    };
    // Whether the two meet depends on how busy the machine is: some tries.
    for round in 0..8 {
        std::thread::scope(|scope| {
            // Somebody holds one row and then wants the other, and is patient.
            scope.spawn(|| {
                let take = |n: &str| {
                    format!("UPDATE sessions SET name = 'x' WHERE harness_session_id = '{n}'")
                };
                let sql = format!(
                    "SET deadlock_timeout = '20s'; BEGIN; {}; SELECT pg_sleep(0.7); {}; COMMIT",
                    take("a"),
                    take("b")
                );
                server.psql(&dsn, &sql).unwrap();
            });
            until(
                server,
                &dsn,
                "SELECT count(*) FROM pg_locks WHERE relation = 'sessions'::regclass AND mode = 'RowExclusiveLock'
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                "1",
            );
            let turns = vec![
                turn("b", &format!("b{round}"), 2),
                turn("a", &format!("a{round}"), 2),
            ];
            assert_eq!(h.store.insert_turns(turns).unwrap(), 2);
        });
        assert_eq!(h.store.count_turns().unwrap(), 2 * (round + 1));
        // The server counts with a delay.
        std::thread::sleep(Duration::from_millis(1_200));
        if deadlocks() != "0" {
            return;
        }
    }
    panic!("no deadlock happened: the test shows nothing");
}

/// A folder of a few megabytes; `None` where this machine does not let a test mount one.
fn small_disk() -> Option<std::path::PathBuf> {
    let dir = std::env::temp_dir().join(format!("weft-small-disk-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=24m,mode=0777", "tmpfs"])
        .arg(&dir)
        .status()
        .is_ok_and(|s| s.success());
    if !mounted {
        weft_testkit::skipped("a small disk cannot be mounted here");
        return None;
    }
    Some(dir)
}

#[test]
fn a_full_disk_is_told_and_nothing_acknowledged_is_lost() {
    let Some(disk) = small_disk() else { return };
    let unmount = || {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&disk)
            .status();
        let _ = std::fs::remove_dir(&disk);
    };
    let Some((h, dsn)) = shared() else {
        unmount();
        return;
    };
    let server = weft_testkit::postgres().unwrap();
    let place = disk.join("space");
    std::fs::create_dir_all(&place).unwrap();
    let _ = std::process::Command::new("chown")
        .arg("65534:65534")
        .arg(&place)
        .status();
    server
        .psql(
            &dsn,
            &format!("CREATE TABLESPACE small LOCATION '{}'", place.display()),
        )
        .unwrap();
    for t in ["raw_turns", "sessions", "derive_queue"] {
        server
            .psql(&dsn, &format!("ALTER TABLE {t} SET TABLESPACE small"))
            .unwrap();
    }
    let mut acknowledged = 0;
    let mut told = None;
    for n in 0..400 {
        let mut t = turn("s", &format!("r{n}"), n);
        // Bytes that do not compress.
        let noise: Vec<u8> = (0..100_000_u64)
            .map(|i| (i.wrapping_mul(i + 7 + n as u64) >> 7) as u8)
            .collect();
        t.raw_response = Some(noise);
        match h.store.insert_turn(t) {
            Ok(_) => acknowledged += 1,
            Err(e) => {
                told = Some(e);
                break;
            }
        }
    }
    let e = told.unwrap();
    assert!(
        matches!(&e, StoreError::Full(_)) && e.is_write_only(),
        "{e}"
    );
    assert!(acknowledged > 20, "{acknowledged}");
    assert_eq!(h.store.count_turns().unwrap(), acknowledged);
    // Reading goes on, and so does writing once there is space.
    assert_eq!(
        h.store
            .claim_derivations(1_000, 1_000, 1, &lease("x"))
            .map(|c| c.len())
            .unwrap_or(1),
        1
    );
    server
        .psql(&dsn, "ALTER TABLE raw_turns SET TABLESPACE pg_default")
        .unwrap();
    h.store.insert_turn(turn("s", "after", 1)).unwrap();
    assert_eq!(h.store.count_turns().unwrap(), acknowledged + 1);
    for t in ["sessions", "derive_queue"] {
        server
            .psql(&dsn, &format!("ALTER TABLE {t} SET TABLESPACE pg_default"))
            .unwrap();
    }
    server.psql(&dsn, "DROP TABLESPACE small").unwrap();
    unmount();
}
