//! The JSON-RPC transport against peers that misbehave: the server stays, its memory stays, and
//! whoever asks properly is answered.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate_switchd::limits::{MAX_REQUEST_BYTES, MAX_RPC_CONNECTIONS};
use tollgate_switchd::rpc::{Handler, RpcError, serve};
use tollgate_switchd::rundir::BoundSocket;

/// `echo` returns its parameters, `large` a reply of many megabytes, `panic` panics.
struct Methods;

impl Handler for Methods {
    fn call(&self, method: &str, params: Option<Value>) -> Result<Value, RpcError> {
        match method {
            "echo" => Ok(params.unwrap_or_default()),
            "large" => Ok(Value::String("x".repeat(8 << 20))),
            "panic" => panic!("a bug in a method"),
            _ => Err(RpcError { code: RpcError::METHOD_NOT_FOUND, message: method.to_owned() }),
        }
    }
}

/// A server in this process.
struct Server {
    path: PathBuf,
    _socket: BoundSocket,
    _dir: TempDir,
    _runtime: Runtime,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpc.sock");
        let (socket, listener) = BoundSocket::listen(&path).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let listener = {
            let _context = runtime.enter();
            tokio::net::UnixListener::from_std(listener).unwrap()
        };
        runtime.spawn(serve(listener, Arc::new(Methods)));
        Self { path, _socket: socket, _dir: dir, _runtime: runtime }
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    /// Whether a new connection is served before long: the server notices within its own time that
    /// others are gone.
    fn soon_answers(&self) -> bool {
        (0..1000).any(|_| {
            let mut client = self.connect();
            let mut line = String::new();
            let sent = client.stream.write_all(br#"{"jsonrpc":"2.0","method":"echo","id":2}"#);
            if sent.is_ok() && client.reader.read_line(&mut line).is_ok() && line.contains("result")
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
            false
        })
    }

    /// Asks properly, on a connection of its own.
    fn assert_answers(&self) {
        let mut client = self.connect();
        client.send(br#"{"jsonrpc":"2.0","method":"echo","params":{"a":1},"id":7}"#);
        assert_eq!(client.reply()["result"], json!({"a": 1}));
    }
}

struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends `total` bytes, or as many as the server takes before it hangs up; true if it took all.
    fn flood(&mut self, chunk: &[u8], total: usize) -> bool {
        (0..total / chunk.len()).all(|_| self.stream.write_all(chunk).is_ok())
    }

    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The code of the next reply, which must be an error without id.
    fn error_code(&mut self) -> i64 {
        let reply = self.reply();
        assert_eq!(reply["id"], Value::Null);
        reply["error"]["code"].as_i64().unwrap()
    }

    fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
            // It hung up with our bytes unread.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// Of this whole process, other tests that run beside included.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn requests_may_be_concatenated_split_or_one_a_line() {
    let server = Server::start();
    let mut client = server.connect();
    let request = |id| json!({"jsonrpc":"2.0","method":"echo","params":[],"id":id}).to_string();
    let stream = format!("{}{}\n\n{}\n", request(1), request(2), request(3));
    for byte in stream.as_bytes() {
        client.send(&[*byte]);
    }
    let ids: Vec<Value> = (0..3).map(|_| client.reply()["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2), json!(3)]);

    client.send(format!("[{},{}]", request(4), request(5)).as_bytes());
    assert_eq!(client.reply().as_array().unwrap().len(), 2);
}

#[test]
fn a_half_closed_connection_still_gets_its_replies() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(br#"{"jsonrpc":"2.0","method":"echo","id":1}{"jsonrpc":"2.0","#);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply()["id"], 1);
    assert_eq!(client.error_code(), -32700);
    client.assert_closed();
}

#[test]
fn after_garbage_the_next_line_is_answered() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\n");
    assert_eq!(client.error_code(), -32700);
    client.send(b"{\"jsonrpc\": }\n");
    assert_eq!(client.error_code(), -32700);
    client.send(b"{\"unclosed\n");
    assert_eq!(client.error_code(), -32700);
    client.send(b"\xff\xfe\x00\n{\"\xff\":1}");
    assert_eq!(client.error_code(), -32700);
    assert_eq!(client.error_code(), -32700);
    client.send(br#"{"jsonrpc":"2.0","method":"echo","id":1}"#);
    assert_eq!(client.reply()["id"], 1);
}

#[test]
fn a_gigabyte_of_anything_costs_no_memory() {
    let server = Server::start();
    server.assert_answers();
    let before = resident_bytes();
    let gigabyte = 1 << 30;
    let opening = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}", "x".repeat(1 << 16));
    for (chunk, codes) in [
        (vec![b'['; 1 << 16], vec![-32700]),
        (vec![b'x'; 1 << 16], vec![-32700, -32700]),
        (opening.into_bytes(), vec![-32700]),
    ] {
        let mut client = server.connect();
        assert!(!client.flood(&chunk, gigabyte), "the server should hang up");
        for code in codes {
            assert_eq!(client.error_code(), code);
        }
        client.assert_closed();
    }
    // White space is legal between requests, so it is taken for as long as somebody sends it.
    let mut client = server.connect();
    assert!(client.flood(&[b' '; 1 << 16], 1 << 26));
    client.send(br#"{"jsonrpc":"2.0","method":"echo","id":1}"#);
    assert_eq!(client.reply()["id"], 1);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < gigabyte / 4, "{grown} bytes");
    server.assert_answers();
}

#[test]
fn the_largest_request_is_answered_and_one_byte_more_is_not() {
    let server = Server::start();
    let request = |bytes: usize| {
        let empty = r#"{"jsonrpc":"2.0","method":"echo","id":1,"params":[""]}"#;
        empty.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - empty.len())))
    };
    let mut client = server.connect();
    client.send(request(MAX_REQUEST_BYTES).as_bytes());
    assert_eq!(client.reply()["id"], 1);
    client.send(request(MAX_REQUEST_BYTES + 1).as_bytes());
    assert_eq!(client.error_code(), -32700);
    client.assert_closed();
}

#[test]
fn who_does_not_read_delays_nobody_and_costs_one_reply() {
    let server = Server::start();
    let before = resident_bytes();
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.stream.set_nonblocking(true).unwrap();
        let request = br#"{"jsonrpc":"2.0","method":"large","id":1}"#;
        while client.stream.write_all(request).is_ok() {}
    }
    server.assert_answers();
    let grown = resident_bytes().saturating_sub(before);
    // Thousands of replies of 8 MiB were asked for.
    assert!(grown < 1 << 28, "{grown} bytes");
}

#[test]
fn connections_are_limited_and_come_free_again() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..MAX_RPC_CONNECTIONS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(br#"{"jsonrpc":"2.0","method":"echo","id":1}"#);
        assert_eq!(client.reply()["id"], 1);
    }
    let mut one_more = server.connect();
    let refusal = one_more.reply();
    assert_eq!(refusal["error"]["code"], -1);
    assert!(refusal["error"]["message"].as_str().unwrap().contains("connections"));
    one_more.assert_closed();

    drop(clients.pop());
    assert!(server.soon_answers());
}

#[test]
fn a_storm_of_connections_leaves_the_server_answering() {
    let server = Server::start();
    for round in 0..2000 {
        let mut client = server.connect();
        if round % 2 == 0 {
            // Fails when the server has refused the connection already.
            let _ = client.stream.write_all(b"{\"half\": ");
        }
    }
    assert!(server.soon_answers());
}

#[test]
fn a_bug_in_a_method_is_an_internal_error_and_nothing_more() {
    let server = Server::start();
    let mut client = server.connect();
    let request = br#"{"jsonrpc":"2.0","method":"panic","id":1}"#;
    client.send(&[b"[", &request[..], b",", &request[..], b"]"].concat());
    let replies = client.reply();
    assert_eq!(replies[0]["error"]["code"], -32603);
    assert_eq!(replies[1]["id"], 1);
    server.assert_answers();
}
