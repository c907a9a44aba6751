//! A JSON-RPC 2.0 client over the switch's management socket.

use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Deserializer, StreamDeserializer, Value, de::IoRead, json};

/// The longest that a call may take: far beyond anything but a hang.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// An error object that the switch answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The JSON-RPC error code.
    pub code: i64,
    /// The switch's message.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refused {}

/// One connection to `rpc.sock`.
pub struct Client {
    stream: UnixStream,
    replies: StreamDeserializer<'static, IoRead<UnixStream>, Value>,
    next_id: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("next_id", &self.next_id).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| format!("cannot reach {path:?}"))?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        let replies = Deserializer::from_reader(stream.try_clone()?).into_iter();
        Ok(Self { stream, replies, next_id: 1 })
    }

    /// Calls `method` and returns its result.
    ///
    /// # Errors
    /// [`Refused`] when the switch answers with an error object; otherwise a broken connection.
    pub fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let reply = self
            .replies
            .next()
            .ok_or_else(|| anyhow!("{method}: the switch closed the connection"))?
            .with_context(|| format!("{method}: no readable reply"))?;
        if reply["id"] != id {
            bail!("{method}: the reply is for another call: {reply}");
        }
        match reply.get("error") {
            None => Ok(reply["result"].clone()),
            Some(error) => Err(Refused {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
            }
            .into()),
        }
    }
}
