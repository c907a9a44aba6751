//! From one JSON text to its replies.

use std::panic::AssertUnwindSafe;

use serde::Serialize;
use serde_json::{Map, Value};

use super::RpcError;
use crate::limits::MAX_BATCH_REQUESTS;
use crate::names::shortened;

/// What answers requests. Calls may block (they wait for PMDs), so they are made on threads that
/// may.
pub trait Handler: Send + Sync + 'static {
    /// Calls `method`.
    ///
    /// # Errors
    /// What the caller is answered with.
    fn call(&self, method: &str, params: Option<Value>) -> Result<Value, RpcError>;
}

/// Takes replies as they are made, so that a batch's need not be held at once.
pub trait ReplyWriter {
    /// Takes one piece of the reply stream; false when the peer is gone and no more is wanted.
    fn write(&mut self, bytes: Vec<u8>) -> bool;
}

impl ReplyWriter for Vec<u8> {
    fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.extend(bytes);
        true
    }
}

#[derive(Serialize)]
struct Reply<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Result(Value),
    Error(RpcError),
}

/// Answers one text: a request, or a batch of them.
pub fn respond(text: &[u8], handler: &dyn Handler, replies: &mut dyn ReplyWriter) {
    match serde_json::from_slice(text) {
        Ok(Value::Array(batch)) => respond_batch(batch, handler, replies),
        Ok(request) => {
            if let Some(mut reply) = respond_one(request, handler) {
                reply.push(b'\n');
                replies.write(reply);
            }
        }
        Err(error) => {
            let message = format!("this is no JSON: {error}");
            replies.write(error_line(RpcError { code: RpcError::PARSE_ERROR, message }));
        }
    }
}

/// The reply to something whose id could not be read.
pub(super) fn error_line(error: RpcError) -> Vec<u8> {
    let mut line = encode(&Value::Null, Err(error));
    line.push(b'\n');
    line
}

fn respond_batch(batch: Vec<Value>, handler: &dyn Handler, replies: &mut dyn ReplyWriter) {
    if batch.is_empty() || batch.len() > MAX_BATCH_REQUESTS {
        let message = format!("a batch must have 1 to {MAX_BATCH_REQUESTS} requests");
        replies.write(error_line(RpcError::invalid_request(message)));
        return;
    }
    let mut any = false;
    for request in batch {
        let Some(mut reply) = respond_one(request, handler) else { continue };
        reply.insert(0, if any { b',' } else { b'[' });
        any = true;
        if !replies.write(reply) {
            return;
        }
    }
    if any {
        replies.write(b"]\n".to_vec());
    }
}

/// The reply to one request; none for a notification.
fn respond_one(request: Value, handler: &dyn Handler) -> Option<Vec<u8>> {
    let Value::Object(mut request) = request else {
        let error = RpcError::invalid_request("a request must be an object");
        return Some(encode(&Value::Null, Err(error)));
    };
    let id = request.remove("id");
    match checked(request, id.as_ref()) {
        Ok((method, params)) => {
            let outcome = call(handler, &method, params);
            id.map(|id| encode(&id, outcome))
        }
        Err(error) => {
            let id = id.filter(is_valid_id).unwrap_or(Value::Null);
            Some(encode(&id, Err(error)))
        }
    }
}

/// A panic is a bug; it must cost the caller an error, not the batch its form.
fn call(handler: &dyn Handler, method: &str, params: Option<Value>) -> Result<Value, RpcError> {
    let call = AssertUnwindSafe(|| handler.call(method, params));
    std::panic::catch_unwind(call).unwrap_or_else(|_| {
        tracing::error!(method, "a method panicked");
        Err(RpcError::internal("the method failed by a bug in the switch; see its log"))
    })
}

fn is_valid_id(id: &Value) -> bool {
    matches!(id, Value::String(_) | Value::Number(_) | Value::Null)
}

/// The method and parameters of a request that is one (specification section 4).
fn checked(
    mut request: Map<String, Value>,
    id: Option<&Value>,
) -> Result<(String, Option<Value>), RpcError> {
    if request.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(RpcError::invalid_request("`jsonrpc` must be \"2.0\""));
    }
    if !id.is_none_or(is_valid_id) {
        return Err(RpcError::invalid_request("`id` must be a string, a number or null"));
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return Err(RpcError::invalid_request("`method` must be a string"));
    };
    let params = request.remove("params");
    if !matches!(params, None | Some(Value::Object(_) | Value::Array(_) | Value::Null)) {
        return Err(RpcError::invalid_request("`params` must be an object"));
    }
    match request.keys().find(|key| *key != "jsonrpc") {
        Some(key) => Err(RpcError::invalid_request(format!(
            "unknown member {}: a request has jsonrpc, id, method and params",
            shortened(key)
        ))),
        None => Ok((method, params)),
    }
}

fn encode(id: &Value, outcome: Result<Value, RpcError>) -> Vec<u8> {
    let outcome = match outcome {
        Ok(result) => Outcome::Result(result),
        Err(error) => Outcome::Error(error),
    };
    // Serialising a `Value` fails only for maps with keys that are no strings, which it cannot hold.
    serde_json::to_vec(&Reply { jsonrpc: "2.0", id, outcome }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Echo;

    impl Handler for Echo {
        fn call(&self, method: &str, params: Option<Value>) -> Result<Value, RpcError> {
            match method {
                "echo" => Ok(params.unwrap_or_default()),
                _ => Err(RpcError { code: RpcError::METHOD_NOT_FOUND, message: method.to_owned() }),
            }
        }
    }

    fn reply(text: &str) -> Option<Value> {
        let mut replies = Vec::new();
        respond(text.as_bytes(), &Echo, &mut replies);
        (!replies.is_empty()).then(|| serde_json::from_slice(&replies).unwrap())
    }

    fn code(text: &str) -> (Value, i64) {
        let reply = reply(text).unwrap();
        assert_eq!(reply["jsonrpc"], "2.0");
        assert!(reply["error"]["message"].is_string() && reply.get("result").is_none());
        (reply["id"].clone(), reply["error"]["code"].as_i64().unwrap())
    }

    #[test]
    fn a_call_is_answered_with_its_id() {
        for id in [json!(1), json!("x"), json!(1.5), json!(null)] {
            let request = json!({"jsonrpc":"2.0","method":"echo","params":{"a":1},"id":id});
            assert_eq!(
                reply(&request.to_string()),
                Some(json!({"jsonrpc":"2.0","id":id,"result":{"a":1}}))
            );
        }
    }

    #[test]
    fn the_standard_codes() {
        assert_eq!(code("{,}"), (json!(null), -32700));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"ec\ud800ho","id":1}"#).1, -32700);
        assert_eq!(code(r#"{"method":"echo","id":5}"#), (json!(5), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":7,"id":5}"#), (json!(5), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"echo","id":{}}"#), (json!(null), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"echo","id":5,"params":7}"#).1, -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"echo","id":5,"parms":{}}"#).1, -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"nothing","id":5}"#), (json!(5), -32601));
    }

    #[test]
    fn notifications_are_not_answered_not_even_with_errors() {
        assert_eq!(reply(r#"{"jsonrpc":"2.0","method":"echo"}"#), None);
        assert_eq!(reply(r#"{"jsonrpc":"2.0","method":"nothing"}"#), None);
        assert_eq!(reply(r#"[{"jsonrpc":"2.0","method":"echo"}]"#), None);
    }

    #[test]
    fn a_batch_is_answered_as_one_array() {
        let batch = json!([
            {"jsonrpc":"2.0","method":"echo","id":1},
            {"jsonrpc":"2.0","method":"echo"},
            7,
            {"jsonrpc":"2.0","method":"nothing","id":"b"},
        ]);
        let reply = reply(&batch.to_string()).unwrap();
        let summary: Vec<_> = reply
            .as_array()
            .unwrap()
            .iter()
            .map(|reply| (reply["id"].clone(), reply["error"]["code"].as_i64()))
            .collect();
        assert_eq!(
            summary,
            [(json!(1), None), (json!(null), Some(-32600)), (json!("b"), Some(-32601))]
        );
        assert_eq!(code("[]").1, -32600);
        assert_eq!(code(&format!("[{}0]", "0,".repeat(MAX_BATCH_REQUESTS))).1, -32600);
    }
}
