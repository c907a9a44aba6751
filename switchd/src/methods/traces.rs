//! `trace`: what would become of a packet.

use serde_json::{Value, json};

use super::Outcome;
use crate::control::Switch;
use crate::pipeline::{TraceOutput, TraceRequest, TraceStep};
use crate::rpc::{Params, RpcError, refused_value};

/// The result: `steps` (`depth`, `table` or null, `rule` or null, `cookie`, `actions`),
/// `final_flow`, `megaflow`, `datapath_actions`, `outputs` (`port`, `bytes_hex`), `verdict`,
/// `tenant`.
pub(super) fn trace(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    let flow = params.optional_text("flow")?;
    let packet = params.optional_text("packet_hex")?;
    let in_port = params.optional_text("in_port")?;
    params.finish()?;
    let request = match (flow, packet, in_port) {
        (Some(flow), None, None) => TraceRequest::Flow(flow),
        (None, Some(packet), Some(in_port)) => {
            TraceRequest::Frame { in_port, bytes: from_hex(&packet)? }
        }
        _ => {
            return Err(RpcError::invalid_params(
                "the packet is given by the parameter `flow`, or by `packet_hex` and `in_port`",
            ));
        }
    };
    let (trace, tenant) = switch.trace(&bridge, &request)?;
    Ok(json!({
        "steps": trace.steps.iter().map(step).collect::<Vec<_>>(),
        "final_flow": trace.final_flow,
        "megaflow": trace.megaflow,
        "datapath_actions": trace.datapath_actions,
        "outputs": trace.outputs.iter().map(output).collect::<Vec<_>>(),
        "verdict": trace.verdict,
        "tenant": tenant,
    }))
}

fn step(step: &TraceStep) -> Value {
    json!({
        "depth": step.depth,
        "table": step.table,
        "rule": step.rule,
        "cookie": format!("{:#x}", step.cookie),
        "actions": step.actions,
    })
}

fn output(output: &TraceOutput) -> Value {
    let bytes_hex: String = output.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "port": output.port, "bytes_hex": bytes_hex })
}

fn from_hex(text: &str) -> Result<Vec<u8>, RpcError> {
    const WANTED: &str = "must be pairs of hexadecimal digits";
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = text.as_bytes().iter().map(digit).collect();
    let digits = digits.ok_or_else(|| refused_value("packet_hex", WANTED))?;
    let (pairs, odd) = digits.as_chunks::<2>();
    match odd {
        [] => Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
        _ => Err(refused_value("packet_hex", WANTED)),
    }
}
