//! Measures a codec: `decode FILE [SPACING_MIB [THREADS [READS]]]` decodes a file once, as a first pass does, and then
//! resumes at random points.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarnfs_codec::{DecodeContext, Options, PIECE, detect};
use tarnfs_source::{FileSource, SharedSource};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: decode FILE [SPACING_MIB [THREADS [READS]]]")?;
    let spacing: f64 = arguments.next().map_or(Ok(4.0), |text| text.parse())?;
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let reads: u32 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let source: SharedSource = Arc::new(FileSource::open(path)?);
    let mut head = vec![0; 4096];
    let read = source.read_at(&mut head, 0)?;
    let codec = detect(&head[..read]).ok_or("no codec knows this file")?;

    let options = Options { seek_point_spacing: (spacing * 1_048_576.0) as u64, threads, ..Options::default() };
    let started = Instant::now();
    let mut pass = codec.first_pass(Arc::clone(&source), &options)?;
    let (mut points, mut damage) = (Vec::new(), Vec::new());
    let mut piece = vec![0; PIECE];
    let mut length = 0_u64;
    loop {
        let read = pass.read(&mut piece)?;
        pass.take_points(&mut points);
        pass.take_damage(&mut damage);
        if read == 0 {
            break;
        }
        length += read as u64;
    }
    let took = started.elapsed();
    let states: usize = points.iter().map(|point| point.state.len()).sum();
    println!(
        "{}: {length} bytes in {took:.3?}, {:.0} MB/s; {} points with {states} bytes of state ({:.2} % of the file), \
         {} damages, {} KiB of memory",
        codec.name(),
        length as f64 / took.as_secs_f64() / 1e6,
        points.len(),
        states as f64 * 100.0 / source.len() as f64,
        damage.len(),
        pass.memory() >> 10
    );

    // Random offsets that are the same in each run (Knuth's MMIX generator).
    let mut random = 1_u64;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..reads {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wanted = (random >> 16) % length.max(1);
        let started = Instant::now();
        let point = &points[points.partition_point(|point| point.decoded <= wanted) - 1];
        let mut decoder = codec.resume(Arc::clone(&source), point, &DecodeContext::default())?;
        let mut position = point.decoded;
        while position <= wanted {
            match decoder.read(&mut piece)? {
                0 => break,
                read => position += read as u64,
            }
        }
        times.push(started.elapsed());
    }
    times.sort();
    if let Some(longest) = times.last() {
        println!("random byte: median {:.3?}, longest {longest:.3?}", times[times.len() / 2]);
    }
    Ok(())
}
