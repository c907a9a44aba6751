//! The table and the raw samples of a comparison.

use std::path::Path;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::Sample;
use crate::raw::csv_file;
use crate::spread::Spread;

type Figure = fn(&Sample) -> f64;

/// A core that is taken away for longer than this shows in the figures of its run.
const GAP_US: f64 = 1000.0;

/// Prints median and range of every figure, and the ratio of the two switches pair by pair.
pub(super) fn print(samples: &[Sample], sizes: &[usize]) {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "frame",
        "switch",
        "Mpps",
        "cycles/packet",
        "packets/burst",
        "generator loop p99 us",
        "core to core cycles",
    ]);
    for size in sizes {
        let of_size: Vec<_> = samples.iter().filter(|s| s.frame_bytes == *size).collect();
        for switch in names(&of_size) {
            let figure = |figure: Figure, digits: usize| {
                let own = of_size.iter().filter(|s| s.switch == switch).map(|s| figure(s));
                Spread::of(own.filter(|value| value.is_finite()))
                    .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.digits$}"))
            };
            table.add_row([
                // The wire adds a checksum of four bytes.
                format!("{} B", size + 4),
                switch.to_owned(),
                figure(|s| s.mpps, 2),
                figure(|s| s.cycles_per_packet, 0),
                figure(|s| s.packets_per_burst, 1),
                figure(|s| s.generator_loop_p99_us, 1),
                figure(|s| s.core_to_core_cycles, 0),
            ]);
        }
    }
    println!("{table}");
    let disturbed = samples.iter().filter(|s| s.generator_loop_max_us > GAP_US).count();
    println!("{disturbed} of {} runs lost their generator for over 1 ms", samples.len());
    for size in sizes {
        let of_size: Vec<_> = samples.iter().filter(|s| s.frame_bytes == *size).collect();
        print_ratio(*size, "cycles/packet", &of_size, |s| s.cycles_per_packet);
        print_ratio(*size, "Mpps", &of_size, |s| s.mpps);
    }
}

/// The first switch's figure over the second's, within each pair: drift of the machine cancels.
fn print_ratio(size: usize, what: &str, samples: &[&Sample], figure: Figure) {
    let [ours, theirs] = names(samples)[..] else { return };
    let value = |switch: &str, pair: u32| {
        samples.iter().find(|s| s.switch == switch && s.pair == pair).map(|s| figure(s))
    };
    let pairs = samples.iter().filter(|s| s.switch == ours).map(|s| s.pair);
    let ratios = pairs.filter_map(|pair| Some(value(ours, pair)? / value(theirs, pair)?));
    if let Some(spread) = Spread::of(ratios.filter(|ratio| ratio.is_finite())) {
        println!("{} B, {what}: {ours} / {theirs} = {spread:.2}", size + 4);
    }
}

/// The switches in the order in which they were measured.
fn names(samples: &[&Sample]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for sample in samples {
        if !names.contains(&sample.switch) {
            names.push(sample.switch);
        }
    }
    names
}

/// Writes one line for every run.
pub(super) fn write_csv(samples: &[Sample], path: &Path) -> anyhow::Result<()> {
    let mut csv = csv_file(path)?;
    csv.write_record([
        "pair",
        "frame_bytes_on_ring",
        "switch",
        "mpps",
        "cycles_per_packet",
        "packets_per_burst",
        "generator_loop_p99_us",
        "generator_loop_max_us",
        "core_to_core_cycles",
    ])?;
    for s in samples {
        csv.write_record([
            s.pair.to_string(),
            s.frame_bytes.to_string(),
            s.switch.to_owned(),
            s.mpps.to_string(),
            s.cycles_per_packet.to_string(),
            s.packets_per_burst.to_string(),
            s.generator_loop_p99_us.to_string(),
            s.generator_loop_max_us.to_string(),
            s.core_to_core_cycles.to_string(),
        ])?;
    }
    csv.flush()?;
    Ok(())
}
