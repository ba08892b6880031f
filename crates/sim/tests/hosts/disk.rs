//! What a crash leaves of directories and of files on their way between them, and what ended programs still do to a disk.

use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use sockeye_sim::fs::{self, File};
use sockeye_sim::{Sim, blocking, time};

use super::fs::{on, reboot, sync_dir};

/// A guard of a lock file: it removes the file when its program ends.
struct Lock;

impl Drop for Lock {
    fn drop(&mut self) {
        let failed = [
            blocking::fs::remove_file("/lock").err(),
            blocking::fs::write("/state", "bye").err(),
            blocking::fs::rename("/state", "/gone").err(),
            blocking::fs::create_dir_all("/made").err(),
            blocking::fs::exists("/lock").err(),
        ];
        let failed = failed.iter().flatten().filter(|error| error.kind() == ErrorKind::BrokenPipe);
        assert_eq!(failed.count(), 5);
    }
}

#[test]
fn destructors_of_programs_that_a_crash_ended_leave_the_disk_alone() {
    let run = |sim: Sim, has_tokio: bool| {
        sim.run(move |net| async move {
            let host = net.host("h");
            host.spawn(async move {
                fs::write("/lock", "").await.unwrap();
                fs::write("/state", "saved").await.unwrap();
                File::open("/state").await.unwrap().sync_all().await.unwrap();
                sync_dir("/").await;
                let holds = async {
                    let _lock = Lock;
                    std::future::pending::<()>().await;
                };
                if has_tokio { tokio::spawn(holds).await.unwrap() } else { holds.await }
            });
            time::sleep(Duration::from_secs(1)).await;
            // The destructors run after this step: the host is up again.
            reboot(&host);
            let found = on(&host, async {
                let state = fs::read_to_string("/state").await;
                (
                    fs::try_exists("/lock").await.unwrap(),
                    state.unwrap(),
                    fs::try_exists("/made").await.unwrap(),
                )
            });
            assert_eq!(found.await, (true, "saved".to_owned(), false));
        });
    };
    run(Sim::new(1), false);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        run(Sim::new(1).tokio(), true);
    }
}

/// Whether a file is in exactly one of two places after a crash, for each of many seeds, whatever `moves` does and was synced.
fn is_in_one_place<Fut: Future<Output = ()> + 'static>(
    places: [&'static str; 2],
    moves: impl Fn() -> Fut + Copy + Send + 'static,
) {
    let mut found = [0; 2];
    for seed in 0..300 {
        let there = Sim::new(seed).run(move |net| async move {
            let host = net.host("h");
            on(&host, async move {
                for directory in ["/a", "/b"] {
                    fs::create_dir(directory).await.unwrap();
                }
                fs::write("/a/x", "x").await.unwrap();
                File::open("/a/x").await.unwrap().sync_all().await.unwrap();
                sync_dir("/a").await;
                sync_dir("/").await;
                moves().await;
            })
            .await;
            reboot(&host);
            let read = async move { [fs::read(places[0]).await.is_ok(), fs::read(places[1]).await.is_ok()] };
            on(&host, read).await
        });
        assert!(there[0] != there[1], "seed {seed}: {there:?}");
        found[usize::from(there[1])] += 1;
    }
    assert!(found[0] + found[1] == 300 && found[1] > 50, "{found:?}");
}

#[test]
fn a_moved_file_survives_what_happens_to_the_directories() {
    let removed = || async {
        fs::rename("/a/x", "/b/x").await.unwrap();
        fs::remove_dir("/a").await.unwrap();
    };
    is_in_one_place(["/a/x", "/b/x"], removed);
    let made = || async {
        fs::create_dir_all("/n/m").await.unwrap();
        fs::rename("/a/x", "/n/m/x").await.unwrap();
    };
    is_in_one_place(["/a/x", "/n/m/x"], made);
    is_in_one_place(["/a/x", "/b/x"], move || async move {
        removed().await;
        sync_dir("/").await;
    });
    is_in_one_place(["/a/x", "/n/m/x"], move || async move {
        made().await;
        sync_dir("/n/m").await;
    });
}

#[test]
fn a_new_directory_that_is_synced_itself_is_lost_without_its_name() {
    let lost = (0..100).filter(|seed| {
        Sim::new(*seed).run(|net| async move {
            let host = net.host("h");
            let make = async {
                fs::create_dir("/n").await.unwrap();
                fs::write("/n/x", "x").await.unwrap();
                sync_dir("/n").await;
            };
            on(&host, make).await;
            reboot(&host);
            !on(&host, fs::try_exists("/n")).await.unwrap()
        })
    });
    assert!(lost.count() > 20);
}
