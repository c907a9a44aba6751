//! `pmd stages`: where the cycles of a packet go.

use serde_json::Value;

use super::value::{items, member, plain, text};
use crate::output::Align::{Left, Right};
use crate::output::table;

pub(super) fn stages(result: &Value) -> String {
    let seconds = member(result, "seconds").as_f64();
    let seconds = seconds.map_or_else(|| "-".to_owned(), |seconds| seconds.to_string());
    let sections = items(member(result, "pmds")).iter().map(|report| pmd(report, &seconds));
    let sections: Vec<String> = sections.collect();
    if sections.is_empty() { "no PMDs\n".to_owned() } else { sections.join("\n") }
}

fn pmd(report: &Value, seconds: &str) -> String {
    let stages = items(member(report, "stages")).iter().map(|stage| {
        let part = percent(stage);
        let names = ["stage", "packets", "cycles_per_packet", "cycles_per_packet_overall"];
        names.iter().map(|name| text(stage, name)).chain([part]).collect()
    });
    let total = |name: &str, key: &str, packets: &str| {
        let total = member(report, key);
        let cycles = text(total, "cycles_per_packet");
        vec![name.to_owned(), packets.to_owned(), String::new(), cycles, percent(total)]
    };
    let mut busy = total("(busy)", "busy", &text(member(report, "busy"), "packets"));
    // The whole of which the others are parts; what they explain of it.
    if let Some(explained) = busy.last_mut() {
        *explained = format!("explained {}", in_percent(member(report, "explained_percent")));
    }
    let totals = [
        total("(sum)", "sum", &text(report, "sampled_packets")),
        total("(system)", "system", ""),
        busy,
    ];
    let columns = [
        ("STAGE", Left),
        ("PACKETS", Right),
        ("CYCLES-EACH", Right),
        ("PER-PACKET", Right),
        ("OF-BUSY", Right),
    ];
    format!(
        "pmd {} on core {}, {seconds} s: {} tasks sampled and {} thrown away; {} cycles are taken off for each reading of the clock\n{}",
        text(report, "pmd"),
        text(report, "core"),
        text(report, "sampled_tasks"),
        text(report, "spoiled_tasks"),
        text(report, "reading_cycles"),
        table(&columns, stages.chain(totals).collect(), "")
    )
}

fn percent(of: &Value) -> String {
    in_percent(member(of, "percent_of_busy"))
}

fn in_percent(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        value => format!("{} %", plain(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stages_their_sum_and_the_books_are_rows() {
        let text = stages(&json!({"seconds": 0.5, "pmds": [{
            "pmd": 0, "core": 1, "sampled_tasks": 40, "spoiled_tasks": 1, "sampled_packets": 1280,
            "reading_cycles": 31,
            "stages": [
                {"stage": "fetch", "packets": 1280, "cycles": 12800, "cycles_per_packet": 10.0,
                 "cycles_per_packet_overall": 10.0, "percent_of_busy": 20.0},
                {"stage": "parse", "packets": 0, "cycles": 0, "cycles_per_packet": null,
                 "cycles_per_packet_overall": 0.0, "percent_of_busy": 0.0}
            ],
            "sum": {"cycles_per_packet": 45.0, "percent_of_busy": 90.0},
            "system": {"cycles_per_packet": 4.0, "percent_of_busy": 8.0},
            "busy": {"cycles_per_packet": 50.0, "packets": 20000},
            "explained_percent": 98.0
        }]}));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(
            text.starts_with("pmd 0 on core 1, 0.5 s: 40 tasks sampled and 1 thrown"),
            "{text}"
        );
        assert_eq!(row("fetch"), ["1280", "10.00", "10.00", "20.00", "%"]);
        assert_eq!(row("parse"), ["0", "-", "0.00", "0.00", "%"]);
        assert_eq!(row("(sum)"), ["1280", "45.00", "90.00", "%"]);
        assert_eq!(row("(system)"), ["4.00", "8.00", "%"]);
        assert_eq!(row("(busy)"), ["20000", "50.00", "explained", "98.00", "%"]);
    }

    #[test]
    fn what_a_switch_leaves_out_does_not_matter() {
        for value in [json!(null), json!({}), json!({"pmds": [null]}), json!({"pmds": 7})] {
            let _ = stages(&value);
        }
    }
}
