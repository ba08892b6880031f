//! `sockeye sim matrix`: goodput of one stream over many paths, Sockeye's and the kernel's side by side.
//!
//! Cells are run one after the other, simulated ones several at a time, and each result is a line appended to a file;
//! cells that the file has already are not run again, so an interrupted matrix goes on where it was. `cell` is a cell and
//! its theory, `report` the table and the page.
//!
//! Threads take the next cell from a list under one mutex and write their line under another; neither is held while a
//! cell runs. Tests: `apps/cli/tests/cli/matrix.rs`.

mod cell;
mod report;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;
use sockeye_shared::progress::Progress;
use sockeye_shared::{file, parse};

use super::args::On;
use super::kernel;
use super::transfer;
use cell::{Cell, Result};

/// The paths, and the use of the results.
#[derive(Args, Clone, Debug)]
pub struct MatrixArgs {
    /// Which TCP: Sockeye's in the simulator, or the kernel's in real time (needs root)
    #[arg(long, value_enum, default_value_t = On::Sockeye)]
    on: On,
    /// Round-trip times, whole milliseconds
    #[arg(long, value_parser = millis, value_delimiter = ',', default_value = "10ms,50ms,100ms,200ms")]
    rtt: Vec<u64>,
    /// Packets lost, in percent
    #[arg(long, value_parser = parse::percent, value_delimiter = ',', default_value = "0%,0.01%,0.1%,1%")]
    loss: Vec<f64>,
    /// Packets overtaken by up to three others, in percent
    #[arg(long, value_parser = parse::percent, value_delimiter = ',', default_value = "0%,1%,5%")]
    reorder: Vec<f64>,
    /// Rates of the bottleneck
    #[arg(long, value_parser = parse::rate, value_delimiter = ',', default_value = "10mbit,100mbit,1gbit")]
    rate: Vec<u64>,
    /// Seconds of each transfer
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Seeds; each path is run once with each
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seeds: Vec<u64>,
    /// Paths to simulate at a time [default: one for each core]
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// File of results, one JSON object a line; paths that it already has are not run again, new results are appended
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Only show the results in the files; run nothing
    #[arg(long)]
    only_report: bool,
    /// Files with more results for the report, such as the kernel's
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    beside: Vec<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the table as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A round-trip time as the file of results has it.
fn millis(text: &str) -> std::result::Result<u64, String> {
    let time = parse::time(text)?;
    let millis = u64::try_from(time.as_millis()).map_err(|_| "that is too long a time".to_owned())?;
    if Duration::from_millis(millis) != time {
        return Err("give whole milliseconds".to_owned());
    }
    Ok(millis)
}

/// Threads of a matrix at most.
const JOBS_MAX: usize = 64;

/// Runs the missing cells, and reports.
///
/// # Errors
/// If a file cannot be read or written, or a cell cannot be run.
pub fn matrix(args: &MatrixArgs) -> io::Result<ExitCode> {
    let mut results = if args.out.exists() { read(&args.out)? } else { Vec::new() };
    if !args.only_report {
        let missing: Vec<Cell> =
            cells(args).into_iter().filter(|cell| !results.iter().any(|one| one.cell == *cell)).collect();
        run(args, &missing)?;
        results = read(&args.out)?;
    }
    for file in &args.beside {
        results.extend(read(file)?);
    }
    let table = report::Table::new(&results);
    // The results are shown first: they do not depend on whether a file can be written.
    io::stdout().lock().write_all(table.summary().as_bytes())?;
    if let Some(path) = &args.markdown {
        file::write(path, table.markdown())?;
    }
    if let Some(path) = &args.html {
        file::write(path, table.page())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All cells that are asked for, cheap ones first.
fn cells(args: &MatrixArgs) -> Vec<Cell> {
    let mut all = Vec::new();
    for &rate_bits in &args.rate {
        for &rtt_ms in &args.rtt {
            for &loss in &args.loss {
                for &reorder in &args.reorder {
                    let cell = |&seed| Cell {
                        on: args.on,
                        rate_bits,
                        rtt_ms,
                        loss,
                        reorder,
                        seconds: args.seconds,
                        seed,
                    };
                    for cell in args.seeds.iter().map(cell) {
                        if !all.contains(&cell) {
                            all.push(cell);
                        }
                    }
                }
            }
        }
    }
    all
}

fn read(path: &Path) -> io::Result<Vec<Result>> {
    let lines = BufReader::new(File::open(path).map_err(|error| file::at(path, error))?).lines();
    let mut results = Vec::new();
    for line in lines {
        let line = line?;
        // An interrupted run may have left half a line at the end, whose cell is run again.
        if let Ok(result) = serde_json::from_str(&line) {
            results.push(result);
        }
    }
    Ok(results)
}

fn run(args: &MatrixArgs, missing: &[Cell]) -> io::Result<()> {
    let mut file =
        File::options().create(true).append(true).open(&args.out).map_err(|e| file::at(&args.out, e))?;
    // The next line must not become part of an incomplete one.
    if file.metadata()?.len() > 0 && !fs::read(&args.out)?.ends_with(b"\n") {
        file.write_all(b"\n")?;
    }
    let jobs = match args.on {
        // The wire needs a core for itself.
        On::Kernel => 1,
        On::Sockeye => args.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZero::get),
    };
    let progress = Progress::of(missing.len(), missing.len());
    let (next, done) = (Mutex::new(missing.iter().enumerate()), Mutex::new((file, Ok(()))));
    thread::scope(|scope| {
        for _ in 0..jobs.min(missing.len()).min(JOBS_MAX) {
            scope.spawn(|| {
                while let Some((index, cell)) = locked(&next).next() {
                    progress.step(index, "cell", &cell.label());
                    let result = run_cell(cell);
                    let (file, failed) = &mut *locked(&done);
                    let written =
                        result.and_then(|result| Ok(writeln!(file, "{}", serde_json::to_string(&result)?)?));
                    progress.sample();
                    if let Err(error) = written {
                        *failed = Err(error);
                        locked(&next).by_ref().for_each(drop);
                    }
                }
            });
        }
    });
    progress.end();
    done.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_cell(cell: &Cell) -> io::Result<Result> {
    let (args, cell) = (cell.args(), cell.clone());
    match cell.on {
        On::Sockeye => {
            let (outcome, _) = transfer::run(&args)?;
            let traffic = outcome.traffic;
            Ok(Result {
                cell,
                goodput_bits: outcome.total(&args),
                segments: traffic.segments,
                retransmitted: traffic.retransmitted,
                needless: traffic.needless,
                late_ms: None,
            })
        }
        On::Kernel => {
            let measured = kernel::run(&args)?;
            let traffic = measured.carried.traffic;
            Ok(Result {
                cell,
                goodput_bits: measured.goodput(),
                segments: traffic.segments,
                retransmitted: traffic.retransmitted,
                needless: traffic.needless,
                late_ms: Some(measured.carried.late.quantile(LATE).as_secs_f64() * 1000.0),
            })
        }
    }
}

/// The part of the packets whose lateness is reported.
const LATE: f64 = 0.999;
