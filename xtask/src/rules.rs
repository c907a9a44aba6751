//! Tables that both experiments and comparison use, in ovs-ofctl's grammar.

/// Reads the whole 5-tuple, so that each is a cached decision of its own, all under one mask.
pub(crate) fn every_tuple(from: &str, to: &str) -> String {
    format!(
        "udp,in_port={from},actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],\
         move:NXM_OF_IP_DST[]->NXM_NX_REG1[],move:NXM_OF_UDP_SRC[]->NXM_NX_REG2[0..15],\
         move:NXM_OF_UDP_DST[]->NXM_NX_REG2[16..31],output:{to}"
    )
}

/// A table with `masks` masks, each with rules for a tenth of what it can tell apart, so that
/// packets fall through to others; and a rule for the rest.
pub(crate) fn many_masks(from: &str, to: &str, masks: u32) -> Vec<String> {
    const RULES: u32 = 400;
    const BITS: u32 = 12;
    let mut flows = Vec::new();
    let mut state = 42_u64;
    for mask in 0..masks {
        // Twelve bits, spread differently over the four fields.
        let parts = [mask % 5 + 1, (mask / 5) % 4 + 1, (mask * 7) % 3 + 1];
        let parts = [parts[0], parts[1], parts[2], BITS - parts.iter().sum::<u32>()];
        for _ in 0..RULES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bits = (state >> 40) as u32;
            let fields = ["nw_src", "nw_dst", "tp_src", "tp_dst"].iter().zip(parts);
            let fields = fields.map(|(field, width)| {
                let value = (bits & ((1 << width) - 1)) << (16 - width);
                bits >>= width;
                if field.starts_with("nw") {
                    format!("{field}=10.0.{}.{}/{}", value >> 8, value & 255, 16 + width)
                } else {
                    format!("{field}={value:#x}/{:#x}", (0xffff << (16 - width)) & 0xffff)
                }
            });
            let fields: Vec<_> = fields.collect();
            let priority = 100 + (mask * 13) % masks;
            flows.push(format!(
                "priority={priority},udp,in_port={from},{},actions=output:{to}",
                fields.join(",")
            ));
        }
    }
    flows.push(format!("priority=1,in_port={from},actions=output:{to}"));
    // One value may come twice.
    flows.sort_unstable();
    flows.dedup();
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_masks_are_so_many() {
        for masks in [1, 5, 20, 50] {
            let flows = many_masks("a", "b", masks);
            let shape = |flow: &String| {
                let masks = flow.split(',').filter_map(|field| field.split('/').nth(1));
                masks.map(str::to_owned).collect::<Vec<_>>()
            };
            let shapes: std::collections::BTreeSet<_> = flows.iter().map(shape).collect();
            assert_eq!(shapes.len() as u32, masks + 1, "the masks and the rule for the rest");
            assert!(flows.len() as u32 > 350 * masks, "{}", flows.len());
        }
    }
}
