//! The methods of the JSON-RPC interface.

mod bridges;
mod controllers;
mod flows;
mod ports;
mod recordings;
mod scheduler;
mod stages;
mod stats;
mod tenants;
mod traces;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::control::{Refusal, Switch};
use crate::rpc::{Handler, Params, RpcError};

type Outcome = Result<Value, RpcError>;

struct Method {
    name: &'static str,
    call: fn(&Switch, Params) -> Outcome,
}

const METHODS: &[Method] = &[
    Method { name: "bridge_add", call: bridges::add },
    Method { name: "bridge_list", call: bridges::list },
    Method { name: "bridge_remove", call: bridges::remove },
    Method { name: "cache_get", call: flows::cache_get },
    Method { name: "cache_set", call: flows::cache_set },
    Method { name: "controller_get", call: controllers::get },
    Method { name: "controller_set", call: controllers::set },
    Method { name: "fdb_flush", call: flows::fdb_flush },
    Method { name: "fdb_list", call: flows::fdb_list },
    Method { name: "megaflow_list", call: flows::megaflows },
    Method { name: "pmd_stages", call: stages::pmd_stages },
    Method { name: "pmd_stats", call: stats::pmd_stats },
    Method { name: "pmd_trace_read", call: recordings::read },
    Method { name: "pmd_trace_start", call: recordings::start },
    Method { name: "port_add", call: ports::add },
    Method { name: "port_get", call: ports::get },
    Method { name: "port_list", call: ports::list },
    Method { name: "port_remove", call: ports::remove },
    Method { name: "protection_get", call: tenants::protection_get },
    Method { name: "protection_set", call: tenants::protection_set },
    Method { name: "rpc_get_methods", call: rpc_get_methods },
    Method { name: "scheduler_get", call: scheduler::get },
    Method { name: "scheduler_set", call: scheduler::set },
    Method { name: "tenant_get", call: tenants::get },
    Method { name: "tenant_list", call: tenants::list },
    Method { name: "tenant_remove", call: tenants::remove },
    Method { name: "tenant_set", call: tenants::set },
    Method { name: "trace", call: traces::trace },
    Method { name: "version", call: version },
];

/// Every method, over one switch.
#[derive(Debug)]
pub struct Methods {
    switch: Arc<Switch>,
}

impl Methods {
    /// Methods of `switch`.
    pub fn new(switch: Arc<Switch>) -> Self {
        Self { switch }
    }
}

impl Handler for Methods {
    fn call(&self, method: &str, params: Option<Value>) -> Outcome {
        let known = METHODS.iter().find(|known| known.name == method);
        let known = known.ok_or_else(|| RpcError::method_not_found(method))?;
        (known.call)(&self.switch, Params::new(params)?)
    }
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        Self::refused(refusal.to_string())
    }
}

/// The result of what has nothing to tell.
fn done() -> Outcome {
    Ok(Value::Bool(true))
}

fn rpc_get_methods(_: &Switch, params: Params) -> Outcome {
    params.finish()?;
    Ok(METHODS.iter().map(|method| method.name).collect())
}

fn version(_: &Switch, params: Params) -> Outcome {
    params.finish()?;
    Ok(json!({ "name": "tollgate", "version": env!("CARGO_PKG_VERSION") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_listed_in_order_and_once() {
        assert!(METHODS.is_sorted_by(|a, b| a.name < b.name));
    }
}
