//! Bounds on what the management side may be made to hold or wait for, each with its reason.

use std::time::Duration;

/// Highest OpenFlow number of an ordinary port: numbers from 0xff00 up are special in OpenFlow 1.0,
/// whose 16-bit numbers tools still print.
pub const MAX_OFPORT: u32 = 0xfeff;

/// Largest configuration file: ten thousand ports take about a megabyte.
pub const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Longest bridge or port name: OpenFlow's port name field is 16 bytes with its terminator
/// (OpenFlow 1.3.5, section 7.2.1, OFP_MAX_PORT_NAME_LEN).
pub const MAX_NAME_BYTES: usize = 15;

/// Longest tenant name: a libvirt domain name or a UUID fits.
pub const MAX_TENANT_NAME_BYTES: usize = 63;

/// Longest path of a unix socket: `sun_path` is 108 bytes with its terminator (unix(7)).
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Bridges of one switch: each has a listening socket and its own tables.
pub const MAX_BRIDGES: usize = 64;

/// Largest JSON-RPC request or batch. The largest real ones are a few hundred bytes.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;

/// Deepest nesting of a JSON-RPC request: a batch of requests with nested parameters is 4 deep.
pub const MAX_REQUEST_DEPTH: u32 = 32;

/// Values and object members in one request. A parsed value takes up to some 600 bytes where its
/// text takes 5, so the byte limit alone would let a request cost a hundredfold.
pub const MAX_REQUEST_VALUES: usize = 8192;

/// Requests in one batch.
pub const MAX_BATCH_REQUESTS: usize = 256;

/// JSON-RPC connections at a time; each may hold one request, one reply and one blocking thread.
pub const MAX_RPC_CONNECTIONS: usize = 64;

/// Connections of OpenFlow controllers and tools to one bridge at a time.
pub const MAX_OPENFLOW_CONNECTIONS: usize = 32;

/// Threads for calls that block: one for each connection, so that none waits for another, and a
/// few for the runtime's own use.
pub const MAX_BLOCKING_THREADS: usize =
    MAX_RPC_CONNECTIONS + MAX_BRIDGES * MAX_OPENFLOW_CONNECTIONS + 16;

/// How long a peer may leave a request or message half sent before it is disconnected.
pub const RECEIVE_STALL: Duration = Duration::from_secs(30);

/// How long a peer may leave a reply unread before it is disconnected.
pub const SEND_STALL: Duration = Duration::from_secs(10);

/// How long an orderly end may take, in milliseconds, unless the command line says otherwise: two
/// seconds from the signal to the last thread are promised.
pub const SHUTDOWN_DEADLINE_MS: u64 = 1800;
