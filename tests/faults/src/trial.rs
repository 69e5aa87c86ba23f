//! Runs the tests with each fault.

use crate::build::Binary;
use crate::list::Fault;
use crate::{Options, Result, output};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A test hangs if it takes so much longer than without a fault, and not less than this.
const TIMES: u32 = 5;
const AT_LEAST: Duration = Duration::from_secs(20);
/// A test that takes longer without a fault is not tried.
const LONGEST: Duration = Duration::from_secs(600);

struct Test<'a> {
    binary: &'a Binary,
    name: String,
    took: Duration,
    meets: HashSet<usize>,
}

#[derive(PartialEq)]
enum End {
    Passed,
    Failed,
    Hung,
}

/// Tries them, writes the results, and returns how many are alive.
pub fn all(options: &Options, binaries: &[Binary], faults: &[&(usize, &Fault)]) -> Result<usize> {
    let tests = Mutex::new(Vec::new());
    let notes = options.notes();
    let mut listed = list(binaries)?;
    listed.retain(|(_, name)| name.contains(&options.only));
    println!("{} tests", listed.len());
    in_parallel(options.jobs, &listed, |worker, (binary, name)| {
        let scratch = notes.join(format!("run{worker}"));
        let mut test = Test { binary, name: name.clone(), took: LONGEST, meets: HashSet::new() };
        let met = notes.join(format!("met{worker}"));
        let _ = fs::remove_file(&met);
        // For what a test does as another user, too.
        if let Ok(file) = File::create(&met) {
            let _ = file.set_permissions(fs::Permissions::from_mode(0o666));
        }
        let started = Instant::now();
        let mut end = run(&test, &scratch, LONGEST, None, Some(&met));
        if end == End::Failed {
            // Perhaps it counts open files, and ours is one.
            end = run(&test, &scratch, LONGEST, None, None);
        }
        test.took = started.elapsed();
        test.meets = fs::read_to_string(met).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect();
        if end == End::Passed {
            tests.lock().unwrap().push(test);
        } else {
            println!("left out, fails or takes too long without a fault: {} {name}", binary.name);
        }
    });
    let mut tests = tests.into_inner().unwrap_or_default();
    tests.sort_by_key(|test| test.took);
    println!("{} seconds for all, one by one", tests.iter().map(|test| test.took).sum::<Duration>().as_secs());

    let results = notes.join("results");
    let alive = AtomicUsize::new(0);
    in_parallel(options.jobs, faults, |worker, (number, fault)| {
        let scratch = notes.join(format!("run{worker}"));
        let meeting: Vec<_> = tests.iter().filter(|test| test.meets.contains(number)).collect();
        let noticed = meeting.iter().find_map(|test| Some((test, notices(test, &scratch, *number)?)));
        let line = match noticed {
            Some((test, how)) => format!("caught\t{}\t{how} {} {}", fault.name, test.binary.name, test.name),
            None => {
                alive.fetch_add(1, Relaxed);
                format!("alive\t{}\t{} tests meet it", fault.name, meeting.len())
            }
        };
        note(&results, &line);
    });
    Ok(alive.into_inner())
}

/// Whether a test notices a fault. One that fails now and then on a busy machine does not count.
fn notices(test: &Test, scratch: &Path, number: usize) -> Option<&'static str> {
    let limit = (test.took * TIMES).max(AT_LEAST);
    let how = match run(test, scratch, limit, Some(number), None) {
        End::Passed => return None,
        End::Failed if run(test, scratch, limit, Some(number), None) == End::Passed => return None,
        End::Failed => "fails",
        End::Hung => "hangs",
    };
    (run(test, scratch, limit, None, None) == End::Passed).then_some(how)
}

fn list(binaries: &[Binary]) -> Result<Vec<(&Binary, String)>> {
    let mut tests = Vec::new();
    for binary in binaries {
        let listed =
            output(Command::new(&binary.path).args(["--list", "--format", "terse"]).current_dir(&binary.folder))?;
        let listed = String::from_utf8(listed)?;
        tests.extend(listed.lines().filter_map(|line| Some((binary, line.strip_suffix(": test")?.to_owned()))));
    }
    Ok(tests)
}

/// Runs one test in namespaces of its own, which take processes and mounts with them.
fn run(test: &Test, scratch: &Path, limit: Duration, fault: Option<usize>, met: Option<&Path>) -> End {
    let _ = fs::remove_dir_all(scratch);
    let _ = fs::create_dir_all(scratch);
    // The shell is there to wait for processes that are nobody's.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "\"$@\"; exit $?", "sh"]);
    command.arg(&test.binary.path).args(["--exact", &test.name, "--nocapture"]).current_dir(&test.binary.folder);
    command.env("CARGO_MANIFEST_DIR", &test.binary.folder).env("TMPDIR", scratch);
    if let Some(number) = fault {
        command.env("FAULT", number.to_string());
    }
    if let Some(met) = met {
        command.env("FAULTS_MET", met);
    }
    let said = File::create(scratch.with_extension("said")).map_or_else(|_| Stdio::null(), Stdio::from);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("unshare: {error}");
            return End::Failed;
        }
    };
    let started = Instant::now();
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break End::Passed,
            Ok(Some(_)) | Err(_) => break End::Failed,
            Ok(None) if started.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                break End::Hung;
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let _ = fs::remove_dir_all(scratch);
    end
}

fn in_parallel<T: Sync>(jobs: usize, all: &[T], each: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..jobs {
            let (next, each) = (&next, &each);
            scope.spawn(move || {
                while let Some(item) = all.get(next.fetch_add(1, Relaxed)) {
                    each(worker, item);
                }
            });
        }
    });
}

/// Says a result, and keeps it.
pub fn note(results: &Path, line: &str) {
    println!("{line}");
    let file = OpenOptions::new().append(true).create(true).open(results);
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
        println!("{}: {error}", results.display());
    }
}
