//! Prints what a cold start of each Lambda function costs on this machine: the time from exec to the first request for
//! an event, the memory at that moment, and the size of the zipped binary.
//!
//! ```text
//! cargo lambdas && cargo cold-start
//! ```
//!
//! The program plays Lambda's runtime API (<https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>): it starts
//! the bootstrap, waits until it asks for its first event, and stops it.

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flate2::{Compression, write::DeflateEncoder};

const RUNS: usize = 15;

struct Start {
    elapsed: Duration,
    peak_kib: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = match std::env::args().nth(1) {
        Some(folder) => PathBuf::from(folder),
        None => built()?,
    };
    let functions = functions(&folder)?;
    if functions.is_empty() {
        return Err(format!("no functions under {}: run `cargo lambdas` first", folder.display()).into());
    }
    println!("{:<24} {:>9} {:>9} {:>9} {:>10}", "function", "p50 ms", "max ms", "peak MiB", "zipped MB");
    for binary in functions {
        let mut starts = (0..RUNS).map(|_| start(&binary)).collect::<Result<Vec<_>, _>>()?;
        starts.sort_by_key(|start| start.elapsed);
        let ms = |start: &Start| start.elapsed.as_secs_f64() * 1e3;
        let peak = starts.iter().map(|start| start.peak_kib).max().unwrap_or_default();
        println!(
            "{:<24} {:>9.2} {:>9.2} {:>9.1} {:>10.2}",
            binary.file_name().unwrap_or_default().to_string_lossy(),
            ms(&starts[RUNS / 2]),
            ms(&starts[RUNS - 1]),
            peak as f64 / 1024.0,
            zipped(&binary)? as f64 / 1e6,
        );
    }
    Ok(())
}

/// Returns where `cargo lambdas` puts the binaries.
fn built() -> Result<PathBuf, Box<dyn Error>> {
    let host = Command::new("rustc").args(["--print", "host-tuple"]).output()?.stdout;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(target.join(String::from_utf8(host)?.trim()).join("release"))
}

/// Returns the binaries that are named like a folder under `functions/`.
fn functions(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions");
    let mut names =
        fs::read_dir(functions)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>, std::io::Error>>()?;
    names.sort();
    Ok(names.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect())
}

fn start(binary: &Path) -> Result<Start, Box<dyn Error>> {
    let api = TcpListener::bind("127.0.0.1:0")?;
    let begun = Instant::now();
    let mut child = Command::new(binary)
        .env_clear()
        .env("AWS_LAMBDA_RUNTIME_API", api.local_addr()?.to_string())
        .env("AWS_LAMBDA_FUNCTION_NAME", "cold_start")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        // No store listens there: the measurement does not include it.
        .env("AWS_ENDPOINT_URL_DYNAMODB", "https://127.0.0.1:9")
        // Required by functions that are deployed only with an option; `infra/modules/nameservice/lambda.tf` sets these.
        .env("NAMESERVICE_ARCHIVE_BUCKET", "archive")
        .env("NAMESERVICE_TOPIC_ARN", "arn:aws:sns:us-east-1:000000000000:changes")
        .env("NAMESERVICE_DEAD_LETTER_QUEUE_URL", "https://127.0.0.1:9/1/dead-letters")
        .env("NAMESERVICE_SEARCH_URL", "https://127.0.0.1:9")
        .env("NAMESERVICE_SEARCH_DEAD_LETTER_QUEUE_URL", "https://127.0.0.1:9/1/dead-letters")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let connection = accept(&api, &mut child).map_err(|error| format!("{}: {error}", binary.display()))?;
    let mut reader = BufReader::new(connection);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let elapsed = begun.elapsed();
    if !request.contains("/runtime/invocation/next") {
        return Err(format!("{} began with {request}", binary.display()).into());
    }
    let peak_kib = peak(child.id())?;
    // Answers the function's request before it is stopped, so that no connection is left half-open.
    reader.get_mut().write_all(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")?;
    child.kill()?;
    child.wait()?;
    Ok(Start { elapsed, peak_kib })
}

/// Waits for the function to connect; fails if it exits instead.
fn accept(api: &TcpListener, child: &mut Child) -> Result<TcpStream, Box<dyn Error>> {
    api.set_nonblocking(true)?;
    loop {
        match api.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(false)?;
                return Ok(connection);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.try_wait()? {
            return Err(format!("it ended with {status} before it asked for an event").into());
        }
        // A hundredth of the measured duration.
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// Returns the peak memory of a process, in KiB (proc(5), `VmHWM`).
fn peak(pid: u32) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

fn zipped(binary: &Path) -> Result<u64, Box<dyn Error>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&fs::read(binary)?)?;
    Ok(encoder.finish()?.len() as u64)
}
