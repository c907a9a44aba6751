//! `trace`: the way of a packet through the tables, as text.

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::pcap::Capture;
use super::value::{items, member, plain, text};
use crate::cli::{Cli, Trace};
use crate::{output, rpc};

/// Traces one packet, or every packet of a capture file.
pub(super) fn run(cli: &Cli, trace: &Trace) -> anyhow::Result<()> {
    match (&trace.packet, &trace.pcap) {
        (Some(packet), _) => one(cli, &params(trace, packet)?),
        (None, Some(path)) => {
            let name = path.display();
            let Some(in_port) = &trace.in_port else {
                bail!("a capture file does not say where its packets come in: --in-port PORT");
            };
            let capture = Capture::open(path).with_context(|| name.to_string())?;
            for (index, frame) in capture.enumerate() {
                let number = index + 1;
                let frame = frame.with_context(|| format!("{name}: packet {number}"))?;
                if !cli.json {
                    output::print(&format!("packet {number}, {} bytes\n", frame.len()))?;
                }
                let packet = json!({
                    "bridge": trace.bridge, "packet_hex": hex(&frame), "in_port": in_port
                });
                one(cli, &packet).with_context(|| format!("{name}: packet {number}"))?;
            }
            Ok(())
        }
        (None, None) => bail!("a flow, a frame in hexadecimal, or --pcap FILE"),
    }
}

fn one(cli: &Cli, params: &Value) -> anyhow::Result<()> {
    let result = rpc::call(&cli.run_dir, "trace", params.clone())?;
    Ok(output::print(&if cli.json { format!("{result:#}\n") } else { walk(&result) })?)
}

fn params(trace: &Trace, packet: &str) -> anyhow::Result<Value> {
    let bridge = &trace.bridge;
    match (frame_digits(packet), &trace.in_port) {
        (Some(digits), Some(in_port)) => {
            Ok(json!({ "bridge": bridge, "packet_hex": digits, "in_port": in_port }))
        }
        (Some(_), None) => bail!("a frame does not say where it comes in: --in-port PORT"),
        (None, None) => Ok(json!({ "bridge": bridge, "flow": packet })),
        (None, Some(port)) => bail!("a flow names its port itself: in_port={port},{packet}"),
    }
}

/// The digits of a frame in hexadecimal, `None` if the text is none.
fn frame_digits(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    // No flow is that long without a comma or an equals sign.
    let is_frame = digits.len() >= 28 && digits.chars().all(|c| c.is_ascii_hexdigit());
    is_frame.then_some(digits)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The walk, in the manner of `ovs-appctl ofproto/trace`.
fn walk(result: &Value) -> String {
    let mut lines: Vec<String> = items(member(result, "steps")).iter().flat_map(step).collect();
    lines.push(String::new());
    lines.push(format!("Final flow: {}", text(result, "final_flow")));
    lines.push(format!("Megaflow: {}", text(result, "megaflow")));
    lines.push(format!("Datapath actions: {}", list(member(result, "datapath_actions"), "drop")));
    for output in items(member(result, "outputs")) {
        let bytes = text(output, "bytes_hex");
        let port = text(output, "port");
        lines.push(format!("Output to {port}, {} bytes: {bytes}", bytes.len() / 2));
    }
    lines.push(format!("Verdict: {}", text(result, "verdict")));
    lines.push(format!("Paid by: {}", text(result, "tenant")));
    lines.join("\n") + "\n"
}

/// A look-up: a line for the table and the rule, and one below it for each action.
fn step(step: &Value) -> Vec<String> {
    let depth = member(step, "depth").as_u64().unwrap_or(0).min(DEPTH_MAX) as usize;
    let indent = " ".repeat(4 * depth);
    let rule = match (member(step, "table"), member(step, "rule")) {
        (Value::Null, _) => "action set".to_owned(),
        (table, Value::Null) => format!("{:>2}. no match", plain(table)),
        (table, rule) => {
            let cookie = text(step, "cookie");
            let cookie = match cookie.as_str() {
                "0" | "0x0" | "-" => String::new(),
                cookie => format!(", cookie {cookie}"),
            };
            let rule = match rule.as_str() {
                Some("") => "every packet".to_owned(),
                _ => plain(rule),
            };
            format!("{:>2}. {rule}{cookie}", plain(table))
        }
    };
    let actions = items(member(step, "actions"));
    let actions = actions.iter().map(|action| format!("{indent}    {}", plain(action)));
    std::iter::once(format!("{indent}{rule}")).chain(actions).collect()
}

/// Beyond this a walk is not indented any further.
const DEPTH_MAX: u64 = 64;

fn list(value: &Value, empty: &str) -> String {
    let parts: Vec<String> = items(value).iter().map(plain).collect();
    if parts.is_empty() { empty.to_owned() } else { parts.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_reads_table_by_table_down_to_who_pays() {
        let result = json!({
            "steps": [
                {"depth": 0, "table": 0, "rule": "priority=5,ip", "cookie": "0x7",
                 "actions": ["resubmit(,2)", "output:vm2"]},
                {"depth": 1, "table": 2, "rule": null, "cookie": "0x0", "actions": []},
                {"depth": 0, "table": 3, "rule": "", "cookie": "0x0", "actions": []},
                {"depth": 0, "table": null, "rule": null, "cookie": "0x0", "actions": ["output:vm3"]}
            ],
            "final_flow": "ip,in_port=vm1", "megaflow": "ip,in_port=vm1",
            "datapath_actions": ["vm2", "vm3"],
            "outputs": [{"port": "vm2", "bytes_hex": "0011"}],
            "verdict": "sent to 2 ports", "tenant": "t1"
        });
        assert_eq!(
            walk(&result),
            " 0. priority=5,ip, cookie 0x7\n    resubmit(,2)\n    output:vm2\n     2. no match\n 3. every packet\n\
             action set\n    output:vm3\n\nFinal flow: ip,in_port=vm1\nMegaflow: ip,in_port=vm1\n\
             Datapath actions: vm2,vm3\nOutput to vm2, 2 bytes: 0011\nVerdict: sent to 2 ports\n\
             Paid by: t1\n"
        );
    }

    #[test]
    fn a_dropped_packet_has_no_outputs() {
        let text = walk(&json!({"steps": [], "datapath_actions": [], "verdict": "dropped: x"}));
        assert!(text.contains("Datapath actions: drop\nVerdict: dropped: x\n"), "{text}");
    }

    #[test]
    fn what_a_switch_leaves_out_does_not_matter() {
        for value in [json!(null), json!([1]), json!({"steps": [null, {}], "outputs": [7]})] {
            let _ = walk(&value);
        }
    }

    #[test]
    fn a_frame_is_told_from_a_flow() {
        let frame = "ffff ffffffff 00:00:00:00:00:01 0800 4500";
        let digits = frame_digits(frame);
        assert_eq!(digits.as_deref(), Some("ffffffffffff00000000000108004500"));
        for flow in ["in_port=1,tcp", "arp", "ffff", "in_port=vm1,dl_src=00:00:00:00:00:01"] {
            assert_eq!(frame_digits(flow), None, "{flow}");
        }
    }
}
