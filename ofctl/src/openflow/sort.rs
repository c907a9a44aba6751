//! The order of `dump-flows --sort`.

use std::cmp::Ordering;

use anyhow::bail;
use tollgate_openflow::Field;
use tollgate_openflow::multipart::FlowStats;
use tollgate_openflow::text::fields_named;

/// By priority, or by a field; flows that do not match on the field come last either way, and
/// those that are equal by falling priority.
#[derive(Debug)]
pub(super) struct Order {
    /// What the name may stand for (`tp_src`: of TCP, UDP or SCTP). Empty: the priority.
    fields: Vec<Field>,
    descending: bool,
}

impl Order {
    /// `field` is empty for the priority.
    pub(super) fn parse(field: &str, descending: bool) -> anyhow::Result<Order> {
        let fields = fields_named(field);
        if fields.is_empty() && !matches!(field, "" | "priority") {
            bail!("--sort={field}: unknown field {field}");
        }
        Ok(Order { fields, descending })
    }

    /// Sorts; equal flows keep the switch's order.
    pub(super) fn sort(&self, flows: &mut [FlowStats]) {
        flows.sort_by(|a, b| self.compare(a, b));
    }

    fn compare(&self, a: &FlowStats, b: &FlowStats) -> Ordering {
        let directed = |order: Ordering| if self.descending { order.reverse() } else { order };
        if self.fields.is_empty() {
            return directed(a.priority.cmp(&b.priority));
        }
        let by_field = match (self.value(a), self.value(b)) {
            (Some(a), Some(b)) => directed(a.cmp(&b)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        by_field.then(b.priority.cmp(&a.priority))
    }

    fn value(&self, flow: &FlowStats) -> Option<u128> {
        self.fields.iter().find_map(|field| flow.matcher.get(*field)).map(|field| field.value())
    }
}
