//! Files on disks that lose their power, are full, and fail.

use std::cell::RefCell;
use std::future::Future;
use std::io::{ErrorKind, SeekFrom};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::fs::{self, File, OpenOptions};
use sockeye_sim::{Host, Net, Sim, blocking, time};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

/// Runs a program on a host.
pub async fn on<T: 'static>(host: &Host, program: impl Future<Output = T> + 'static) -> T {
    host.spawn(program).await.expect("the host is up")
}

pub async fn sync_dir(path: &str) {
    File::open(path).await.unwrap().sync_all().await.unwrap();
}

pub fn reboot(host: &Host) {
    host.crash();
    host.restart();
}

/// Runs a test on a host of its own.
fn on_a_host<Fut: Future<Output = ()> + 'static>(program: impl Fn(Net, Host) -> Fut + Send + Sync) {
    Sim::new(1).run(|net| {
        let host = net.host("h");
        program(net, host)
    });
}

#[test]
fn files_are_read_written_sought_cut_and_listed_as_by_tokio() {
    on_a_host(|_, host| async move {
        on(&host, async {
            fs::create_dir_all("/a/b").await.unwrap();
            let mut file =
                File::options().read(true).write(true).create(true).open("a/b/../file").await.unwrap();
            file.write_all(b"hello, disk").await.unwrap();
            assert_eq!(file.seek(SeekFrom::Start(7)).await.unwrap(), 7);
            let mut text = String::new();
            file.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "disk");
            assert_eq!(file.seek(SeekFrom::End(-4)).await.unwrap(), 7);
            file.try_clone().await.unwrap().write_all(b"DISK").await.unwrap();
            file.set_len(13).await.unwrap();
            assert_eq!(fs::read("/a/file").await.unwrap(), b"hello, DISK\0\0");
            assert!(file.seek(SeekFrom::Current(-12)).await.is_err());
            let mut log = OpenOptions::new().append(true).open("/a/file").await.unwrap();
            log.write_all(b"!").await.unwrap();
            assert_eq!(fs::metadata("/a/file").await.unwrap().len(), 14);
            assert_eq!(fs::copy("/a/file", "/a/copy").await.unwrap(), 14);
            let mut names = Vec::new();
            let mut entries = fs::read_dir("/a").await.unwrap();
            while let Some(entry) = entries.next_entry().await.unwrap() {
                names.push((entry.path(), entry.file_type().await.unwrap().is_dir()));
            }
            let expected = [("/a/b", true), ("/a/copy", false), ("/a/file", false)];
            assert_eq!(names, expected.map(|(path, is_dir)| (Path::new(path).to_owned(), is_dir)));
            fs::rename("/a/copy", "/a/b/moved").await.unwrap();
            assert!(!fs::try_exists("/a/copy").await.unwrap());
            fs::remove_dir_all("/a").await.unwrap();
            assert_eq!(file.metadata().await.unwrap().len(), 14, "a file stays while it is open");
        })
        .await;
        assert_eq!(host.disk().used(), 0, "and goes with its names and owners: {:?}", host.disk());
    });
}

#[test]
fn errors_are_those_of_linux() {
    on_a_host(|_, host| async move {
        let unsupported = fs::read("/x").await.unwrap_err();
        assert_eq!(unsupported.kind(), ErrorKind::Unsupported, "the main program has no disk");
        on(&host, async {
            fs::write("/file", "x").await.unwrap();
            fs::create_dir("/dir").await.unwrap();
            fs::write("/dir/x", "x").await.unwrap();
            let long = format!("/{}", "n".repeat(256));
            macro_rules! fails {
                ($($call:expr => $kind:ident),* $(,)?) => {
                    $(assert_eq!($call.await.unwrap_err().kind(), ErrorKind::$kind, stringify!($call));)*
                };
            }
            fails! {
                fs::read("/none") => NotFound, fs::read("/none/x") => NotFound, fs::read("/file/x") => NotADirectory,
                fs::read("/file/") => NotADirectory, fs::read("/dir") => IsADirectory, fs::read("") => NotFound,
                fs::write("/dir", "x") => IsADirectory, fs::write("/none/x", "x") => NotFound,
                fs::write(&long, "x") => InvalidFilename, fs::create_dir("/dir") => AlreadyExists,
                fs::create_dir("/file") => AlreadyExists, fs::create_dir_all("/file/x") => NotADirectory,
                File::create_new("/file") => AlreadyExists, fs::remove_file("/dir") => IsADirectory,
                fs::remove_dir("/file") => NotADirectory, fs::remove_dir("/dir") => DirectoryNotEmpty,
                fs::rename("/dir", "/dir/inside") => InvalidInput, fs::rename("/file", "/dir") => IsADirectory,
                fs::rename("/dir", "/file") => NotADirectory, fs::rename("/none", "/file") => NotFound,
                File::options().create(true).read(true).open("/file") => InvalidInput,
                File::options().open("/file") => InvalidInput,
            }
            let mut readable = File::open("/file").await.unwrap();
            assert_eq!(readable.write_all(b"x").await.unwrap_err().raw_os_error(), Some(9));
        })
        .await;
    });
}

#[test]
fn a_kill_leaves_the_cache_and_a_crash_takes_it() {
    let mut found = [0u8; 2];
    for seed in 0..40 {
        let has_file = Sim::new(seed).run(|net| async move {
            let host = net.host("h");
            let kept = on(&host, async {
                fs::write("/unsynced", "text").await.unwrap();
                File::open("/unsynced").await.unwrap()
            });
            let kept = kept.await;
            host.kill();
            host.restart();
            assert_eq!(on(&host, fs::read("/unsynced")).await.unwrap(), b"text");
            reboot(&host);
            assert_eq!(kept.metadata().await.unwrap_err().raw_os_error(), Some(9), "of an earlier life");
            on(&host, fs::try_exists("/unsynced")).await.unwrap()
        });
        found[usize::from(has_file)] += 1;
    }
    assert!(found[0] > 5 && found[1] > 5, "{found:?}");
}

/// What a crash may leave of a value that was saved over an older one. `save` writes the file `/v`.
fn values_after_a_crash<Fut: Future<Output = ()> + 'static>(
    save: impl Fn(String) -> Fut + Copy + Send + 'static,
) -> Vec<String> {
    let mut found = Vec::new();
    for seed in 0..150 {
        let value = Sim::new(seed).run(move |net| async move {
            let host = net.host("h");
            on(&host, async move {
                fs::write("/v", "old".repeat(500)).await.unwrap();
                File::open("/v").await.unwrap().sync_all().await.unwrap();
                sync_dir("/").await;
                save("new".repeat(500)).await;
            })
            .await;
            reboot(&host);
            on(&host, fs::read("/v"))
                .await
                .map_or("none".to_owned(), |v| String::from_utf8_lossy(&v).into_owned())
        });
        let word = match &value {
            value if *value == "old".repeat(500) => "old",
            value if *value == "new".repeat(500) => "new",
            value if value == "none" => "none",
            _ => "torn",
        };
        found.push(word.to_owned());
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn a_file_is_replaced_whole_only_if_it_and_its_directory_are_synced() {
    let right = values_after_a_crash(|new| async move {
        fs::write("/t", new).await.unwrap();
        File::open("/t").await.unwrap().sync_all().await.unwrap();
        fs::rename("/t", "/v").await.unwrap();
        sync_dir("/").await;
    });
    assert_eq!(right, ["new"]);
    let without_directory = values_after_a_crash(|new| async move {
        fs::write("/t", new).await.unwrap();
        File::open("/t").await.unwrap().sync_all().await.unwrap();
        fs::rename("/t", "/v").await.unwrap();
    });
    assert_eq!(without_directory, ["new", "old"]);
    let without_bytes = values_after_a_crash(|new| async move {
        fs::write("/t", new).await.unwrap();
        fs::rename("/t", "/v").await.unwrap();
        sync_dir("/").await;
    });
    assert_eq!(without_bytes, ["new", "torn"]);
    let in_place = values_after_a_crash(|new| async move { fs::write("/v", new).await.unwrap() });
    assert_eq!(in_place, ["new", "old", "torn"]);
}

#[test]
fn changes_of_names_are_lost_from_the_end_and_a_rename_is_whole() {
    for seed in 0..100 {
        Sim::new(seed).run(|net| async move {
            let host = net.host("h");
            on(&host, async {
                fs::create_dir("/a").await.unwrap();
                fs::create_dir("/b").await.unwrap();
                sync_dir("/").await;
                for number in 0..5 {
                    fs::write(format!("/a/{number}"), "").await.unwrap();
                }
                fs::rename("/a/0", "/b/0").await.unwrap();
                fs::remove_file("/a/1").await.unwrap();
            })
            .await;
            let synced = net.pick("synced", 0..=1) == 1;
            if synced {
                on(&host, sync_dir("/b")).await;
            }
            reboot(&host);
            on(&host, async move {
                let exists = async |path: String| fs::try_exists(path).await.unwrap();
                let mut in_a = Vec::new();
                for number in 0..5 {
                    in_a.push(exists(format!("/a/{number}")).await);
                }
                let moved = exists("/b/0".into()).await;
                assert!(moved || !synced, "the rename is part of both directories, with what it depends on");
                match (moved, &in_a[..]) {
                    (true, [false, _, true, true, true]) => {}
                    (false, in_a) => assert!(in_a.is_sorted_by(|one, next| one >= next), "{in_a:?}"),
                    other => panic!("{other:?}"),
                }
            })
            .await;
        });
    }
}

#[test]
fn a_sync_takes_time_and_covers_what_was_written_before_it_began() {
    let mut lost = 0;
    for seed in 0..60 {
        let text = Sim::new(seed).run(|net| async move {
            let host = net.host("h");
            host.disk().update(|disk| {
                (disk.sync_time, disk.sync_jitter) = (Duration::from_millis(5), Duration::ZERO)
            });
            on(&host, async {
                let mut file = File::create("/f").await.unwrap();
                sync_dir("/").await;
                file.write_all(b"one").await.unwrap();
                let begun = time::Instant::now();
                let other = file.try_clone().await.unwrap();
                let syncing = sockeye_sim::spawn(async move { other.sync_all().await });
                time::sleep(Duration::from_millis(1)).await;
                file.write_all(b"two").await.unwrap();
                syncing.await.unwrap().unwrap();
                assert_eq!(begun.elapsed(), Duration::from_millis(5));
            })
            .await;
            reboot(&host);
            on(&host, fs::read_to_string("/f")).await.unwrap()
        });
        assert!(text == "one" || text == "onetwo", "{text}");
        lost += u8::from(text == "one");
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn a_full_disk_takes_what_fits() {
    on_a_host(|_, host| async move {
        host.disk().update(|disk| disk.capacity = 1000);
        on(&host, async {
            let mut file = File::create("/f").await.unwrap();
            assert_eq!(file.write(&[1; 2000]).await.unwrap(), 1000);
            assert_eq!(file.write(&[1; 1]).await.unwrap_err().kind(), ErrorKind::StorageFull);
            assert_eq!(file.set_len(u64::MAX / 2).await.unwrap_err().kind(), ErrorKind::StorageFull);
            file.seek(SeekFrom::Start(i64::MAX as u64)).await.unwrap();
            assert_eq!(file.write(&[1; 1]).await.unwrap_err().kind(), ErrorKind::StorageFull);
            fs::write("/empty", "").await.unwrap();
            drop(file);
            fs::remove_file("/f").await.unwrap();
            fs::write("/g", [1; 900]).await.unwrap();
        })
        .await;
        assert_eq!(host.disk().used(), 900);
    });
}

#[test]
fn a_failed_sync_is_told_once_and_its_bytes_never_come_to_the_disk() {
    let mut lost = 0;
    for seed in 0..40 {
        let text = Sim::new(seed).run(|net| async move {
            let host = net.host("h");
            let disk = host.disk();
            on(&host, async move {
                let mut file = File::create("/f").await.unwrap();
                sync_dir("/").await;
                let other = File::open("/f").await.unwrap();
                file.write_all(b"text").await.unwrap();
                disk.update(|disk| disk.sync_error = 1.0);
                assert_eq!(file.sync_all().await.unwrap_err().raw_os_error(), Some(5));
                disk.update(|disk| disk.sync_error = 0.0);
                assert!(file.sync_all().await.is_ok() && other.sync_all().await.is_err());
                assert_eq!(fs::read("/f").await.unwrap(), b"text", "as long as the power is on");
                disk.update(|disk| (disk.read_error, disk.write_error) = (1.0, 1.0));
                assert!(fs::read("/f").await.is_err() && file.write(b"x").await.is_err());
                disk.update(|disk| (disk.read_error, disk.write_error) = (0.0, 0.0));
            })
            .await;
            reboot(&host);
            on(&host, fs::read_to_string("/f")).await.unwrap()
        });
        lost += u8::from(text.is_empty());
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn blocking_code_has_the_same_disk() {
    Sim::new(1).tokio().run(|net| async move {
        use std::io::{Read, Seek, Write};
        let host = net.host("h");
        on(&host, async {
            tokio::task::spawn_blocking(|| {
                let mut file =
                    blocking::fs::File::options().read(true).write(true).create(true).open("/f").unwrap();
                file.write_all(b"blocking").unwrap();
                file.write_all_at(b"B", 0).unwrap();
                file.rewind().unwrap();
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                file.sync_all().unwrap();
                assert_eq!(text, "Blocking");
            })
            .await
            .unwrap();
            // Any task of tokio's can use it.
            tokio::spawn(sync_dir("/")).await.unwrap();
        })
        .await;
        reboot(&host);
        let waited = on(&host, async {
            blocking::run(|| {
                assert_eq!(blocking::fs::read("/f").unwrap(), b"Blocking");
                blocking::fs::write("/f", b"more").unwrap();
                let start = time::Instant::now();
                blocking::fs::File::open("/f").unwrap().sync_all().unwrap();
                start.elapsed()
            })
            .await
        });
        assert!(waited.await >= Duration::from_millis(1));
    });
}

#[test]
fn a_power_loss_is_among_the_runs_faults_with_what_was_lost() {
    let sim = Sim::new(3);
    let mut reported = 0;
    for _ in 0..2 {
        let digest = sim.clone().run(|net| async move {
            let host = net.host("h");
            for _ in 0..20 {
                on(&host, fs::write("/f", vec![1; 5000])).await.unwrap();
                reboot(&host);
            }
            net.digest()
        });
        assert!(reported == 0 || reported == digest, "the seed decides");
        reported = digest;
    }
    let failing = |net: Net| async move {
        let host = net.host("h");
        host.disk().update(|disk| disk.sync_error = 1.0);
        let save = async {
            fs::write("/f", vec![1; 5000]).await.unwrap();
            fs::write("/g", vec![1; 5000]).await.unwrap();
            File::open("/f").await.unwrap().sync_all().await.unwrap_err();
        };
        on(&host, save).await;
        host.crash();
        panic!("look at the report");
    };
    std::panic::catch_unwind(|| Sim::exactly(9).run(failing)).unwrap_err();
    let path = std::env::temp_dir().join(format!("sockeye-sim-{}-9.html", std::process::id()));
    let page = std::fs::read_to_string(&path).unwrap();
    for text in ["wrote 5000 bytes at 0 of /f", "syncing /f failed: Io", "lost: creation of /g"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    std::fs::remove_file(path).unwrap();
}

/// What a log leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// It acknowledges a record that was not synced.
    NoSync,
    /// It does not sync the directory of a new file.
    NoDirectorySync,
    /// It takes a record for whole that is there in part.
    NoChecksum,
}

const LOG: &str = "/data/log";

fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Reads the log's records, and cuts off what is behind the last whole one.
async fn recover(flaw: Flaw) -> (File, Vec<u64>) {
    if !fs::try_exists("/data").await.unwrap() {
        fs::create_dir("/data").await.unwrap();
        sync_dir("/").await;
    }
    let mut file = File::options().read(true).write(true).create(true).open(LOG).await.unwrap();
    if flaw != Flaw::NoDirectorySync {
        sync_dir("/data").await;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await.unwrap();
    let (mut records, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let len = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let sum = u32::from_le_bytes(head[4..].try_into().unwrap());
        let Some(record) = body.get(..len).filter(|record| record.len() >= 8) else { break };
        if flaw != Flaw::NoChecksum && sum != checksum(record) {
            break;
        }
        let number = u64::from_le_bytes(record[..8].try_into().unwrap());
        let is_whole = record[8..].iter().all(|byte| *byte == number as u8);
        records.push(if is_whole { number } else { u64::MAX });
        rest = &body[len..];
    }
    file.set_len((bytes.len() - rest.len()) as u64).await.unwrap();
    file.seek(SeekFrom::End(0)).await.unwrap();
    (file, records)
}

async fn append(file: &mut File, number: u64, flaw: Flaw) {
    let len = 8 + (number * 397 % 1500) as usize;
    let mut record = vec![number as u8; len];
    record[..8].copy_from_slice(&number.to_le_bytes());
    let mut bytes = Vec::from((len as u32).to_le_bytes());
    bytes.extend(checksum(&record).to_le_bytes());
    bytes.extend(record);
    file.write_all(&bytes).await.unwrap();
    if flaw != Flaw::NoSync {
        file.sync_data().await.unwrap();
    }
}

/// Appends records while the host crashes. What is wrong with the log, if anything is.
fn log_over_crashes(seed: u64, flaw: Flaw) -> Result<(), String> {
    Sim::new(seed).run(move |net| async move {
        let host = net.host("db");
        let acknowledged = Rc::new(RefCell::new(Vec::new()));
        let problem = Rc::new(RefCell::new(None));
        let (acks, wrong) = (Rc::clone(&acknowledged), Rc::clone(&problem));
        host.program(move || {
            let (acks, wrong) = (Rc::clone(&acks), Rc::clone(&wrong));
            async move {
                let (mut file, found) = recover(flaw).await;
                let expected = acks.borrow().len();
                let is_sound = found.iter().enumerate().all(|(index, number)| *number == index as u64);
                if !is_sound || found.len() < expected {
                    let lost = format!("{expected} records were acknowledged, found: {found:?}");
                    wrong.borrow_mut().get_or_insert(lost);
                    return;
                }
                for number in found.len() as u64.. {
                    append(&mut file, number, flaw).await;
                    acks.borrow_mut().resize(number as usize + 1, ());
                    time::sleep(Duration::from_micros(300)).await;
                }
            }
        });
        let mut rng = net.rng("crashes");
        for _ in 0..4 {
            time::sleep(Duration::from_micros(rng.between(100, 30_000))).await;
            reboot(&host);
        }
        time::sleep(Duration::from_millis(30)).await;
        let count = acknowledged.borrow().len();
        let found = problem.take();
        found.map_or_else(|| if count > 0 { Ok(()) } else { Err("nothing was done".to_owned()) }, Err)
    })
}

#[test]
fn a_log_that_syncs_survives_500_seeds_of_crashes() {
    for seed in 0..500 {
        log_over_crashes(seed, Flaw::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_log_that_leaves_something_out_is_caught() {
    for flaw in [Flaw::NoSync, Flaw::NoDirectorySync, Flaw::NoChecksum] {
        let caught = (0..100).find(|seed| log_over_crashes(*seed, flaw).is_err());
        let seed = caught.unwrap_or_else(|| panic!("{flaw:?} is not caught by 100 seeds"));
        println!("{flaw:?} is caught by seed {seed}");
    }
}
