//! What ended programs still do to a disk.

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
