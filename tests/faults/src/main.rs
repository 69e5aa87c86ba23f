//! Builds many small faults into a copy of one crate at once and tells which of them its tests notice.
//! `doc/mutants.md` says what for, and how it is run.

mod build;
mod list;
mod places;
mod plant;
mod trial;

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line says.
struct Options {
    krate: String,
    /// The copy of the sources, its target folder and the results lie here.
    scratch: PathBuf,
    /// How many faults of the list; all of them if 0.
    sample: usize,
    seed: u64,
    /// Not the list of cargo-mutants but the guards of all files whose path contains this.
    guards: Option<String>,
    /// The tests of the crate that are run; all of them if empty.
    tests: Vec<String>,
    /// Only tests whose name has this in it.
    only: String,
    /// Tests of the command, to run besides.
    also: Vec<String>,
    jobs: usize,
}

impl Options {
    /// What belongs to this sample alone lies here.
    fn notes(&self) -> PathBuf {
        let guards = self.guards.as_deref().map_or(String::new(), |part| format!("-guards-{}", part.replace('/', "-")));
        self.scratch.join(format!("{}{guards}-{}-{}", self.krate, self.sample, self.seed))
    }
}

const USAGE: &str = "faults CRATE SCRATCH [--sample N] [--seed N] [--guards PART-OF-PATH] [--test NAME]... [--only PART-OF-NAME] [--also TEST-OF-THE-COMMAND]... [--jobs N]";

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options> {
    let mut args = std::env::args().skip(1);
    let krate = args.next().ok_or(USAGE)?;
    let scratch = std::path::absolute(args.next().ok_or(USAGE)?)?;
    let mut options = Options {
        krate,
        scratch,
        sample: 0,
        seed: 1,
        guards: None,
        tests: vec![],
        only: String::new(),
        also: vec![],
        jobs: 2,
    };
    while let Some(option) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match &*option {
            "--sample" => options.sample = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            "--guards" => options.guards = Some(value),
            "--test" => options.tests.push(value),
            "--only" => options.only = value,
            "--also" => options.also.push(value),
            "--jobs" => options.jobs = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<()> {
    let tree = options.scratch.join("tree");
    let originals = Path::new(".");
    let all = match &options.guards {
        Some(part) => list::guards(originals, &options.krate, part)?,
        None => list::of_cargo_mutants(originals, &options.krate)?,
    };
    let count = all.len();
    let faults = list::sample(all, options.sample, options.seed, &options.krate);

    let notes = options.notes();
    fs::create_dir_all(&notes)?;
    let results = notes.join("results");
    let known = fs::read_to_string(&results).unwrap_or_default();
    let known = |how: &str| -> HashSet<&str> {
        known.lines().filter_map(|line| line.strip_prefix(how)?.strip_prefix('\t')?.split('\t').next()).collect()
    };
    let (unfit, caught) = (known("does not compile"), known("caught"));
    let named = |names: &HashSet<&str>| -> HashSet<usize> {
        (0..faults.len()).filter(|&number| names.contains(&*faults[number].name)).collect()
    };
    let mut left_out = named(&unfit);
    let (binaries, copies) = loop {
        let copies = plant::copy(originals, &tree, &options.krate, &faults, &left_out)?;
        match build::tests(options, &tree, &copies)? {
            Ok(binaries) => break (binaries, copies),
            Err(guilty) => {
                for number in guilty {
                    trial::note(&results, &format!("does not compile\t{}", faults[number].name));
                    left_out.insert(number);
                }
            }
        }
    };
    let tried: Vec<_> = faults.iter().enumerate().filter(|(number, _)| copies.planted.contains(number)).collect();
    println!("{count} faults, {} sampled, {} not viable", faults.len(), faults.len() - tried.len());

    let (again, before): (Vec<_>, Vec<_>) = tried.iter().partition(|(_, fault)| !caught.contains(&*fault.name));
    if !before.is_empty() {
        println!("{} are known to be caught", before.len());
    }
    let alive = trial::all(options, &binaries, &again)?;
    let caught = tried.len() - alive;
    println!("{caught} caught, {alive} alive: {:.0} %", 100.0 * caught as f64 / tried.len().max(1) as f64);
    Ok(())
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(output.stdout)
}
