//! A JSON-RPC server that answers every request with one canned result and remembers the request.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// The requests that have been received.
pub(crate) type Requests = Arc<Mutex<Vec<Value>>>;

/// Serves `RUNDIR/rpc.sock` until the test ends; `reply` is `{"result": ..}` or `{"error": ..}`.
pub(crate) fn serve(run_dir: &Path, reply: Value) -> Requests {
    let listener = UnixListener::bind(run_dir.join("rpc.sock")).unwrap();
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let mut reply = reply.clone();
            reply["jsonrpc"] = "2.0".into();
            reply["id"] = request["id"].clone();
            log.lock().unwrap().push(request);
            // The connection stays open, as the daemon's does: the client must not wait for its end.
            stream.write_all(format!("{reply}\n").as_bytes()).unwrap();
            thread::spawn(move || {
                let _ = BufReader::new(stream).read_line(&mut String::new());
            });
        }
    });
    requests
}
