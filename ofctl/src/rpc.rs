//! A JSON-RPC 2.0 client: one request per connection.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use crate::limits::SILENCE_MAX;
use crate::target::{self, Target};

/// Calls a method of the switch; its refusal is the error.
pub(crate) fn call(run_dir: &Path, method: &str, params: Value) -> anyhow::Result<Value> {
    let socket = target::rpc_socket(run_dir);
    let mut stream = UnixStream::connect(&socket)
        .map_err(|error| anyhow!(target::cannot_connect(&Target::Unix(socket.clone()), &error)))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let lost = || format!("{}: the switch broke off during {method}", socket.display());
    // A switch that hangs up at once may have said why before, so the reply is read even if the
    // request could not be written.
    let written = stream.write_all(format!("{request}\n").as_bytes());
    let reply =
        serde_json::Deserializer::from_reader(BufReader::new(stream)).into_iter::<Value>().next();
    match (reply, written) {
        (Some(Ok(reply)), _) => result_of(reply, method),
        (_, Err(error)) => Err(error).with_context(lost),
        (Some(Err(error)), Ok(())) => Err(error).with_context(lost),
        (None, Ok(())) => bail!(lost()),
    }
}

fn result_of(mut reply: Value, method: &str) -> anyhow::Result<Value> {
    if let Some(error) = reply.get("error") {
        match error.get("message").and_then(Value::as_str) {
            Some(message) => bail!("{message}"),
            None => bail!("the switch refused {method}: {error}"),
        }
    }
    match reply.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => bail!("the switch's answer to {method} has neither result nor error: {reply}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_its_message_and_a_missing_result_is_an_error() {
        let refused = json!({"error": {"code": -32602, "message": "weight: 0 is too small"}});
        let error = result_of(refused, "tenant_set").unwrap_err();
        assert_eq!(error.to_string(), "weight: 0 is too small");
        assert_eq!(result_of(json!({"result": null}), "x").unwrap(), Value::Null);
        assert!(result_of(json!({"id": 1}), "x").is_err());
        assert!(result_of(json!([]), "x").is_err());
    }
}
