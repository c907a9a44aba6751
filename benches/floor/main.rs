//! The floor: what moving a frame from ring to ring costs when nothing is decided, accounted for or
//! checked. `cargo bench --bench floor` prints cycles per packet, and `cargo xtask compare` shows them
//! below its own rows. No switch can be meant to reach it: the loop trusts its guest.
//!
//! As in a comparison, one core polls and another has the guest, with rings and buffers of the same
//! size and full bursts; what polls that move nothing take is left out (docs/measuring.md, rule 3).
#![allow(missing_docs)]
#![allow(clippy::print_stdout, reason = "a program")]

mod device;
mod driver;

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use tollgate_accel::tsc;
use tollgate_guest::memory::{GuestMemory, MemoryConfig};

use device::{BURST_PACKETS, Device};
use driver::Driver;

const USAGE: &str =
    "cargo bench --bench floor -- [--json] [--cores DEVICE,GUEST] [--seconds S] [BYTES...]
    BYTES is a frame's length on the ring, without the wire's checksum (60 252 1496)";

/// The largest that the buffers hold.
const FRAME_BYTES_MAX: usize = 1514;
/// Too short a frame has no place for its number.
const FRAME_BYTES_MIN: usize = 60;

#[derive(Debug)]
struct Arguments {
    json: bool,
    /// The device's and the guest's.
    cores: [usize; 2],
    measured: Duration,
    frames_bytes: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    cycles_per_packet: f64,
    mpps: f64,
    busy_percent: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse(env::args().skip(1))?;
    for bytes in &arguments.frames_bytes {
        let outcome = measure(&arguments, *bytes)?;
        let Outcome { cycles_per_packet, mpps, busy_percent } = outcome;
        if arguments.json {
            let line = json!({
                "frame_bytes": bytes,
                "cycles_per_packet": cycles_per_packet,
                "mpps": mpps,
                "busy_percent": busy_percent,
            });
            println!("{line}");
        } else {
            println!(
                "floor, {bytes} bytes: {cycles_per_packet:.0} cycles per packet, {mpps:.2} Mpps, busy {busy_percent:.0} %"
            );
        }
    }
    Ok(())
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let two = cores.next().zip(cores.next());
        let (device, guest) = two.context("two cores are needed: one polls, one sends")?;
        let mut arguments = Self {
            json: false,
            cores: [device, guest],
            measured: Duration::from_millis(500),
            frames_bytes: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                // What cargo says to every bench.
                "--bench" => {}
                "--json" => arguments.json = true,
                "--cores" => {
                    let value = words.next().context(USAGE)?;
                    let (device, guest) = value.split_once(',').context(USAGE)?;
                    arguments.cores = [device.parse()?, guest.parse()?];
                }
                "--seconds" => {
                    let seconds = words.next().context(USAGE)?.parse()?;
                    arguments.measured = Duration::try_from_secs_f64(seconds)?;
                }
                _ => arguments.frames_bytes.push(word.parse().context(USAGE)?),
            }
        }
        if arguments.frames_bytes.is_empty() {
            arguments.frames_bytes = vec![60, 252, 1496];
        }
        let possible = FRAME_BYTES_MIN..=FRAME_BYTES_MAX;
        if let Some(bytes) = arguments.frames_bytes.iter().find(|bytes| !possible.contains(bytes)) {
            bail!("frames have {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX} bytes, not {bytes}");
        }
        Ok(arguments)
    }
}

/// Frames flat out, for a fourth of the time unmeasured.
fn measure(arguments: &Arguments, frame_bytes: usize) -> anyhow::Result<Outcome> {
    let hz = tsc::calibrate_hz()? as f64;
    let mut memory = GuestMemory::new(MemoryConfig {
        bytes: Driver::memory_bytes(FRAME_BYTES_MAX),
        hugepages: false,
        regions: 1,
        sealed: false,
    })?;
    let mut driver = Driver::new(&mut memory, frame_bytes, FRAME_BYTES_MAX)?;
    let mut device = Device::new(driver.rings());
    let cycles = (arguments.measured.as_secs_f64() * hz) as u64;
    let stop = AtomicBool::new(false);
    let [device_core, guest_core] = arguments.cores;
    thread::scope(|scope| {
        let guest = scope.spawn(|| {
            pin(guest_core)?;
            while !stop.load(Ordering::Relaxed) {
                driver.step()?;
            }
            Ok(driver.received())
        });
        let polling = scope.spawn(|| {
            let pinned = pin(device_core);
            let outcome = pinned.map(|()| {
                poll(&mut device, cycles / 4);
                poll(&mut device, cycles)
            });
            stop.store(true, Ordering::Relaxed);
            outcome
        });
        let polled = polling.join().ok().context("the device's thread ended early")??;
        let received: anyhow::Result<u64> =
            guest.join().ok().context("the guest's thread ended early")?;
        ensure!(received? > 0 && polled.packets > 0, "no frame came through");
        Ok(polled.outcome(hz))
    })
}

/// What polling for a time came to.
#[derive(Debug, Clone, Copy, Default)]
struct Polled {
    packets: u64,
    elapsed_cycles: u64,
    idle_cycles: u64,
}

impl Polled {
    fn outcome(self, hz: f64) -> Outcome {
        let [packets, elapsed, idle] =
            [self.packets, self.elapsed_cycles, self.idle_cycles].map(|figure| figure as f64);
        Outcome {
            cycles_per_packet: (elapsed - idle) / packets,
            mpps: packets / elapsed * hz / 1e6,
            busy_percent: 100.0 * (elapsed - idle) / elapsed,
        }
    }
}

fn poll(device: &mut Device, cycles: u64) -> Polled {
    let start_tsc = tsc::now();
    let mut polled = Polled::default();
    let mut last_tsc = start_tsc;
    while polled.elapsed_cycles < cycles {
        let moved = device.turn();
        let now_tsc = tsc::now();
        if moved {
            polled.packets += u64::from(BURST_PACKETS);
        } else {
            polled.idle_cycles += now_tsc - last_tsc;
        }
        polled.elapsed_cycles = now_tsc - start_tsc;
        last_tsc = now_tsc;
    }
    polled
}

fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}
